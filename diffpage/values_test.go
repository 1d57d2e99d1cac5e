package diffpage

import (
	"fmt"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"celldexport/diffpage/schema"
)

// lines are the values of the rows of a table, as the base reads them.
func lines(t *testing.T, f *follower, name string) string {
	t.Helper()
	var out []string
	tab := f.base.Schema().ByName(name)
	if tab == nil {
		t.Fatalf("no table %q", name)
	}
	err := f.base.Scan(name, func(_ Op, _, r Row) error {
		_, vals, err := rowText(tab, r)
		out = append(out, vals)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

func text16(s string) string { return fmt.Sprintf("t%x", s) }

// TestShortRecords is DIFF-01: rows older than a column read as its default,
// with the column's affinity.
func TestShortRecords(t *testing.T) {
	for _, enc := range []string{"UTF-8", "UTF-16le"} {
		t.Run(enc, func(t *testing.T) {
			src := newSource(t, "PRAGMA encoding='"+enc+"'")
			f := newFollower(t, src)
			src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, a)", "INSERT INTO t VALUES(1,'old')")
			f.step()
			for _, c := range []string{"d TEXT DEFAULT 'it''s'", "e INT DEFAULT -5", "f REAL DEFAULT 1", "g DEFAULT (x'00ff')", "h DEFAULT 0x10", "i DEFAULT true", "j DEFAULT word", "k TEXT DEFAULT 5", "l"} {
				src.exec("ALTER TABLE t ADD COLUMN " + c)
				f.step()
			}
			if enc == "UTF-8" {
				want := strings.Join([]string{"i1", text16("old"), text16("it's"), "i-5", "r3ff0000000000000", "b00ff", "i16", "i1", text16("word"), text16("5"), "n"}, "|")
				if got := lines(t, f, "t"); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			}
			src.exec("INSERT INTO t(id) VALUES(2)")
			f.step()
			src.exec("UPDATE t SET a='new' WHERE id=1")
			if got := f.step()["t"]; count(got) != "0I 1U 0D" {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestNumbers is DIFF-02: integers stored in REAL columns are reals, integers
// elsewhere are exact.
func TestNumbers(t *testing.T) {
	src := newSource(t)
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, r REAL, n NUMERIC, b)",
		"INSERT INTO t VALUES(1,3.0,3.0,3.0),(2,1e15,'1e3',-0.0),(3,9007199254740993,9223372036854775807,9223372036854775807),(4,5e-324,'9223372036854775808',1.7976931348623157e308)")
	f.step()
	want := "i1|r4008000000000000|i3|r4008000000000000\ni2|r430c6bf526340000|i1000|r8000000000000000\n" +
		"i3|r4340000000000000|i9223372036854775807|i9223372036854775807\ni4|r0000000000000001|r43e0000000000000|r7fefffffffffffff"
	if got := lines(t, f, "t"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTexts is DIFF-03 and DIFF-04: NUL, invalid sequences and lone
// surrogates keep every byte, and keys that differ in them stay apart.
func TestTexts(t *testing.T) {
	for _, enc := range []string{"UTF-8", "UTF-16le", "UTF-16be"} {
		t.Run(enc, func(t *testing.T) {
			src := newSource(t, "PRAGMA encoding='"+enc+"'")
			f := newFollower(t, src)
			src.exec(`CREATE TABLE "té😀"(id INTEGER PRIMARY KEY, b)`, "CREATE TABLE w(k TEXT PRIMARY KEY) WITHOUT ROWID")
			for i, v := range []string{"x'610062'", "x'ff41c3'", "x'fe41c3'", "x'eda080'", "x'00d8'", "x'd800'", "x'3dd800de'", "x''", "x'e280a8'"} {
				src.exec(fmt.Sprintf(`INSERT INTO "té😀" VALUES(%d, CAST(%s AS TEXT))`, i, v), fmt.Sprintf("INSERT INTO w VALUES(CAST(%s AS TEXT))", v))
				if got := f.step(); count(got["w"]) != "1I 0U 0D" || count(got["té😀"]) != "1I 0U 0D" {
					t.Errorf("%s: %v", v, got)
				}
			}
			if f.base.Schema().Encoding.String() != enc {
				t.Errorf("encoding %v", f.base.Schema().Encoding)
			}
			src.exec("DELETE FROM w WHERE k=CAST(x'ff41c3' AS TEXT)")
			if got := f.step()["w"]; count(got) != "0I 0U 1D" {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestKeys is DIFF-05: what is the rowid and what only looks like it.
func TestKeys(t *testing.T) {
	src := newSource(t)
	f := newFollower(t, src)
	src.exec("CREATE TABLE a(id INTEGER PRIMARY KEY DESC, v)", "INSERT INTO a VALUES(5,'x'),(NULL,'y'),(NULL,'z')",
		"CREATE TABLE b(id INT PRIMARY KEY, v)", "INSERT INTO b VALUES(NULL,1),(NULL,2)",
		"CREATE TABLE c(id INTEGER, v, PRIMARY KEY(id DESC))", "INSERT INTO c VALUES(-1,1),(0,2),(9223372036854775807,3),(-9223372036854775808,4)",
		"CREATE TABLE d(rowid, oid, _rowid_ INTEGER PRIMARY KEY)", "INSERT INTO d VALUES('r','o',7)",
		"CREATE TABLE e(a, b, c, PRIMARY KEY(c,a))", "CREATE TABLE g(a integer primary key)")
	f.step()
	for name, alias := range map[string]int{"a": -1, "b": -1, "c": 0, "d": 2, "e": -1, "g": 0} {
		if got := f.base.Schema().ByName(name).Alias; got != alias {
			t.Errorf("table %s: alias %d, want %d", name, got, alias)
		}
	}
	if got := lines(t, f, "a"); got != "i5|t78\nn|t79\nn|t7a" {
		t.Errorf("a: %s", got)
	}
	if got := lines(t, f, "c"); got != "i-9223372036854775808|i4\ni-1|i1\ni0|i2\ni9223372036854775807|i3" {
		t.Errorf("c: %s", got)
	}
	if got := lines(t, f, "d"); got != "t72|t6f|i7" {
		t.Errorf("d: %s", got)
	}
	if got := fmt.Sprint(f.base.Schema().ByName("e").Key); got != "[2 0]" {
		t.Errorf("e: key %s", got)
	}
}

// TestSpill is DIFF-06: every length around the limits of what stays on a
// page, headers that overflow, long keys, long CREATE texts, reserved bytes.
func TestSpill(t *testing.T) {
	for _, c := range []struct{ size, reserved int }{{512, 0}, {4096, 0}, {65536, 0}, {1024, 32}, {512, 8}} {
		t.Run(fmt.Sprintf("%d bytes, %d reserved", c.size, c.reserved), func(t *testing.T) {
			var pragmas []string
			if c.reserved == 0 {
				pragmas = []string{fmt.Sprintf("PRAGMA page_size=%d", c.size)}
			}
			src := newSource(t, pragmas...)
			if c.reserved > 0 {
				src.reopen(reservedImage(t, c.size, c.reserved))
			}
			f := newFollower(t, src)
			cols := make([]string, 700)
			for i := range cols {
				cols[i] = fmt.Sprintf("c%d", i)
			}
			src.exec("CREATE TABLE wide("+strings.Join(cols, ",")+")", "INSERT INTO wide(c0,c699) VALUES(1,2)",
				"CREATE TABLE t(id INTEGER PRIMARY KEY, b)", "CREATE TABLE w(k BLOB PRIMARY KEY, x) WITHOUT ROWID",
				"CREATE TABLE long(x /* "+strings.Repeat("long ", 1000)+"*/)")
			f.step()
			limit := c.size - c.reserved
			for _, around := range []int{440, 960, limit, limit / 4, limit * 2} {
				src.exec(insert("t", 90, fmt.Sprintf("NULL, zeroblob(max(0,%d-50+i))", around)), fmt.Sprintf("INSERT OR REPLACE INTO w %s", numbers(90, fmt.Sprintf("zeroblob(max(0,%d-50+i)), i", around))))
				f.step()
			}
			src.exec("UPDATE t SET b=CAST(b||'x' AS BLOB)", "UPDATE w SET x=x+1", "UPDATE wide SET c350='now'", "INSERT INTO long VALUES(1)")
			got := f.step()
			if count(got["wide"]) != "0I 1U 0D" || count(got["long"]) != "1I 0U 0D" {
				t.Errorf("wide %s, long %s", count(got["wide"]), count(got["long"]))
			}
			src.exec("DELETE FROM t WHERE id%2=0", "DELETE FROM w WHERE length(k)%3=0", "VACUUM")
			f.step()
		})
	}
}

// TestGenerated is DIFF-09: a virtual column has no place in the record.
func TestGenerated(t *testing.T) {
	src := newSource(t)
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, v INT AS (a*2) VIRTUAL, s INT AS (a*3) STORED, z)", "INSERT INTO t VALUES(1,5,'z')")
	f.step()
	src.exec("UPDATE t SET z='y'")
	if got := fmt.Sprint(f.step()["t"]); got != "[U 1 [i1|i5|n|i15|t7a] [i1|i5|n|i15|t79]]" {
		t.Error(got)
	}
}

// TestDeclarations is DIFF-10: columns, keys and options are what SQLite says
// of the same file, whatever the text looks like.
func TestDeclarations(t *testing.T) {
	src := newSource(t)
	f := newFollower(t, src)
	src.exec(`CREATE TABLE "we""ird, (t) -- x"("a,b" text, [c d] int, `+"`e``f`"+` real, 'g' blob, "primary" int, primary key("a,b"))`,
		"CREATE TABLE c2(/* id INTEGER PRIMARY KEY, */ a text -- , b int\n, b int CHECK(b > 0 AND a <> ') WITHOUT ROWID'), CONSTRAINT pk PRIMARY KEY(a))",
		"CREATE TABLE x AS SELECT 1 AS x, 'q' AS y", "CREATE TABLE k(k INTEGER PRIMARY KEY ON CONFLICT REPLACE AUTOINCREMENT)",
		"CREATE TABLE s1(a INT PRIMARY KEY, b ANY) STRICT, WITHOUT ROWID", "CREATE TABLE s2(a INT PRIMARY KEY, b ANY) WITHOUT ROWID, STRICT",
		"CREATE TABLE Kv(a)", "CREATE TABLE sqlit_e(a)", `CREATE TABLE p(a, b, c, PRIMARY KEY(c,a), UNIQUE(b))`)
	src.exec("INSERT INTO s1 VALUES(1,'1'),(2,1.0),(3,1)", `INSERT INTO "we""ird, (t) -- x" VALUES('a',1,2,'b',3)`, "INSERT INTO x VALUES(2,'r')")
	f.step()
	for _, tab := range f.base.Schema().Tables {
		var want []string
		err := sqlitex.ExecuteTransient(src.conn, "SELECT name, type, pk, hidden, \"notnull\" FROM pragma_table_xinfo(?1)", &sqlitex.ExecOptions{
			Args: []any{tab.Name}, ResultFunc: func(st *sqlite.Stmt) error {
				want = append(want, fmt.Sprint(st.ColumnText(0), "/", st.ColumnText(1), "/", st.ColumnInt(2), "/", st.ColumnInt(3), "/", st.ColumnBool(4)))
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range tab.Columns {
			got = append(got, fmt.Sprint(c.Name, "/", c.Type, "/", c.PK, "/", c.Hidden, "/", c.NotNull))
		}
		if len(want) == 0 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("table %s:\n got %v\nwant %v", tab.Name, got, want)
		}
	}
	if s := f.base.Schema().ByName("s2"); !s.Strict || !s.WithoutRowid {
		t.Errorf("s2: %+v", s)
	}
	if s := f.base.Schema().ByName("c2"); s.WithoutRowid {
		t.Errorf("c2: %+v", s)
	}
	if got := lines(t, f, "s1"); got != "i1|t31\ni2|r3ff0000000000000\ni3|i1" {
		t.Errorf("s1: %s", got)
	}
}

// TestUnreadable is a table that our SQLite does not understand: it is named
// with a reason, its changes are noticed, and the others go on.
func TestUnreadable(t *testing.T) {
	src := newSource(t)
	f := newFollower(t, src)
	src.exec("CREATE TABLE odd(a)", "CREATE TABLE t(a)", "INSERT INTO odd VALUES(1)")
	f.step()
	src.exec("PRAGMA writable_schema=ON", "UPDATE sqlite_schema SET sql='CREATE TABLE odd(a FROM THE FUTURE (' WHERE name='odd'",
		"INSERT INTO odd VALUES(2)", "INSERT INTO t VALUES(3)")
	images, commit := src.unit()
	c, err := f.base.Diff(images, commit)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	odd := c.After().ByName("odd")
	if odd == nil || odd.Unreadable == "" || len(odd.Columns) > 0 || !c.Touched("odd") {
		t.Fatalf("odd: %+v, touched %v", odd, c.Touched("odd"))
	}
	t.Log(odd.Unreadable)
	for _, err := range []error{c.Rows("odd", nil), c.Scan("odd", nil)} {
		if !errorIs(err, ErrUnreadable) {
			t.Errorf("error %v", err)
		}
	}
	if got := count(rows(t, c, "t")); got != "1I 0U 0D" {
		t.Errorf("t: %s", got)
	}
	if err := c.Rows("nobody", nil); !errorIs(err, ErrNoTable) {
		t.Errorf("error %v", err)
	}
	if c.After().ByName("t").Kind != schema.Ordinary {
		t.Error("t is no table")
	}
}
