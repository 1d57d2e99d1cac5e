package schema

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// reservedWords are names that stand for something in an SQL text that reads a
// schema: pragma functions, the schema table, other functions, the database.
var reservedWords = []string{"pragma_table_list", "pragma_table_xinfo", "pragma_index_list", "pragma_index_xinfo", "pragma_table_info",
	"PRAGMA_Table_Xinfo", "Pragma_INDEX_list", "table_list", "table_xinfo", "index_list", "index_xinfo", "main", "temp", "schema",
	"cast", "json_each", "dbstat", "generate_series", "sqlite", "d", "pages", "x", "l", "s", "rowid"}

// oddNames have to be quoted, or look as if they ended a statement.
var oddNames = []string{"", " ", "a b", `"`, `""`, `a"b`, `");--`, "'", "it's", "[", "]", "a]b", "`", "main.t", "t(", "--", "/*", ";", "1", "1a", "$a", "?", "é", "\ufeffa", "a\ufeff",
	"\xff", "a\xfe\xff", "select", "table", "if", "not", "using", "a\nb", "tab\there", "K\u212a", "ſqlite_x", "İ", "null"}

// TestNamesOfTheReader: whatever tables are called, each is read, and its
// neighbours are.
func TestNamesOfTheReader(t *testing.T) {
	for _, enc := range []Encoding{UTF8, UTF16BE} {
		for _, name := range slices.Concat(reservedWords, oddNames) {
			if enc != UTF8 && strings.Contains(name, "\xff") {
				continue // no text of the encoding
			}
			for form, sql := range map[string]string{
				"table":   "CREATE TABLE " + quote(name) + "(a TEXT PRIMARY KEY, b REAL)",
				"keyed":   "CREATE TABLE " + quote(name) + "(b REAL, a TEXT, PRIMARY KEY(a)) WITHOUT ROWID",
				"view":    "CREATE VIEW " + quote(name) + " AS SELECT 1 AS a, 2 AS b",
				"virtual": "CREATE VIRTUAL TABLE " + quote(name) + " USING fts5(a)",
			} {
				e := Entry{Type: "table", Name: storedText(enc, name), Table: storedText(enc, name), Root: 9, SQL: storedText(enc, sql)}
				if enc == UTF8 {
					e.Name, e.SQL = []byte(name), []byte(sql)
				}
				if form == "view" || form == "virtual" {
					e.Root = 0
				}
				if form == "view" {
					e.Type = form
				}
				if e.Root == 0 && enc != UTF8 {
					continue // as in the other encoding: not shown to SQLite
				}
				entries := []Entry{e}
				for i, q := range []string{"CREATE TABLE n1(k INTEGER PRIMARY KEY, v TEXT)", "CREATE TABLE n2(v, k, PRIMARY KEY(k)) WITHOUT ROWID"} {
					n := storedText(enc, q[len("CREATE TABLE "):][:2])
					entries = append(entries, Entry{Type: "table", Name: n, Table: n, Root: uint32(i + 2), SQL: storedText(enc, q)})
				}
				s, err := new(Cache).Load(enc, entries)
				if err != nil {
					t.Fatalf("%v: a %s called %q: %v", enc, form, name, err)
				}
				if n1, n2 := s.ByName("n1"), s.ByName("n2"); n1 == nil || n1.Unreadable != "" || n1.Alias != 0 || n2 == nil || n2.Unreadable != "" || n2.KeyFields != 1 || !cmp.Equal(n2.Stored, []int{1, 0}) {
					t.Errorf("%v: beside a %s called %q: %+v, %+v", enc, form, name, n1, n2)
				}
				tab := s.ByName(name)
				switch form {
				case "table", "keyed":
					if tab == nil || tab.Unreadable != "" || len(tab.Columns) != 2 || tab.WithoutRowid != (form == "keyed") || tab.Alias != -1 || len(tab.Key) != 1 {
						t.Errorf("%v: a %s called %q: %+v", enc, form, name, tab)
					}
				default:
					if tab == nil || len(tab.Columns) > 0 || tab.Kind != View && tab.Kind != Virtual {
						t.Errorf("%v: a %s called %q: %+v", enc, form, name, tab)
					}
				}
			}
		}
	}
}

// TestTextsOfOthers: a text that makes something else than its own table says
// nothing of the table it makes, and is not run.
func TestTextsOfOthers(t *testing.T) {
	for _, sql := range []string{"CREATE TABLE t1(x, y)", "CREATE TABLE \"T1\"(x, y)", "CREATE TABLE t0.t1(x)", "CREATE TABLE IF NOT EXISTS t1(x, y)", "CREATE VIEW t1 AS SELECT 1 AS x",
		"CREATE  VIRTUAL TABLE t1 USING fts5(x)", "CREATE TABLE sqlite_stat1(tbl, idx, stat)", "CREATE TABLE sqlite_stat4(tbl, idx, neq, nlt, ndlt, sample)", "PRAGMA hard_heap_limit=1000", "PRAGMA writable_schema=OFF",
		"CREATE TRIGGER t1 AFTER INSERT ON t1 BEGIN SELECT 1; END", "CREATE INDEX t0 ON t1(a)", "ATTACH 'x' AS t1", "", "CREATE", "CREATE TABLE"} {
		own := "CREATE TABLE t1(a INTEGER PRIMARY KEY, b, c)"
		var c Cache // of a node with both databases and one of the good table alone
		for _, entries := range [][]Entry{tableRows(UTF8, sql, own), {tableRows(UTF8, "", own)[1], tableRows(UTF8, sql)[0]}, tableRows(UTF8, "", own)} {
			s, err := c.Load(UTF8, entries)
			if err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
			if tab := s.ByName("t0"); tab.Unreadable == "" || len(tab.Columns) > 0 {
				t.Errorf("%s: %+v", sql, tab)
			}
			if tab := s.ByName("t1"); tab.Unreadable != "" || len(tab.Columns) != 3 || tab.Alias != 0 {
				t.Errorf("beside %s: %+v", sql, tab)
			}
		}
	}
	limit := int64(-1)
	conn, err := openMemory(UTF8)
	if err != nil {
		t.Fatal(err)
	}
	err = sqlitex.ExecuteTransient(conn, "PRAGMA hard_heap_limit", &sqlitex.ExecOptions{ResultFunc: func(st *sqlite.Stmt) error { limit = st.ColumnInt64(0); return nil }})
	if err != nil || conn.Close() != nil || limit != 0 {
		t.Errorf("all of SQLite is kept to %d bytes by a text of a schema; %v", limit, err)
	}
}

// TestDefinedName puts words together at random. Where a text is said to make
// a table of a name, SQLite makes that one of it, or none.
func TestDefinedName(t *testing.T) {
	parts := []string{"CREATE", "create ", "TABLE", " ", " ", " ", "\t", "\n", "\v", "\f", "\r", "\x00", "\ufeff", "\u00a0", "/*", "*/", "/**/", "/*/", "--", "--x\n", "(", "(a)", "(a)", ")", ".", "main.", "TEMP", "IF", "NOT", "EXISTS", "IF NOT EXISTS", "'t'", `"t"`, "[t]", "`t`", `"a""b"`,
		"t", "u", "é", "$", "?", "1", "x'74'", "AS", "AS SELECT 1 AS a", "'", `"`, "[", "`", ";", "@", "\\", "#", "\xff", "\"\""}
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 7))
	named, made := 0, 0
	for range 20 {
		var tables []pending
		for range 50 {
			sql := "CREATE TABLE "
			if rnd.IntN(4) == 0 {
				sql = parts[0] + parts[3] + parts[rnd.IntN(len(parts))] + parts[2]
			}
			for range 1 + rnd.IntN(5) {
				sql += parts[rnd.IntN(len(parts))]
			}
			sql += []string{"", "(a)", "(a)"}[rnd.IntN(3)]
			tables = append(tables, pending{Table: &Table{SQL: sql}, entry: &Entry{SQL: []byte(sql)}})
		}
		for _, p := range tables {
			name, ok := definedName(p.SQL)
			if !ok {
				continue
			}
			named++
			p.entry.Name = []byte(name)
			for _, m := range tablesOf(t, p) {
				made++
				if m != name {
					t.Errorf("%q is said to make %q and makes %q", p.SQL, name, m)
				}
			}
		}
	}
	if named == 0 || made == 0 {
		t.Errorf("%d texts named a table, SQLite made %d of them (seed %d)", named, made, seed)
	}
}

// tablesOf are the tables that SQLite makes of a text.
func tablesOf(t *testing.T, p pending) (names []string) {
	t.Helper()
	r, err := newReader(UTF8)
	if err == nil {
		err = r.fill([]pending{p})
	}
	if err == nil {
		err = r.pragma("table_list", "", func(st *sqlite.Stmt) error {
			if name := st.ColumnText(1); name != "sqlite_schema" {
				names = append(names, name)
			}
			return nil
		})
	}
	if err == nil {
		err = r.close()
	}
	if err != nil {
		t.Fatalf("%q: %v", p.SQL, err)
	}
	return names
}

// TestReadAlone: a table is described alike whatever is read with it, what is
// remembered, and which indexes the schema has.
func TestReadAlone(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 8))
	var c Cache
	for range 12 {
		var sql []string
		for i := range 1 + rnd.IntN(12) {
			sql = append(sql, randomTable(rnd, fmt.Sprintf("t%d", i)))
		}
		entries := tableRows(UTF8, sql...)
		indexes := slices.Clone(entries)
		for i := range entries {
			name := fmt.Appendf(nil, "sqlite_autoindex_t%d_1", i)
			indexes = append(indexes, Entry{Type: "index", Name: name, Table: entries[i].Name, Root: uint32(100 + i)})
		}
		all, err := new(Cache).Load(UTF8, entries)
		if err != nil {
			t.Fatal(err)
		}
		for name, with := range map[string]func() (*Schema, error){
			"with indexes": func() (*Schema, error) { return new(Cache).Load(UTF8, indexes) },
			"remembered":   func() (*Schema, error) { return c.Load(UTF8, entries) },
		} {
			other, err := with()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(all.Tables, other.Tables); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
		for i := range entries {
			alone, err := new(Cache).Load(UTF8, entries[i:i+1])
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(all.Tables[i], alone.Tables[0]); d != "" {
				t.Errorf("alone: %s", d)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// randomTable makes a CREATE TABLE text, now and then a wrong one.
func randomTable(rnd *rand.Rand, name string) string {
	pick := func(s ...string) string { return s[rnd.IntN(len(s))] }
	var columns []string
	for i := range 1 + rnd.IntN(5) {
		columns = append(columns, fmt.Sprintf("c%d %s %s %s", i, pick("", "INT", "INTEGER", "TEXT", "REAL", "BLOB", "ANY", "DECIMAL"),
			pick("", "", "NOT NULL", "UNIQUE", "COLLATE NOCASE", "COLLATE klingon", "REFERENCES t1(c0)"), pick("", "", "DEFAULT 5", "DEFAULT 'x'", "DEFAULT (nofunc())", "AS (c0)", "CHECK(c0)")))
	}
	key := pick("", "", ", PRIMARY KEY(c0)", ", PRIMARY KEY(c0 DESC)", ", PRIMARY KEY(c1, c0)", ", UNIQUE(c0)", ", PRIMARY KEY(c0), UNIQUE(c0, c0)", ", PRIMARY KEY(c0")
	return "CREATE TABLE " + name + "(" + strings.Join(columns, ", ") + key + ")" + pick("", "", " WITHOUT ROWID", " STRICT", " nonsense")
}

// TestFoldedNames: names are compared without case in ASCII alone.
func TestFoldedNames(t *testing.T) {
	for sql, want := range map[string]string{
		"CREATE VIRTUAL TABLE uſing USING fts5(x)": "fts5",
		"CREATE VIRTUAL TABLE a uSiNg FTS5(x)":     "FTS5",
	} {
		if got := moduleOf(sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
	row := func(name, sql string, root uint32) Entry {
		return Entry{Type: "table", Name: []byte(name), Table: []byte(name), Root: root, SQL: []byte(sql)}
	}
	s, err := new(Cache).Load(UTF8, []Entry{
		row("É", "CREATE VIRTUAL TABLE É USING fts5(x)", 0),
		row("Docs", "CREATE VIRTUAL TABLE Docs USING FTS5(x)", 0),
		row("é_content", "CREATE TABLE é_content(a)", 2),
		row("É_content", "CREATE TABLE É_content(a)", 3),
		row("dOCS_conTENT", "CREATE TABLE dOCS_conTENT(a)", 4),
		row("docſ_content", "CREATE TABLE docſ_content(a)", 5),
		row("ſqlite_stat1", "CREATE TABLE ſqlite_stat1(a)", 6),
		row("SQLITE_STAT1", "CREATE TABLE SQLITE_STAT1(tbl,idx,stat)", 7),
		row("sqlite_sequence", "CREATE TABLE sqlite_sequence(name,seq)", 8),
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Kind{"é_content": Ordinary, "É_content": Shadow, "dOCS_conTENT": Shadow, "docſ_content": Ordinary, "ſqlite_stat1": Ordinary, "SQLITE_STAT1": Internal, "sqlite_sequence": Ordinary} {
		if tab := s.ByName(name); tab == nil || tab.Kind != want || tab.Unreadable != "" {
			t.Errorf("%s: %+v, want a %v", name, tab, want)
		}
	}
	s, err = new(Cache).Load(UTF8, []Entry{row("t", "CREATE TABLE t(a)", 2), row("T", "CREATE TABLE T(a)", 3), row("é", "CREATE TABLE é(a)", 4), row("É", "CREATE TABLE É(a)", 5)})
	if err != nil {
		t.Fatal(err)
	}
	for name, readable := range map[string]bool{"t": true, "T": false, "é": true, "É": true} {
		if tab := s.ByName(name); (tab.Unreadable == "") != readable {
			t.Errorf("%s: %+v", name, tab)
		}
	}
}
