package exporter_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/envelope"
	"celldexport/internal/celldsim"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Rows written before ALTER TABLE ADD COLUMN are shorter than their table:
// every ADD opens a generation that shows them with the column's default.
func TestDIFF01(t *testing.T) {
	t.Parallel()
	p := newTape(t)
	p.unit(`CREATE TABLE t(id INTEGER PRIMARY KEY, a)`, `INSERT INTO t VALUES(1, 'x')`)
	for i, column := range []string{`d TEXT DEFAULT 'it''s'`, `e INT DEFAULT -5`, `f REAL DEFAULT 1`, `g DEFAULT (x'00ff')`, `h DEFAULT 0x10`, `i DEFAULT true`} {
		gen := fmt.Sprintf("t/%d", i+2)
		p.wants(p.unit(`ALTER TABLE t ADD COLUMN `+column), "schema "+gen, "snapshot "+gen+" 1", "end tables 1")
	}
	const old = `,"it's",-5,1.0,{"$blob":"AP8="},16,1]`
	p.wantRows("t", `[1] [1,"x"`+old)
	p.wants(p.unit(`INSERT INTO t(id, a) VALUES(2, 'y')`), "rows t/7 I")
	p.wants(p.unit(`UPDATE t SET a = 'z' WHERE id = 1`), "rows t/7 U")
	p.wantRows("t", `[1] [1,"z"`+old, `[2] [2,"y"`+old)
}

// A REAL column stores integral values as integers: they stay reals, integers
// stay exact, and a state that is restored from the bucket shows no update.
func TestDIFF02(t *testing.T) {
	t.Parallel()
	p := newTape(t)
	p.unit(`CREATE TABLE t(id INTEGER PRIMARY KEY, r REAL, n NUMERIC, b)`,
		`INSERT INTO t VALUES(1,3.0,3.0,3.0), (2,1e15,'1e3',-0.0), (3,9007199254740993,9223372036854775807,9223372036854775807), (4,5e-324,'9223372036854775808',1.7976931348623157e308)`,
		`CREATE TABLE pad(v)`, `INSERT INTO pad VALUES(randomblob(50000))`)
	p.wantRows("t", `[1] [1,3.0,3,3.0]`, `[2] [2,1000000000000000.0,1000,-0.0]`,
		`[3] [3,9007199254740992.0,9223372036854775807,9223372036854775807]`, `[4] [4,5e-324,9.223372036854776e+18,1.7976931348623157e+308]`)
	for _, keep := range []bool{true, false} {
		p.wake(keep)
		if got := p.export(); len(got) > 0 {
			t.Errorf("nothing changed in the wake (image kept: %v), and yet: %q", keep, got)
		}
	}
	p.must(p.h.node.Evict(t.Context(), p.c.Scope(), false))
	p.h.once()
	p.must(os.RemoveAll(filepath.Join(p.h.settings.State, "shadow"))) // as cache_bytes does
	p.c = p.h.activate("case")
	p.must(p.c.Upload(t.Context()))
	before := p.h.read.Load()
	if got := p.export(); len(got) > 0 {
		t.Errorf("nothing changed in a wake over the bucket's state, and yet: %q", got)
	}
	if n := p.h.read.Load() - before; n < 50000 {
		t.Errorf("%d bytes read: the state was not restored from the bucket, the case is not the one meant", n)
	}
}

// Text with NUL, text that is no UTF-8, and both as keys.
func TestDIFF03(t *testing.T) {
	t.Parallel()
	p := newTape(t)
	p.odd = []string{"k"}
	const three = ` VALUES(1, CAST(x'610062' AS TEXT)), (2, CAST(x'ff41c3' AS TEXT)), (3, CAST(x'fe41c3' AS TEXT))`
	p.unit(`CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)`, `CREATE TABLE k(n, v TEXT PRIMARY KEY)`)
	p.unit(`INSERT INTO t` + three)
	p.unit(`INSERT INTO t VALUES(4, CAST(x'e280a8' AS TEXT)), (5, '<a&b>'), (6, CAST(x'eda080' AS TEXT))`)
	p.wantRows("t", `[1] [1,"a\u0000b"]`, `[2] [2,{"$blob":"/0HD"}]`, `[3] [3,{"$blob":"/kHD"}]`, "[4] [4,\"\u2028\"]", `[5] [5,"<a&b>"]`, `[6] [6,{"$blob":"7aCA"}]`)
	p.unit(`INSERT INTO k VALUES(7, 'plain'), (8, CAST(x'610062' AS TEXT))`)
	p.wantRows("k", `["a\u0000b"] [8,"a\u0000b"]`, `["plain"] [7,"plain"]`)
	// Keys that no record can name: the table is uncertain from here on, the
	// others and the certificate go on.
	p.wants(p.unit(`INSERT INTO k`+strings.Replace(three, "(1, CAST(x'610062' AS TEXT)), ", "", 1), `UPDATE t SET v = 'w' WHERE id = 5`), "rows t/1 U", "bulk")
	if !p.table("k").Uncertain {
		t.Error("rows are missing at the consumer and it is certain of the table")
	}
}

// The same database in each encoding gives the same records.
func TestDIFF04(t *testing.T) {
	t.Parallel()
	tell := func(encoding string) ([]string, *tape) {
		p := newTape(t, "encoding('"+encoding+"')")
		p.unit(`CREATE TABLE "té😀"(id INTEGER PRIMARY KEY, "ü" TEXT, w TEXT DEFAULT 'é😀')`, `CREATE TABLE k(v TEXT PRIMARY KEY, n) WITHOUT ROWID`)
		for i, v := range []string{"'é'", "'😀'", "'a' || char(0) || 'b'", "''", "'plain'"} {
			p.unit(fmt.Sprintf(`INSERT INTO "té😀"(id, "ü") VALUES(%d, %s)`, i, v), fmt.Sprintf(`INSERT INTO k VALUES(%s, %d)`, v, i))
		}
		p.unit(`ALTER TABLE "té😀" ADD COLUMN z TEXT DEFAULT 'ñ'`)
		p.unit(`UPDATE k SET n = n + 1`, `DELETE FROM "té😀" WHERE id = 1`)
		var lines []string
		for _, r := range p.consumer().Records {
			body, err := envelope.Encode(r)
			p.must(err)
			lines = append(lines, r.Position.String()+" "+string(body.Body))
		}
		slices.Sort(lines) // watermarks fall into objects by time
		return lines, p
	}
	want, _ := tell("UTF-8")
	for encoding, lone := range map[string]string{"UTF-16le": "x'00d84100'", "UTF-16be": "x'd8000041'"} {
		got, p := tell(encoding)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-UTF-8 +%s):\n%s", encoding, encoding, diff)
		}
		p.unit(`INSERT INTO "té😀"(id, w) VALUES(9, CAST(` + lone + ` AS TEXT))`)
		blob := map[string]string{"UTF-16le": "ANhBAA==", "UTF-16be": "2AAAQQ=="}[encoding]
		if rows := p.rows("té😀"); !strings.Contains(rows[len(rows)-1], `{"$blob":"`+blob+`"}`) {
			t.Errorf("a lone surrogate is not kept: %s", rows[len(rows)-1])
		}
	}
}

// What is the rowid, what only looks like it, and keys that hold NULL.
func TestDIFF05(t *testing.T) {
	t.Parallel()
	p := newTape(t)
	p.unit(`CREATE TABLE a(id INTEGER PRIMARY KEY DESC, v)`, `CREATE TABLE b(id INT PRIMARY KEY, v)`, `CREATE TABLE c(id INTEGER, v, PRIMARY KEY(id DESC))`)
	p.wants(p.unit(`INSERT INTO a VALUES(5,'x'), (NULL,'y'), (NULL,'z')`, `INSERT INTO b VALUES(NULL,1), (NULL,2), (-1,3)`,
		`INSERT INTO c VALUES(-1,1), (0,2), (9223372036854775807,3), (-9223372036854775808,4)`), "rows a/1 I", "rows b/1 I", "rows c/1 IIII")
	p.wantRows("a", `[5] [5,"x"]`)
	p.wantRows("b", `[-1] [-1,3]`)
	p.wantRows("c", `[-9223372036854775808] [-9223372036854775808,4]`, `[-1] [-1,1]`, `[0] [0,2]`, `[9223372036854775807] [9223372036854775807,3]`)
	// A row comes into being for the consumer when its key is filled.
	p.wants(p.unit(`UPDATE a SET id = 6 WHERE v = 'y'`, `UPDATE b SET id = NULL WHERE v = 3`, `DELETE FROM c WHERE id > 0`), "rows a/1 I", "rows b/1 D", "rows c/1 D")
	p.wantRows("a", `[5] [5,"x"]`, `[6] [6,"y"]`)
}

// What does not fit its page: all lengths around the limits, headers and
// CREATE texts that spill, long keys, a schema of several pages.
func TestDIFF06(t *testing.T) {
	t.Parallel()
	for _, form := range []struct{ size, reserved int }{{512, 0}, {4096, 0}, {65536, 0}, {1024, 32}} {
		t.Run(fmt.Sprintf("%d bytes, %d reserved", form.size, form.reserved), func(t *testing.T) {
			t.Parallel()
			var p *tape
			if form.reserved > 0 {
				p = newTapeOver(t, emptyDatabase(form.size, form.reserved))
			} else {
				p = newTape(t, fmt.Sprintf("page_size(%d)", form.size))
			}
			columns := make([]string, 700)
			for i := range columns {
				columns[i] = fmt.Sprintf("c%d", i)
			}
			setup := []string{`CREATE TABLE wide(` + strings.Join(columns, ",") + `)`, `CREATE TABLE t(id INTEGER PRIMARY KEY, v)`,
				`CREATE TABLE k(k TEXT PRIMARY KEY, v) WITHOUT ROWID`, `CREATE TABLE long(x /* ` + strings.Repeat("long ", 1000) + `*/)`}
			for i := range 60 {
				setup = append(setup, fmt.Sprintf("CREATE TABLE table_%d(id INTEGER PRIMARY KEY, first TEXT, second TEXT)", i))
			}
			p.unit(setup...)
			values := make([]string, 700)
			for i := range values {
				values[i] = fmt.Sprint(1000000 + i)
			}
			p.wants(p.unit(`INSERT INTO wide VALUES(`+strings.Join(values, ",")+`)`), "rows wide/1 I")
			p.unit(filler("t", 81, "i, zeroblob(439+i)"), filler("t", 151, "i+1000, hex(zeroblob((949+i)/2))||substr('x',1,i%2)"),
				filler("k", 81, "hex(zeroblob(220+i/2))||'-'||i, i"), `INSERT INTO k VALUES(hex(zeroblob(1500)), 0)`)
			got := p.unit(`UPDATE t SET v = v || 'x' WHERE id % 2 = 0`, `UPDATE k SET v = v + 1`, `UPDATE wide SET c350 = 'now'`, `INSERT INTO long VALUES(1)`, `INSERT INTO table_59 VALUES(1, 'a', 'b')`)
			if _, u, _ := ops(got, "k"); u != 82 {
				t.Errorf("%d updates of k, want 82", u)
			}
			p.unit(`DELETE FROM t WHERE id % 2 = 0`, `DELETE FROM k WHERE v > 40`, `DROP TABLE table_3`)
			if _, err := p.c.FullImage(); err != nil {
				t.Fatal(err)
			}
			p.must(p.c.Upload(t.Context()))
			p.export()
			head := p.firstPage()
			if got, want := head[16:21], []byte{byte(form.size >> 8), byte(form.size >> 16 & 1), 2, 2, byte(form.reserved)}; !slices.Equal(got, want) {
				t.Errorf("the database is of another form: % x, want % x", got, want)
			}
			if form.size == 512 && head[100] != 5 {
				t.Errorf("the schema's root is a page of type %d, the case needs an interior one", head[100])
			}
		})
	}
}

// firstPage is the head of the cell's database file.
func (p *tape) firstPage() []byte {
	p.t.Helper()
	dir := p.c.LTXDir()
	for filepath.Base(dir) != fmt.Sprintf("e%d", p.c.Epoch()) {
		dir = filepath.Dir(dir)
	}
	b, err := os.ReadFile(filepath.Join(dir, "db.sqlite"))
	p.must(err)
	return b[:512]
}

// emptyDatabase is a database without tables whose pages end in bytes that
// SQLite leaves alone.
func emptyDatabase(size, reserved int) []byte {
	b := make([]byte, size)
	copy(b, "SQLite format 3\x00")
	b[16], b[17] = byte(size>>8), byte(size)
	b[18], b[19], b[20] = 2, 2, byte(reserved)
	b[21], b[22], b[23] = 64, 32, 32
	b[27], b[31] = 1, 1
	b[47], b[59], b[95] = 4, 1, 1
	b[100] = 13
	b[105], b[106] = byte((size-reserved)>>8), byte(size-reserved)
	return b
}

// Changes that leave pages alone, and pages that change without a change.
func TestDIFF07(t *testing.T) {
	t.Parallel()
	for _, secure := range []string{"OFF", "ON"} {
		t.Run("secure_delete "+secure, func(t *testing.T) {
			t.Parallel()
			p := newTape(t)
			p.unit(`PRAGMA secure_delete=`+secure, `CREATE TABLE t(id INTEGER PRIMARY KEY, v)`)
			p.unit(filler("t", 1000, "i, hex(zeroblob(30))"))
			if _, _, d := ops(p.unit(`DELETE FROM t`), "t"); d != 1000 {
				t.Errorf("%d deletes, want 1000", d)
			}
			got := p.consumer()
			for _, r := range got.Records {
				if b, ok := r.Body.(*envelope.Rows); ok && r.Position.TXID == p.c.TXID() {
					for _, c := range b.Changes {
						if string(envelope.AppendValues(nil, c.Row[1:])) != `["`+strings.Repeat("00", 30)+`"]` {
							t.Fatalf("a delete without its row: %v", c)
						}
					}
				}
			}
		})
	}
	p := newTape(t)
	p.unit(`CREATE TABLE t(id INTEGER PRIMARY KEY, u UNIQUE, v)`, filler("t", 100, "i, 'u'||i, hex(zeroblob(30))"), `CREATE TABLE o(id INTEGER PRIMARY KEY, b)`)
	p.wants(p.unit(`INSERT OR REPLACE INTO t VALUES(2000, 'u7', 'new')`), "rows t/1 DI")
	p.wants(p.unit(`INSERT OR REPLACE INTO t VALUES(8, 'u9', 'new')`), "rows t/1 UD")
	p.wants(p.unit(`BEGIN`, `SAVEPOINT s`, `UPDATE t SET v = 'gone'`, `ROLLBACK TO s`, `UPDATE t SET v = 'one' WHERE id = 2000`, `COMMIT`), "rows t/1 U")
	p.wants(p.unit(`BEGIN`, `INSERT INTO t VALUES(3000, 'u3000', 'x')`, `DELETE FROM t WHERE id = 3000`, `UPDATE t SET v = v WHERE id < 50`, `COMMIT`))
	p.unit(filler("o", 3, "i, randomblob(30000)"))
	p.wants(p.unit(`BEGIN`, `DELETE FROM o WHERE id = 2`, `UPDATE t SET v = randomblob(25000) WHERE id = 20`, `COMMIT`), "rows o/1 D", "rows t/1 U")
}

// Tables that are not what their name was before.
func TestDIFF08(t *testing.T) {
	t.Parallel()
	setup := []string{`CREATE TABLE t(id INTEGER PRIMARY KEY, a)`, filler("t", 100, "i, 'old'||i")}
	for name, c := range map[string]struct {
		unit, want []string
	}{
		"dropped and made again, same text": {
			[]string{`BEGIN`, `DROP TABLE t`, `CREATE TABLE t(id INTEGER PRIMARY KEY, a)`, `INSERT INTO t VALUES(1, 'new')`, `COMMIT`},
			[]string{"rows t/1 U" + strings.Repeat("D", 99)},
		},
		"rebuilt and renamed": {
			[]string{`BEGIN`, `CREATE TABLE t_new(id INTEGER PRIMARY KEY, a, b DEFAULT 7)`, `INSERT INTO t_new(id, a) SELECT id, a FROM t`, `DROP TABLE t`, `ALTER TABLE t_new RENAME TO t`, `COMMIT`},
			[]string{"schema t/2", "snapshot t/2 100", "end tables 1"},
		},
		"a column renamed": {
			[]string{`ALTER TABLE t RENAME COLUMN a TO b`},
			[]string{"schema t/2", "snapshot t/2 100", "end tables 1"},
		},
		"two names swapped": {
			[]string{`BEGIN`, `ALTER TABLE t RENAME TO x`, `ALTER TABLE u RENAME TO t`, `ALTER TABLE x RENAME TO u`, `COMMIT`},
			[]string{"schema t/2", "schema u/2", "snapshot t/2 1", "snapshot u/2 100", "end tables 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTape(t)
			p.unit(append(setup, `CREATE TABLE u(k TEXT PRIMARY KEY)`, `INSERT INTO u VALUES('u')`)...)
			got, want := p.unit(c.unit...), c.want
			slices.Sort(got)
			slices.Sort(want)
			p.wants(got, want...)
			p.unit(`DELETE FROM t`, `INSERT INTO t DEFAULT VALUES`)
		})
	}
}

// A virtual generated column has no place in the record: it and the stored
// one stay out, and no column shifts.
func TestDIFF09(t *testing.T) {
	t.Parallel()
	p := newTape(t)
	p.unit(`CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, v INT AS (a*2) VIRTUAL, s INT AS (a*3) STORED, z)`)
	p.wants(p.unit(`INSERT INTO t(id, a, z) VALUES(1, 5, 'z')`), "rows t/1 I")
	p.wantRows("t", `[1] [1,5,"z"]`)
	p.wants(p.unit(`UPDATE t SET z = 'y'`), "rows t/1 U")
	p.wantRows("t", `[1] [1,5,"y"]`)
	tab := p.table("t")
	if !slices.Equal(tab.Columns, []string{"id", "a", "z"}) || tab.Schema == nil || len(tab.Schema.Columns) != 5 {
		t.Errorf("columns %v, schema %+v", tab.Columns, tab.Schema)
	}
}

// Definitions that a parser of our own would read wrong, and one that SQLite
// itself cannot read.
func TestDIFF10(t *testing.T) {
	t.Parallel()
	p := newTape(t)
	p.unit("CREATE TABLE \"we\"\"ird, (t) -- x\"(\"a,b\" text, [c d] int, `e``f` real, 'g' blob, \"primary\" int, primary key(\"a,b\"))",
		"CREATE TABLE c2(/* id INTEGER PRIMARY KEY, */ a text -- , b int\n, b int CHECK(b > 0 AND a <> ') WITHOUT ROWID'), CONSTRAINT pk PRIMARY KEY(a))",
		`CREATE TABLE x AS SELECT 1 AS x, 'q' AS y`, `CREATE TABLE k(k INTEGER PRIMARY KEY ON CONFLICT REPLACE AUTOINCREMENT)`,
		`CREATE TABLE s1(a INT PRIMARY KEY) STRICT, WITHOUT ROWID`, `CREATE TABLE s2(a INT PRIMARY KEY) WITHOUT ROWID, STRICT`,
		`CREATE TABLE kv(a)`, `CREATE TABLE sqlitelike(a)`)
	p.unit("INSERT INTO \"we\"\"ird, (t) -- x\" VALUES('k', 1, 2, 'b', 3)", `INSERT INTO c2 VALUES('a', 1)`, `INSERT INTO x VALUES(2, 'r')`,
		`INSERT INTO k VALUES(NULL)`, `INSERT INTO s1 VALUES(1)`, `INSERT INTO s2 VALUES(2)`, `INSERT INTO kv VALUES(1)`, `INSERT INTO sqlitelike VALUES(1)`)
	p.wantRows(`we"ird, (t) -- x`, `["k"] ["k",1,2.0,"b",3]`)
	p.wantRows("_cf_SQL_kv", `[1] [1]`)
	p.wantRows("c2", `["a"] ["a",1]`)
	p.unit(`DROP TABLE kv`, `CREATE TABLE Kv(a)`, `INSERT INTO Kv VALUES(3)`)

	p.unit(`CREATE TABLE odd(a)`, `INSERT INTO odd VALUES(1)`)
	p.odd = []string{"odd"}
	got := p.unit(`PRAGMA writable_schema=ON`, `UPDATE sqlite_schema SET sql = 'CREATE TABLE odd(a FROM THE FUTURE (' WHERE name = 'odd'`,
		`INSERT INTO odd VALUES(2)`, `INSERT INTO x VALUES(3, 's')`)
	if !slices.Contains(got, "rows x/1 I") || len(got) < 2 {
		t.Errorf("a table that cannot be read: %q", got)
	}
	if tab := p.table("odd"); tab.Schema == nil || !tab.Schema.Unsupported && !tab.Uncertain {
		t.Errorf("the consumer is certain of a table that cannot be read: %+v", tab)
	}
}

// Every DIFF case's database in one unit, merged in the bucket, over a
// restored base: what comes together from many files is what came one by one.
func TestDIFFInOneUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	h := w.host("node-a")
	c := h.activate("one")
	w.write(c, `CREATE TABLE t(id INTEGER PRIMARY KEY, a)`, `INSERT INTO t VALUES(1, 'x'), (2, 'y')`)
	h.once()
	for _, sql := range []string{`ALTER TABLE t ADD COLUMN f REAL DEFAULT 1`, `UPDATE t SET a = CAST(x'ff' AS TEXT) WHERE id = 1`,
		`CREATE TABLE w(k TEXT, n INT, v AS (n+1), PRIMARY KEY(n, k)) WITHOUT ROWID`, `INSERT INTO w VALUES('a', 1), ('b', -1)`,
		`DROP TABLE t`, `CREATE TABLE t(id INTEGER PRIMARY KEY, a, f)`, `INSERT INTO t VALUES(2, 'z', 3.0)`, `VACUUM`} {
		w.must(c.Exec(sql))
		_, err := c.Capture()
		w.must(err)
	}
	w.must(c.UploadMerged(t.Context()))
	if left := h.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	w.equal(c)
}
