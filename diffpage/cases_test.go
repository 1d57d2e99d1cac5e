package diffpage

import (
	"fmt"
	"strings"
	"testing"

	"celldexport/diffpage/schema"
)

// numbers is a SELECT of i from 1 to n.
func numbers(n int, sel string) string {
	return fmt.Sprintf("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%d) SELECT %s FROM n", n, sel)
}

func insert(table string, n int, sel string) string {
	return "INSERT INTO " + table + " " + numbers(n, sel)
}

// tx makes statements one commit.
func tx(sql ...string) []string { return append(append([]string{"BEGIN"}, sql...), "COMMIT") }

// count says what the events of one table are.
func count(events []event) string {
	var n [3]int
	for _, e := range events {
		n[e.op]++
	}
	return fmt.Sprintf("%dI %dU %dD", n[Insert], n[Update], n[Delete])
}

// sized is a number of rows, and a tenth of it in a short run.
func sized(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// TestCases runs each case as units against all oracles of follower.step and
// says how many rows of which table the last unit must show, so that an
// oracle that looks away is noticed.
func TestCases(t *testing.T) {
	const pk = "CREATE TABLE t(id INTEGER PRIMARY KEY, b)"
	cases := []struct {
		name    string
		pragmas []string
		setup   []string // each a unit
		unit    []string
		want    map[string]string
		pages   int // of the last unit, when it is the point of the case
		// shows checks that the last unit does to pages what the case is about.
		shows func(t *testing.T, was, is *layout)
	}{
		{name: "01 update of an overflow page alone",
			setup: []string{pk, "INSERT INTO t VALUES(1,randomblob(20000)),(2,'x')"},
			unit:  []string{"UPDATE t SET b=CAST(substr(b,1,19990)||'0123456789' AS BLOB) WHERE id=1"}, pages: 1,
			want: map[string]string{"t": "0I 1U 0D"}},
		{name: "02 overflow update and a split of the leaf",
			setup: []string{pk, insert("t", 3, "i, randomblob(900)"), "INSERT INTO t VALUES(10,randomblob(20000))"},
			unit:  tx("UPDATE t SET b=CAST(substr(b,1,19990)||'0123456789' AS BLOB) WHERE id=10", "INSERT INTO t VALUES(5,randomblob(900)),(6,randomblob(900))"),
			want:  map[string]string{"t": "2I 1U 0D"}},
		{name: "03 shift of dense rowids",
			setup: []string{pk, insert("t", 100, "i, 'v'||i")},
			unit:  tx("UPDATE t SET id=-id-1", "UPDATE t SET id=-id"),
			want:  map[string]string{"t": "1I 99U 1D"}},
		{name: "04 incremental vacuum moves overflow pages", pragmas: []string{"PRAGMA auto_vacuum=2"},
			setup: []string{pk, "INSERT INTO t VALUES(1,randomblob(8300)),(2,'x'),(3,randomblob(29700))", "DELETE FROM t WHERE id=1"},
			unit:  []string{"PRAGMA incremental_vacuum(5)"},
			shows: atLeastOne("overflow pages that moved below a leaf that did not change", func(_ *testing.T, was, is *layout) int { return is.unmovedAboveMoved(was, "t") })},
		{name: "04 and pages of all kinds", pragmas: []string{"PRAGMA auto_vacuum=2"},
			setup: []string{pk, insert("t", 5, "i, randomblob(9000)"), insert("t", 3, "i+10, randomblob(30000)"), "DELETE FROM t WHERE id<4"},
			unit:  []string{"PRAGMA incremental_vacuum"}},
		{name: "05 append until an interior page splits", pragmas: []string{"PRAGMA page_size=512"},
			setup: []string{pk, insert("t", 300, "i, hex(zeroblob(20))")},
			unit:  []string{insert("t", 1800, "i+300, hex(zeroblob(20))")},
			want:  map[string]string{"t": "1800I 0U 0D"}, shows: depths("t", 2, 3)},
		{name: "06 a one-page table gets a second level",
			setup: []string{pk, insert("t", 9, "i, hex(zeroblob(50))")},
			unit:  []string{"INSERT INTO t VALUES(100,hex(zeroblob(50)))"},
			want:  map[string]string{"t": "1I 0U 0D"}, shows: depths("t", 1, 2)},
		{name: "07 three levels fall into the root", pragmas: []string{"PRAGMA page_size=512"},
			setup: []string{pk, insert("t", 3000, "i, 'row '||i")},
			unit:  []string{"DELETE FROM t WHERE id NOT IN (7,2999)"},
			want:  map[string]string{"t": "0I 0U 2998D"}, shows: depths("t", 3, 1)},
		{name: "07 sqlite_schema gets two levels at once", pragmas: []string{"PRAGMA page_size=512"},
			setup: manyTables(0, 1), unit: tx(manyTables(1, 100)...), shows: depths(schemaTable, 1, 3)},
		{name: "07 three levels of sqlite_schema fall into the root", pragmas: []string{"PRAGMA page_size=512"},
			setup: manyTables(0, 100), unit: dropTables(99), shows: depths(schemaTable, 3, 1)},
		{name: "08 bare DELETE", pragmas: []string{"PRAGMA page_size=4096", "PRAGMA secure_delete=0"},
			setup: []string{pk, insert("t", sized(100_000), "i, 'row '||i")},
			unit:  []string{"DELETE FROM t"}, pages: 3,
			want: map[string]string{"t": fmt.Sprintf("0I 0U %dD", sized(100_000))}},
		{name: "09 DROP and CREATE of another kind at the same root",
			setup: []string{"CREATE TABLE b(x)", insert("b", 10, "i")},
			unit:  tx("DROP TABLE b", "CREATE TABLE z(k PRIMARY KEY, x) WITHOUT ROWID", "INSERT INTO z VALUES(1,2)"),
			want:  map[string]string{"b": "0I 0U 10D", "z": "1I 0U 0D"}},
		{name: "09 the same name",
			setup: []string{"CREATE TABLE b(k PRIMARY KEY, x)", insert("b", 10, "i, i")},
			unit:  tx("DROP TABLE b", "CREATE TABLE b(k PRIMARY KEY, x) WITHOUT ROWID", "INSERT INTO b VALUES(1,1)"),
			want:  map[string]string{"b": "1I 0U 10D"}},
		{name: "10 drop and recreate with the same rows",
			setup: []string{pk, "CREATE TABLE keep(id INTEGER PRIMARY KEY, b)", insert("t", 100, "i, i"), "INSERT INTO keep SELECT * FROM t"},
			unit:  tx("DROP TABLE t", pk, "INSERT INTO t SELECT * FROM keep")},
		{name: "11 one table takes the freed pages of another",
			setup: []string{"CREATE TABLE u(x)", "CREATE TABLE v(x)", insert("u", 200, "hex(zeroblob(i))")},
			unit:  tx("DELETE FROM u WHERE rowid>20", insert("v", 150, "hex(zeroblob(i+50))")),
			want:  map[string]string{"u": "0I 0U 180D", "v": "150I 0U 0D"},
			shows: atLeastOne("pages of u that became those of v", func(_ *testing.T, was, is *layout) int { return is.taken(was, "u", "v") })},
		{name: "12 rows that come and go within a unit",
			setup: []string{pk, insert("t", 10, "i, i")},
			unit:  tx(insert("t", 500, "i+100, hex(zeroblob(100))"), "DELETE FROM t WHERE id>100"),
			shows: atLeastOne("pages that look like leaves and are free", func(_ *testing.T, was, is *layout) int { return is.ghosts(was) })},
		{name: "13 VACUUM of keyed tables",
			setup: []string{pk, "CREATE TABLE w(k PRIMARY KEY, x) WITHOUT ROWID", insert("t", 2000, "i, hex(randomblob(i%50))"), insert("w", 2000, "'k'||i, randomblob(i%1500)"), "DELETE FROM t WHERE id%3=0", "DELETE FROM w WHERE k LIKE 'k1%'"},
			unit:  []string{"VACUUM"}},
		{name: "14 VACUUM renumbers rows without a key",
			setup: []string{"CREATE TABLE t(x)", insert("t", 4, "'v'||i"), "DELETE FROM t WHERE x='v2'"},
			unit:  []string{"VACUUM"},
			want:  map[string]string{"t": "1I 1U 1D"}},
		{name: "15 auto-vacuum moves a root", pragmas: []string{"PRAGMA auto_vacuum=1"},
			setup: []string{"CREATE TABLE a(x)", "CREATE TABLE b(x)", "CREATE TABLE c(x)", insert("a", 300, "i"), insert("c", 3000, "i")},
			unit:  []string{"DROP TABLE a"},
			want:  map[string]string{"a": "0I 0U 300D"}},
		{name: "16 ADD COLUMN rewrites nothing",
			setup: []string{pk, insert("t", sized(20_000), "i, i")},
			unit:  []string{"ALTER TABLE t ADD COLUMN d DEFAULT 'zz'"}, pages: 1},
		{name: "16 an update after it",
			setup: []string{pk, insert("t", sized(20_000), "i, i"), "ALTER TABLE t ADD COLUMN d DEFAULT 'zz'"},
			unit:  []string{"UPDATE t SET b='new' WHERE id=7"},
			want:  map[string]string{"t": "0I 1U 0D"}},
		{name: "17 short records become long",
			setup: []string{pk, insert("t", sized(20_000), "i, i"), "ALTER TABLE t ADD COLUMN d DEFAULT 'zz'"},
			unit:  []string{"UPDATE t SET b=b"}, shows: func(t *testing.T, was, is *layout) {
				if n := len(is.file) - len(was.file); n < sized(20_000) {
					t.Errorf("the file grew by %d bytes, records were not written in full", n)
				}
			}},
		{name: "18 delete of a key in an interior cell", pragmas: []string{"PRAGMA page_size=512"},
			setup: []string{"CREATE TABLE w(k INT PRIMARY KEY, x) WITHOUT ROWID", insert("w", 500, "i, hex(zeroblob(30))")},
			unit:  []string{"DELETE FROM w WHERE k BETWEEN 100 AND 117"},
			want:  map[string]string{"w": "0I 0U 18D"},
			shows: atLeastOne("interior cells with a key that is deleted", func(t *testing.T, was, _ *layout) (n int) {
				for _, key := range was.inner(t, "w") {
					if key >= 100 && key <= 117 {
						n++
					}
				}
				return n
			})},
		{name: "19 another spelling of a NOCASE key",
			setup: []string{"CREATE TABLE w(k TEXT COLLATE NOCASE PRIMARY KEY, x) WITHOUT ROWID", "INSERT INTO w VALUES('a',1),('b',2)"},
			unit:  []string{"UPDATE w SET k='A' WHERE k='a'"},
			want:  map[string]string{"w": "1I 0U 1D"}},
		{name: "19 key columns twice and out of order",
			setup: []string{"CREATE TABLE w(x, y, z, PRIMARY KEY(z,x,z)) WITHOUT ROWID", "INSERT INTO w VALUES(1,2,3),(4,5,6)"},
			unit:  []string{"UPDATE w SET y=50 WHERE z=6"},
			want:  map[string]string{"w": "0I 1U 0D"}},
		{name: "19 a key column stored under two collations",
			setup: []string{"CREATE TABLE w(x, y, PRIMARY KEY(x COLLATE NOCASE, x COLLATE BINARY)) WITHOUT ROWID", "INSERT INTO w VALUES('a',2),('A',5)"},
			unit:  []string{"UPDATE w SET y=50 WHERE x='A'"},
			want:  map[string]string{"w": "0I 1U 0D"}},
		{name: "20 a real set to the same number",
			setup: []string{"CREATE TABLE t(id INTEGER PRIMARY KEY, r REAL, n)", "INSERT INTO t VALUES(1,3,-0.0),(2,-0.0,9e999),(3,1e300,0.1)"},
			unit:  tx("UPDATE t SET r=3.0 WHERE id=1", "UPDATE t SET r=0 WHERE id=2", "UPDATE t SET n=0.2 WHERE id=3"),
			want:  map[string]string{"t": "0I 1U 0D"}},
		{name: "21 two roots swapped in sqlite_schema",
			setup: []string{pk, "CREATE TABLE u(id INTEGER PRIMARY KEY, b)", insert("t", 500, "i, 't'||i"), insert("u", 500, "i+100, 'u'||i")},
			unit: []string{"PRAGMA writable_schema=ON", "UPDATE sqlite_schema SET rootpage=5-rootpage WHERE name IN ('t','u')",
				"PRAGMA writable_schema=RESET"}, pages: 1,
			want: map[string]string{"t": "100I 400U 100D", "u": "100I 400U 100D"}},
		{name: "REPLACE that evicts a second row",
			setup: []string{"CREATE TABLE t(id INTEGER PRIMARY KEY, u UNIQUE)", "INSERT INTO t VALUES(1,'a'),(2,'b'),(3,'c')"},
			unit:  []string{"INSERT OR REPLACE INTO t VALUES(1,'b')"},
			want:  map[string]string{"t": "0I 1U 1D"}},
		{name: "a savepoint rolled back",
			setup: []string{pk, insert("t", 500, "i, i")},
			unit:  tx("SAVEPOINT s", "UPDATE t SET b=b+1", "ROLLBACK TO s", "UPDATE t SET b='one' WHERE id=9"),
			want:  map[string]string{"t": "0I 1U 0D"}},
		{name: "the ends of rowids",
			setup: []string{pk, "INSERT INTO t VALUES(-9223372036854775808,1),(9223372036854775807,2),(0,3),(-1,4)"},
			unit:  tx("UPDATE t SET b='x'", "INSERT INTO t VALUES(-9223372036854775807,1),(9223372036854775806,1)"),
			want:  map[string]string{"t": "2I 4U 0D"}},
		{name: "keys of three classes that look alike",
			setup: []string{"CREATE TABLE w(k PRIMARY KEY, x) WITHOUT ROWID", "INSERT INTO w VALUES('1',1),(x'31',2),(1,3)"},
			unit:  tx("UPDATE w SET x=9", "DELETE FROM w WHERE k=1"),
			want:  map[string]string{"w": "0I 2U 1D"}},
		{name: "1 replaced by 1.0 is one key",
			setup: []string{"CREATE TABLE w(k PRIMARY KEY, x) WITHOUT ROWID", "INSERT INTO w VALUES(1,1),(2.5,1)"},
			unit:  []string{"UPDATE w SET x=2"},
			want:  map[string]string{"w": "0I 2U 0D"}},
		{name: "DROP COLUMN", setup: []string{"CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)", insert("t", 3000, "i, i, 'b'||i")},
			unit: []string{"ALTER TABLE t DROP COLUMN a"}},
		{name: "AUTOINCREMENT", setup: []string{"CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, b)", "INSERT INTO t(b) VALUES(1)"},
			unit: []string{"INSERT INTO t(b) VALUES(2)"}, want: map[string]string{"t": "1I 0U 0D", "sqlite_sequence": "0I 1U 0D"}},
		{name: "a table without a name", setup: []string{`CREATE TABLE ""(x)`, `INSERT INTO "" VALUES(1)`, "CREATE TABLE o(x)"},
			unit: tx(`INSERT INTO "" VALUES(2)`, "INSERT INTO o VALUES(1)", "CREATE TABLE p(x)"), want: map[string]string{"": "1I 0U 0D", "o": "1I 0U 0D"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			src := newSource(t, append([]string{"PRAGMA page_size=1024"}, c.pragmas...)...)
			f := newFollower(t, src)
			f.replica = newReplica(t, "UTF-8")
			for _, q := range c.setup {
				src.exec(q)
				f.step()
			}
			was := f.layout()
			src.exec(c.unit...)
			got := f.step()
			if c.shows != nil {
				c.shows(t, was, f.layout())
			}
			if c.pages > 0 && f.pages != c.pages {
				t.Errorf("the unit has %d pages, the case needs %d", f.pages, c.pages)
			}
			for name, want := range c.want {
				if n := count(got[name]); n != want {
					t.Errorf("table %q: %s, want %s", name, n, want)
				}
			}
			for name := range got {
				if c.want[name] == "" {
					t.Errorf("table %q: %s, want none", name, count(got[name]))
				}
			}
		})
	}
}

// manyTables makes tables from a number on whose rows in sqlite_schema are half
// a page long.
func manyTables(from, n int) (sql []string) {
	for i := from; i < from+n; i++ {
		sql = append(sql, fmt.Sprintf("CREATE TABLE table_%d(id INTEGER PRIMARY KEY, first TEXT, second TEXT /* %s */)", i, strings.Repeat("long ", 30)))
	}
	return []string{strings.Join(sql, ";")}
}

func dropTables(n int) (sql []string) {
	for i := range n {
		sql = append(sql, fmt.Sprintf("DROP TABLE table_%d", i))
	}
	return tx(sql...)
}

// TestFold checks that the net change of several commits is the one of the
// states at either end, whatever lies between.
func TestFold(t *testing.T) {
	src := newSource(t, "PRAGMA page_size=1024")
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, b)", insert("t", 100, "i, i"))
	f.step()
	src.exec("INSERT INTO t VALUES(200,1)", "DELETE FROM t WHERE id=200")    // I, D: nothing
	src.exec("UPDATE t SET b='x' WHERE id=1", "UPDATE t SET b=1 WHERE id=1") // U, U back: nothing
	src.exec("UPDATE t SET b='y' WHERE id=2", "DELETE FROM t WHERE id=2")    // U, D: D
	src.exec("DELETE FROM t WHERE id=3", "INSERT INTO t VALUES(3,'z')")      // D, I: U
	src.exec("INSERT INTO t VALUES(201,1)", "UPDATE t SET b=2 WHERE id=201") // I, U: I
	got := f.step()["t"]
	want := []string{"D 2 [i2|i2] []", "U 3 [i3|i3] [i3|t7a]", "I 201 [] [i201|i2]"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestWholeImage is a unit that holds every page although one row differs.
func TestWholeImage(t *testing.T) {
	src := newSource(t, "PRAGMA page_size=1024")
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, b)", insert("t", 3000, "i, i"))
	f.step()
	src.exec("UPDATE t SET b='x' WHERE id=1234")
	src.last = nil
	got := f.step()["t"]
	if count(got) != "0I 1U 0D" || f.pages != 1 {
		t.Errorf("%s from %d pages, want one update from one page", count(got), f.pages)
	}
}

// TestShrinkAndGrow is LTX-01: page numbers that a shrink gave up come back
// with other content.
func TestShrinkAndGrow(t *testing.T) {
	src := newSource(t, "PRAGMA page_size=1024")
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(a, b)", "CREATE TABLE k(id INTEGER PRIMARY KEY, b)",
		insert("t", 1000, "i, hex(zeroblob(100))"), insert("k", 300, "i*2, hex(zeroblob(100))"))
	f.step()
	src.exec("DELETE FROM t WHERE a>20 OR a=3", "DELETE FROM k WHERE id%3=0")
	f.step()
	src.exec("VACUUM")
	if got := f.step(); len(got["k"]) != 0 || len(got["t"]) == 0 {
		t.Errorf("VACUUM: keyed table %s, table without key %s", count(got["k"]), count(got["t"]))
	}
	src.exec(insert("t", 900, "i+5000, hex(zeroblob(90))"))
	f.step()
	// The same in one go: shrunk below what it was, grown above it.
	src.exec("DELETE FROM t", "VACUUM", insert("t", 2500, "i, hex(zeroblob(60))"))
	f.step()
	if err := f.sh.Flush(); err != nil {
		t.Fatal(err)
	}
	f.check()
}

// TestCommitZero is the second half of LTX-03: a database that becomes empty
// and then another one.
func TestCommitZero(t *testing.T) {
	for _, second := range []string{"PRAGMA page_size=1024", "PRAGMA page_size=4096", "PRAGMA encoding='UTF-16le'"} {
		t.Run(second, func(t *testing.T) {
			src := newSource(t, "PRAGMA page_size=1024")
			f := newFollower(t, src)
			src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, b)", insert("t", 500, "i, 'text '||i"))
			f.step()
			images, _ := unitOf(t, nil, nil)
			c, err := f.base.Diff(images, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := count(rows(t, c, "t")); got != "0I 0U 500D" || len(c.After().Tables) != 0 {
				t.Errorf("empty: %s, %d tables", got, len(c.After().Tables))
			}
			if err := c.Accept(); err != nil {
				t.Fatal(err)
			}
			f.dumps = nil
			f.check()
			f.src = newSource(t, second)
			f.src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, b)", insert("t", 7, "i, 'text '||i"))
			if got := count(f.step()["t"]); got != "7I 0U 0D" {
				t.Errorf("anew: %s", got)
			}
		})
	}
}

// TestAnotherShape goes from one page size or encoding to another in a single
// unit, as a restore over a live database would.
func TestAnotherShape(t *testing.T) {
	for _, second := range [][]string{{"PRAGMA page_size=4096"}, {"PRAGMA page_size=512", "PRAGMA encoding='UTF-16be'"}, {"PRAGMA encoding='UTF-16le'"}} {
		t.Run(strings.Join(second, " "), func(t *testing.T) {
			src := newSource(t, "PRAGMA page_size=1024")
			f := newFollower(t, src)
			make := []string{"CREATE TABLE t(id INTEGER PRIMARY KEY, b)", "CREATE TABLE w(k TEXT PRIMARY KEY, x) WITHOUT ROWID"}
			fill := []string{insert("t", 500, "i, 'text '||i"), insert("w", 300, "'k'||i, hex(zeroblob(i*5))")}
			src.exec(make...)
			src.exec(fill...)
			f.step()
			f.src = newSource(t, append([]string{"PRAGMA page_size=1024"}, second...)...)
			f.src.exec(make...)
			f.src.exec(fill...)
			f.src.exec("UPDATE t SET b='other' WHERE id=77", "DELETE FROM w WHERE k='k5'")
			images, commit := f.src.unit()
			c, err := f.base.Diff(images, commit)
			if err != nil {
				t.Fatal(err)
			}
			if got := count(rows(t, c, "t")); got != "0I 1U 0D" {
				t.Errorf("t: %s", got)
			}
			want := "0I 0U 1D"
			if c.Before().Encoding != c.After().Encoding {
				want = "299I 0U 300D" // keys are compared as they are stored
			}
			if got := count(rows(t, c, "w")); got != want {
				t.Errorf("w: %s, want %s", got, want)
			}
			if err := c.Accept(); err != nil {
				t.Fatal(err)
			}
			f.dumps = f.src.dump(c.After())
			f.check()
		})
	}
}

// TestKinds checks what a virtual table, its shadow tables, views and SQLite's
// own tables are shown as.
func TestKinds(t *testing.T) {
	src := newSource(t, "PRAGMA page_size=1024")
	f := newFollower(t, src)
	src.exec(`CREATE VIRTUAL TABLE "do/* */cs" USING fts5(body)`, "CREATE VIRTUAL TABLE 'using' USING rtree(id,a,b)",
		"CREATE TABLE plain_content(x)", "CREATE VIEW v AS SELECT * FROM plain_content WHERE x>1",
		`INSERT INTO "do/* */cs" VALUES('some words')`, "CREATE INDEX i ON plain_content(x)", "ANALYZE", insert("plain_content", 9, "i"))
	f.step()
	src.exec(`INSERT INTO "do/* */cs" VALUES('more words')`, "INSERT INTO 'using' VALUES(1,2,3)", "ANALYZE")
	got := f.step()
	if len(got["do/* */cs_content"]) == 0 || len(got["using_node"]) == 0 {
		t.Errorf("shadow tables show no change: %v", got)
	}
	want := map[string]schema.Kind{"do/* */cs": schema.Virtual, "do/* */cs_content": schema.Shadow, "using": schema.Virtual, "using_rowid": schema.Shadow,
		"plain_content": schema.Ordinary, "v": schema.View, "sqlite_stat1": schema.Internal}
	for name, kind := range want {
		if tab := f.base.Schema().ByName(name); tab == nil || tab.Kind != kind {
			t.Errorf("%s: %+v, want kind %v", name, tab, kind)
		}
	}
}

// TestColumnsByName is a table made anew with its columns in another order:
// the stored rows are the same bytes, the rows are not the same.
func TestColumnsByName(t *testing.T) {
	src := newSource(t)
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)", "INSERT INTO t VALUES(1,'x','y'),(2,'z','z')")
	f.step()
	src.exec(tx("DROP TABLE t", "CREATE TABLE t(id INTEGER PRIMARY KEY, b, a)", "INSERT INTO t VALUES(1,'x','y'),(2,'z','w')")...)
	got := f.step()["t"]
	if fmt.Sprint(got) != "[U 1 [i1|t78|t79] [i1|t78|t79] U 2 [i2|t7a|t7a] [i2|t7a|t77]]" {
		t.Errorf("got %v, want the row whose a and b changed places too", got)
	}
}

// TestKeysEqualAsNumbers is a WITHOUT ROWID row whose key goes from 1 to 1.0:
// SQLite has one key there, and so is shown one update.
func TestKeysEqualAsNumbers(t *testing.T) {
	src := newSource(t)
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(id PRIMARY KEY, a) WITHOUT ROWID", "INSERT INTO t VALUES(1,'x'),(2.0,'y'),('2','z')")
	f.step()
	src.exec("INSERT OR REPLACE INTO t VALUES(1.0,'x'),(2,'new')")
	images, commit := src.unit()
	c, err := f.base.Diff(images, commit)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var ops []Op
	if err := c.Rows("t", func(op Op, _, _ Row) error { ops = append(ops, op); return nil }); err != nil || fmt.Sprint(ops) != fmt.Sprint([]Op{Update, Update}) {
		t.Errorf("%v, %v, want two updates", ops, err)
	}
	if got := count(rows(t, c, "t")); got != "2I 0U 2D" {
		t.Errorf("by key and class %s, want the old keys gone and the new ones there", got)
	}
}
