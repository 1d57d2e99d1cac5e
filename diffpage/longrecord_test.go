package diffpage

import (
	"bytes"
	"testing"
)

// declare has the schema give a table another text, and nothing else change.
func declare(table, sql string) string {
	return "PRAGMA writable_schema=ON; UPDATE sqlite_schema SET sql='" + sql + "' WHERE name='" + table + "'; PRAGMA writable_schema=RESET"
}

// rowPages are the pages behind the schema's, as of the last unit.
func rowPages(src *source) []byte { return bytes.Clone(src.last[pageSizeOf(src.last):]) }

// TestLongRecords takes the last column out of declarations whose rows keep
// the field. SELECT reads what is left, a change behind it is no change, and
// tables beside it go on.
func TestLongRecords(t *testing.T) {
	for _, c := range []struct{ name, full, short, rows string }{
		{"rowid", "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)", "CREATE TABLE t(id INTEGER PRIMARY KEY, a)", "(1,2,3),(2,3,4),(3,4,5)"},
		{"no alias", "CREATE TABLE t(id, a, b)", "CREATE TABLE t(id, a)", "(1,2,3),(2,3,4),(3,4,5)"},
		{"without rowid", "CREATE TABLE t(a, id PRIMARY KEY, b) WITHOUT ROWID", "CREATE TABLE t(a, id PRIMARY KEY) WITHOUT ROWID", "(2,1,3),(3,2,4),(4,3,5)"},
		{"texts", "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)", "CREATE TABLE t(id INTEGER PRIMARY KEY, a)", "(1,2,hex(zeroblob(40))),(2,3,hex(zeroblob(50))),(3,4,5)"},
		{"overflow", "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)", "CREATE TABLE t(id INTEGER PRIMARY KEY, a)", "(1,2,zeroblob(30000)),(2,3,zeroblob(20000)),(3,4,5)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := newSource(t)
			f := newFollower(t, src)
			f.replica = newReplica(t, "UTF-8")
			src.exec(c.full, "CREATE TABLE o(x)", "INSERT INTO t VALUES"+c.rows)
			f.step()
			src.exec(declare("t", c.short), "INSERT INTO o VALUES(1)")
			if got := f.step(); count(got["o"]) != "1I 0U 0D" {
				t.Errorf("the neighbour has %v", got["o"])
			}
			if !sound(src.conn) {
				t.Fatal("SQLite calls this broken, which is not the case to test")
			}
			was := rowPages(src)
			// A value behind the last column, of the same length as before.
			src.exec(declare("t", c.full), "UPDATE t SET b=CASE typeof(b) WHEN 'integer' THEN b+1 WHEN 'text' THEN replace(b,'0','1') ELSE CAST(substr(b,1,length(b)-1)||'x' AS BLOB) END", declare("t", c.short))
			if got := f.step(); len(got["t"]) > 0 || bytes.Equal(was, rowPages(src)) {
				t.Errorf("a change of what nobody reads is %v", got["t"])
			}
			src.exec("UPDATE t SET a=a+1 WHERE id=2", "INSERT INTO t(id,a) VALUES(9,9)", "DELETE FROM t WHERE id=3")
			if got := f.step(); count(got["t"]) != "1I 1U 1D" {
				t.Errorf("%v", got["t"])
			}
		})
	}
}

// TestValueUnderAlias gives rows a value where the rowid stands for it, which
// nobody reads either.
func TestValueUnderAlias(t *testing.T) {
	const alias, plain = "CREATE TABLE t(a, id INTEGER PRIMARY KEY, b)", "CREATE TABLE t(a, id INTEGER, b)"
	src := newSource(t)
	f := newFollower(t, src)
	src.exec(plain, "INSERT INTO t VALUES(1,10,'x'),(2,20,'y')", declare("t", alias))
	f.step()
	was := rowPages(src)
	src.exec(declare("t", plain), "UPDATE t SET id=id+1", declare("t", alias))
	if got := f.step(); len(got["t"]) > 0 || bytes.Equal(was, rowPages(src)) {
		t.Errorf("a change under the rowid is %v", got["t"])
	}
	src.exec("UPDATE t SET b='z' WHERE id=1")
	if got := f.step(); count(got["t"]) != "0I 1U 0D" {
		t.Errorf("%v", got["t"])
	}
}

// TestBrokenBehindColumns breaks what follows the last column: SELECT does not
// get there. Broken in a column that is read, it is an error.
func TestBrokenBehindColumns(t *testing.T) {
	src := newSource(t)
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)", "INSERT INTO t VALUES(1,7,200)")
	f.step()
	src.exec(declare("t", "CREATE TABLE t(id INTEGER PRIMARY KEY, a)"))
	f.step()
	record := []byte{4, 0, 1, 2, 7, 0, 200}
	at := bytes.LastIndex(src.last, record)
	if at < 0 {
		t.Fatal("the row is not where it is expected")
	}
	image := bytes.Clone(src.last)
	image[at+3] = 10 // a type that no value has
	src.reopen(image)
	f.step()
	image = bytes.Clone(src.last)
	image[at+2] = 10
	src.reopen(image)
	images, commit := src.unit()
	if c, err := f.base.Diff(images, commit); err == nil {
		if err = c.Rows("t", readRow); !errorIs(err, ErrCorrupt) {
			t.Errorf("a column of no type is %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
