package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"strings"
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

// relevant reports whether the entry has a part in what a Schema says: tables
// and views, and the indexes SQLite made for keys.
func (e *Entry) relevant() bool {
	switch e.Type {
	case "table", "view":
		return true
	case "index":
		return e.SQL == nil
	}
	return false
}

// digest is over everything but root pages, so that databases made by one
// application share what was read from one of them.
func digest(enc Encoding, entries []Entry) [sha256.Size]byte {
	h := sha256.New()
	var n [8]byte
	put := func(b []byte) {
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	put([]byte(enc.String()))
	for i := range entries {
		if e := &entries[i]; e.relevant() {
			put([]byte(e.Type))
			put(e.Name)
			put(e.Table)
			put(e.SQL)
			if e.Root == 0 {
				put(nil)
			}
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
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
	t := &Table{Name: enc.text(e.Name), SQL: enc.text(e.SQL), Alias: -1}
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
	}
	return t
}

// isStatistics names the tables of ANALYZE. Loading one of them into our
// database would make SQLite read its rows, which are not there.
func isStatistics(name string) bool {
	const prefix = "sqlite_stat"
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// isVirtual knows the form SQLite stores, which always starts like this
// whatever the statement looked like.
func isVirtual(sql string) bool {
	const prefix = "CREATE VIRTUAL TABLE"
	return len(sql) > len(prefix) && strings.EqualFold(sql[:len(prefix)], prefix)
}

// markShadows finds the tables that virtual tables keep their content in, by
// the names their modules claim: the virtual table's name, an underscore, and
// a suffix of the module. Known are the modules of SQLite itself and vec0.
func markShadows(tables []*Table) {
	modules := make(map[string]string)
	for _, t := range tables {
		if t.Kind == Virtual {
			modules[strings.ToLower(t.Name)] = strings.ToLower(moduleOf(t.SQL))
		}
	}
	if len(modules) == 0 {
		return
	}
	for _, t := range tables {
		if t.Kind == Ordinary && isShadow(modules, strings.ToLower(t.Name)) {
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

// moduleOf reads the module's name out of a stored CREATE VIRTUAL TABLE text:
// after the table's name and USING.
func moduleOf(sql string) string {
	rest := []byte(sql)
	var word string
	for range len("CREATE VIRTUAL TABLE name USING") {
		word, rest = token(rest)
		if word == "" {
			return ""
		}
		if strings.EqualFold(word, "using") {
			word, _ = token(rest)
			return word
		}
	}
	return ""
}

// token takes the next word or quoted name off an SQL text, without quotes;
// comments are blank space. A quoted name comes back with a leading NUL when
// it would read like a keyword, so that "using" as a name is not USING.
func token(sql []byte) (string, []byte) {
	sql = skipBlank(sql)
	if len(sql) == 0 {
		return "", nil
	}
	closing := sql[0]
	switch sql[0] {
	case '"', '\'', '`':
	case '[':
		closing = ']'
	default:
		n := bytes.IndexFunc(sql, func(r rune) bool {
			return !(r == '_' || r == '$' || r >= 0x80 || r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z')
		})
		if n < 0 {
			n = len(sql)
		}
		n = max(n, 1)
		return string(sql[:n]), sql[n:]
	}
	var name []byte
	for i := 1; i < len(sql); i++ {
		if sql[i] != closing {
			name = append(name, sql[i])
			continue
		}
		if closing != ']' && i+1 < len(sql) && sql[i+1] == closing {
			name = append(name, closing)
			i++
			continue
		}
		return unkeyword(string(name)), sql[i+1:]
	}
	return unkeyword(string(name)), nil
}

func unkeyword(name string) string {
	if name == "" || strings.EqualFold(name, "using") {
		return "\x00" + name
	}
	return name
}

func skipBlank(sql []byte) []byte {
	for len(sql) > 0 {
		end := 1
		switch {
		case sql[0] == ' ' || sql[0] >= '\t' && sql[0] <= '\r':
		case bytes.HasPrefix(sql, []byte("--")):
			if end = bytes.IndexByte(sql, '\n') + 1; end == 0 {
				return nil
			}
		case bytes.HasPrefix(sql, []byte("/*")):
			if end = bytes.Index(sql[2:], []byte("*/")) + 4; end == 3 {
				return nil
			}
		default:
			return sql
		}
		sql = sql[end:]
	}
	return nil
}
