package rowset

import "strings"

// The one celld table that is exported, and the names that keep it apart from
// an application table that is called the same.
const (
	storedKV   = "_cf_KV"
	exportedKV = "kv"
	sqlKV      = "_cf_SQL_kv"
	storedNS   = "__kv"
)

// reserved are the prefixes of names that belong to SQLite, celld and
// litestream. They are compared as SQLite compares names.
var reserved = [...]string{"sqlite_", "_cf_", "_litestream_"}

// ExportedName is the name under which the table stored under name is
// exported, and false when the name is reserved and never exported. It is
// valid UTF-8 and one-to-one: no two stored names are exported under one.
func ExportedName(stored string) (string, bool) {
	switch {
	case stored == storedKV:
		return exportedKV, true
	case stored == exportedKV:
		return sqlKV, true
	case stored == "__kv_meta", strings.HasPrefix(stored, "__queue_"):
		return "", false
	}
	for _, p := range reserved {
		if len(stored) >= len(p) && equalFold(stored[:len(p)], p) {
			return "", false
		}
	}
	return written(stored), true
}

// storedName is the stored name behind an exported one.
func storedName(exported string) string {
	switch exported {
	case exportedKV:
		return storedKV
	case sqlKV:
		return exportedKV
	}
	return unwritten(exported)
}
