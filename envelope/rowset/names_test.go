package rowset

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Names that SQLite keeps apart stay apart, whatever bytes they hold.
func TestNamesThatAreNotUTF8(t *testing.T) {
	r := newBlind(t,
		"CREATE TABLE \"a\xff\"(id INTEGER PRIMARY KEY, v)", "INSERT INTO \"a\xff\" VALUES(1,'ff')",
		"CREATE TABLE \"a\xfe\"(id INTEGER PRIMARY KEY, v)", "INSERT INTO \"a\xfe\" VALUES(2,'fe')",
		"CREATE TABLE \"a\uFFFD\"(id INTEGER PRIMARY KEY, v)", "INSERT INTO \"a\uFFFD\" VALUES(3,'fffd')",
		"CREATE TABLE \"a\uFFFDff\"(id INTEGER PRIMARY KEY, v)", "INSERT INTO \"a\uFFFDff\" VALUES(4,'fffd ff')",
		"CREATE TABLE cols(\"k\xff\" PRIMARY KEY, \"c\xff\", \"c\xfe\", \"c\uFFFD\")", "INSERT INTO cols VALUES('k',1,2,3)")
	first := strings.Join(r.unit(), "\n")
	for _, name := range []string{"a\xff", "a\xfe", "a\uFFFD", "a\uFFFDff"} {
		if want := map[string]string{"a\xff": "a\uFFFDff", "a\xfe": "a\uFFFDfe", "a\uFFFD": "a\uFFFD\uFFFD", "a\uFFFDff": "a\uFFFD\uFFFDff"}[name]; written(name) != want {
			t.Errorf("%q is written as %q, want %q", name, written(name), want)
		}
	}
	if want := "\"columns\":[\"k\uFFFDff\",\"c\uFFFDff\",\"c\uFFFDfe\",\"c\uFFFD\uFFFD\"],\"key_columns\":[\"k\uFFFDff\"]"; !strings.Contains(first, want) {
		t.Errorf("no record has %s:\n%s", want, first)
	}
	if want := "{\"name\":\"c\uFFFDfe\","; !strings.Contains(first, want) {
		t.Errorf("no schema record has %s:\n%s", want, first)
	}
	r.unit("DELETE FROM \"a\xfe\"", "INSERT INTO \"a\xff\" VALUES(5,'more')", "ALTER TABLE \"a\uFFFD\" RENAME TO \"b\xff\"")
	r.holds("a\uFFFDff", `[1][1,"ff"]`, `[5][5,"more"]`)
	r.holds("a\uFFFDfe")
	r.holds("a\uFFFD\uFFFDff", `[4][4,"fffd ff"]`)
	r.holds("b\uFFFDff", `[3][3,"fffd"]`)
	r.holds("cols", `["k"]["k",1,2,3]`)
	// An end carries the SQL text of the table of this name, and of no other.
	last := strings.Join(r.unit("DROP TABLE \"a\xff\""), "\n")
	if !strings.Contains(last, "\"table\":\"a\uFFFDff\",\"generation\":1,\"sql\":\"CREATE TABLE ") || strings.Count(last, `"dropped":true`) != 1 {
		t.Errorf("the drop is told as %s", last)
	}
	r.holds("a\uFFFD\uFFFDff", `[4][4,"fffd ff"]`)
}

// The deny list names tables as they are exported.
func TestDenyNameThatIsNotUTF8(t *testing.T) {
	s := newTape(t, "CREATE TABLE \"a\xff\"(x)", "CREATE TABLE \"a\xfe\"(x)")
	s.opt.Deny = func(name string) bool { return name == "a\uFFFDff" }
	got := strings.Join(s.bodies(), "\n")
	if strings.Contains(got, "a\uFFFDff") || !strings.Contains(got, "a\uFFFDfe") {
		t.Errorf("with one of two denied: %s", got)
	}
}

// FuzzName holds that a name is valid when written and comes back.
func FuzzName(f *testing.F) {
	for _, s := range []string{"t", "a\xff", "\uFFFD", "\xef\xbf", "\uFFFDff", "\xed\xa0\x80", "\xff\uFFFDff\xfe", "kv", "_cf_KV"} {
		f.Add(s, "a\uFFFD")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		w := written(a)
		if !utf8.ValidString(w) || unwritten(w) != a {
			t.Errorf("%q is written as %q, which stands for %q", a, w, unwritten(w))
		}
		if a != b && w == written(b) {
			t.Errorf("%q and %q are both written as %q", a, b, w)
		}
		if name, ok := ExportedName(a); ok && storedName(name) != a {
			t.Errorf("%q is exported as %q, which stands for %q", a, name, storedName(name))
		}
		_ = unwritten(b) // what nobody wrote is no reason to fail
	})
}

// SQLite folds the letters of ASCII and no others.
func TestFoldedAsSQLiteDoes(t *testing.T) {
	for stored, reserved := range map[string]bool{"ſqlite_x": false, "SQLite_x": true, "_litestream_x": true, "_liteſtream_x": false, "_cf_x": true} {
		if _, ok := ExportedName(stored); ok == reserved {
			t.Errorf("%q is reserved: %v, want %v", stored, !ok, reserved)
		}
	}
	d := newDatabase(t, `CREATE TABLE ſqlite_x(x)`)
	d.query(`SELECT count(*) FROM "ſQLITE_x"`, func(func(...any)) {}) // SQLite finds it under any case of ASCII
	// A column whose name has a Kelvin sign is none that celld has.
	s := newTape(t, "CREATE TABLE __kv(key TEXT PRIMARY KEY, blob_id TEXT, \"blob_\u212Aey\" TEXT)", `INSERT INTO __kv VALUES('a','0123','x')`)
	if got := strings.Join(s.unit(), "\n"); !strings.Contains(got, "\"columns\":[\"key\",\"blob_id\",\"blob_\u212Aey\",\"blob_key\"]") {
		t.Errorf("the column blob_key is missing: %s", got)
	}
	s = newTape(t, `CREATE TABLE t("rowıd", "_ROWID_", x)`, `INSERT INTO t VALUES('a','b','c')`)
	if got := strings.Join(s.unit(), "\n"); !strings.Contains(got, `"key_columns":["rowid"]`) {
		t.Errorf("a column called rowıd hides no rowid: %s", got)
	}
	s = newTape(t, `CREATE TABLE t("ROWID", "_ROWID_", x)`)
	if got := strings.Join(s.unit(), "\n"); !strings.Contains(got, `"key_columns":["oid"]`) {
		t.Errorf("columns called rowid and _rowid_ in capitals hide both: %s", got)
	}
}
