package schema

import (
	"crypto/sha256"
	"encoding/binary"
)

// Entry is one row of sqlite_schema (SQLite file format 2.6). The texts are
// the stored bytes, in the encoding of the database.
type Entry struct {
	// Type is decoded: "table", "index", "view" or "trigger".
	Type string
	Name []byte
	// Table is the tbl_name field.
	Table []byte
	// Root is 0 for views, triggers and virtual tables.
	Root uint32
	// SQL is nil where the field is NULL, as for automatic indexes.
	SQL []byte
}

// digest is over all that a description depends on: the name, the text and
// the encoding both are stored in. The buffer is used and handed back.
func (e *Entry) digest(enc Encoding, buf []byte) ([sha256.Size]byte, []byte) {
	buf = binary.BigEndian.AppendUint32(buf[:0], uint32(enc))
	buf = binary.BigEndian.AppendUint64(buf, uint64(len(e.Name)))
	buf = append(append(buf, e.Name...), e.SQL...)
	return sha256.Sum256(buf), buf
}

// text is a stored text as a Go string: UTF-8 where it is valid in its
// encoding, the stored bytes where not.
func (e Encoding) text(stored []byte) string {
	if s, ok := e.AppendUTF8(nil, stored); ok {
		return string(s)
	}
	return string(stored)
}

// describe makes the table of an entry as far as its own fields tell, without
// columns; nil for an entry that is no table or view.
func describe(enc Encoding, e *Entry) *Table {
	t := &Table{Name: enc.text(e.Name), SQL: enc.text(e.SQL), Alias: -1, Root: e.Root}
	switch {
	case e.Type == "view":
		t.Kind = View
	case e.Type != "table":
		return nil
	case e.Root == 0 && isVirtual(t.SQL):
		t.Kind = Virtual
	case e.Root == 0:
		t.Unreadable = "it has no root page"
	case isStatistics(t.Name):
		t.Kind = Internal
	default:
		t.Unreadable = stranger(t)
	}
	return t
}

// stranger says why SQLite is not shown a table; empty when it is. A text that
// is shown makes a table of its own name and nothing else, so no text has an
// effect on what is said of another.
func stranger(t *Table) string {
	if hasPrefixFold(t.Name, "sqlite_") && !equalFold(t.Name, "sqlite_sequence") {
		return "its name is reserved for SQLite"
	}
	if name, ok := definedName(t.SQL); !ok || name != t.Name {
		return "its text is no CREATE TABLE statement of its name"
	}
	return ""
}

// isStatistics names the tables of ANALYZE. Loading one of them into our
// database would make SQLite read its rows, which are not there.
func isStatistics(name string) bool { return hasPrefixFold(name, "sqlite_stat") }

// isVirtual knows the form SQLite stores, which always starts like this
// whatever the statement looked like.
func isVirtual(sql string) bool {
	const prefix = "create virtual table"
	return len(sql) > len(prefix) && hasPrefixFold(sql, prefix)
}

// markShadows finds the tables that virtual tables keep their content in, by
// the names their modules claim: the virtual table's name, an underscore, and
// a suffix of the module. Known are the modules of SQLite itself and vec0.
func markShadows(tables []*Table) {
	modules := make(map[string]string)
	for _, t := range tables {
		if t.Kind == Virtual {
			modules[lower(t.Name)] = lower(moduleOf(t.SQL))
		}
	}
	if len(modules) == 0 {
		return
	}
	for _, t := range tables {
		if t.Kind == Ordinary && isShadow(modules, lower(t.Name)) {
			t.Kind = Shadow
		}
	}
}

// isShadow tries every underscore of a name as the one behind the virtual
// table's: both parts may have more of them.
func isShadow(modules map[string]string, name string) bool {
	for i := range len(name) {
		if name[i] != '_' {
			continue
		}
		if module, ok := modules[name[:i]]; ok && isShadowSuffix(module, name[i+1:]) {
			return true
		}
	}
	return false
}

func isShadowSuffix(module, suffix string) bool {
	switch module {
	case "fts3", "fts4":
		switch suffix {
		case "content", "docsize", "segdir", "segments", "stat":
			return true
		}
	case "fts5":
		switch suffix {
		case "config", "content", "data", "docsize", "idx":
			return true
		}
	case "rtree", "rtree_i32", "geopoly":
		return suffix == "node" || suffix == "parent" || suffix == "rowid"
	case "spellfix1":
		return suffix == "vocab"
	case "vec0":
		switch suffix {
		case "auxiliary", "chunks", "info", "rowids":
			return true
		}
		return isNumbered(suffix, "vector_chunks") || isNumbered(suffix, "metadatachunks") || isNumbered(suffix, "metadatatext")
	}
	return false
}

// isNumbered says that a suffix is the word and a number of two digits.
func isNumbered(suffix, word string) bool {
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	return len(suffix) == len(word)+2 && suffix[:len(word)] == word && digit(suffix[len(word)]) && digit(suffix[len(word)+1])
}
