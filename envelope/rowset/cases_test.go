package rowset

import (
	"fmt"
	"strings"
	"testing"
)

// Databases that other exporters got wrong. Expected lines are by hand; the
// tape holds them against SELECT and against pages.

func TestShortRowsShowDefaults(t *testing.T) {
	s := newTape(t, `CREATE TABLE t(id INTEGER PRIMARY KEY, a)`, `INSERT INTO t VALUES (1, 'x')`)
	s.unit()
	var last []string
	for _, column := range []string{`d TEXT DEFAULT 'it''s'`, `e INT DEFAULT -5`, `f REAL DEFAULT 1`, `g DEFAULT (x'00ff')`, `h DEFAULT 0x10`, `i DEFAULT true`} {
		last = s.bodies(`ALTER TABLE t ADD COLUMN ` + column)
	}
	check(t, last[1:],
		shown(7, "t", 7, `"id","a","d","e","f","g","h","i"`, `"id"`, `["I",[1],[1,"x","it's",-5,1.0,{"$blob":"AP8="},16,1]]`),
		ended(7, "t", 7))
	s.bodies(`INSERT INTO t(id, a) VALUES (2, 'y')`)
	got := s.bodies(`UPDATE t SET a = 'z' WHERE id = 1`)
	check(t, got, strings.Replace(rows("t", `"id","a","d","e","f","g","h","i"`, `"id"`, `["U",[1],[1,"z","it's",-5,1.0,{"$blob":"AP8="},16,1]]`), `"generation":1`, `"generation":7`, 1))
}

func TestNumbersKeepTheirClass(t *testing.T) {
	s := newTape(t, `CREATE TABLE t(id INTEGER PRIMARY KEY, r REAL, n NUMERIC, b)`)
	s.unit()
	check(t, s.bodies(`INSERT INTO t VALUES (1,3.0,3.0,3.0), (2,1e15,'1e3',-0.0), (3,9007199254740993,9223372036854775807,9223372036854775807),
		(4,5e-324,'9223372036854775808',1.7976931348623157e308)`),
		rows("t", `"id","r","n","b"`, `"id"`,
			`["I",[1],[1,3.0,3,3.0]],["I",[2],[2,1000000000000000.0,1000,-0.0]],["I",[3],[3,9007199254740992.0,9223372036854775807,9223372036854775807]],["I",[4],[4,5e-324,9.223372036854776e+18,1.7976931348623157e+308]]`))
	check(t, s.bodies(`UPDATE t SET r = 3, n = '3', b = 3.0 WHERE id = 1`))
}

func TestKeysOfBrokenText(t *testing.T) {
	s := newTape(t, `CREATE TABLE t(k TEXT PRIMARY KEY, v)`)
	s.unit()
	check(t, s.bodies(`INSERT INTO t VALUES (CAST(x'610062' AS TEXT), 1), ('fine', 2)`),
		rows("t", `"k","v"`, `"k"`, `["I",["a\u0000b"],["a\u0000b",1]],["I",["fine"],["fine",2]]`))
	check(t, s.bodies(`INSERT INTO t VALUES (CAST(x'ff41c3' AS TEXT), 1), (CAST(x'fe41c3' AS TEXT), 2), ('also', 3)`), bulk("t"))
	check(t, s.bodies(`DELETE FROM t WHERE k = CAST(x'ff41c3' AS TEXT)`), bulk("t"))
}

func TestExtremeRowids(t *testing.T) {
	s := newTape(t, `CREATE TABLE c(id INTEGER, v, PRIMARY KEY(id DESC))`, `CREATE TABLE b(id INT PRIMARY KEY, v)`)
	s.unit()
	check(t, s.bodies(`INSERT INTO c VALUES (-1,1),(0,2),(9223372036854775807,3),(-9223372036854775808,4)`, `INSERT INTO b VALUES (NULL,1),(NULL,2),(-1,3)`),
		rows("b", `"id","v"`, `"id"`, `["I",[-1],[-1,3]]`),
		rows("c", `"id","v"`, `"id"`, `["I",[-9223372036854775808],[-9223372036854775808,4]],["I",[-1],[-1,1]],["I",[0],[0,2]],["I",[9223372036854775807],[9223372036854775807,3]]`))
}

func TestDeletesNobodySees(t *testing.T) {
	s := newTape(t, `PRAGMA secure_delete = OFF`, `CREATE TABLE t(id INTEGER PRIMARY KEY, u UNIQUE, v)`,
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 1000) INSERT INTO t SELECT i, 'u' || i, hex(zeroblob(30)) FROM n`)
	s.unit()
	check(t, s.bodies(`INSERT OR REPLACE INTO t VALUES (2000, 'u7', 'new')`),
		rows("t", `"id","u","v"`, `"id"`, `["D",[7],[7,"u7","`+strings.Repeat("00", 30)+`"]],["I",[2000],[2000,"u7","new"]]`))
	check(t, s.bodies(`SAVEPOINT s`, `UPDATE t SET v = 'gone'`, `ROLLBACK TO s`, `UPDATE t SET v = 'one' WHERE id = 2000`, `RELEASE s`),
		rows("t", `"id","u","v"`, `"id"`, `["U",[2000],[2000,"u7","one"]]`))
	s.bodies(`DELETE FROM t`)
	if s.stats.Deletes != 1000 || s.stats.Records != 1 {
		t.Errorf("%d rows deleted in %d records, want 1000 in 1", s.stats.Deletes, s.stats.Records)
	}
}

func TestVacuumRenumbers(t *testing.T) {
	s := newTape(t, `CREATE TABLE plain(v)`, `CREATE TABLE keyed(k TEXT PRIMARY KEY, v)`,
		`INSERT INTO plain VALUES ('a'),('b'),('c')`, `INSERT INTO keyed VALUES ('a',1),('b',2),('c',3)`,
		`DELETE FROM plain WHERE v = 'a'`, `DELETE FROM keyed WHERE k = 'a'`)
	s.unit()
	check(t, s.bodies(`VACUUM`),
		rows("plain", `"v"`, `"_rowid_"`, `["I",[1],["b"]],["U",[2],["c"]],["D",[3],["c"]]`))
}

func TestOddDefinitions(t *testing.T) {
	s := newTape(t,
		"CREATE TABLE \"we\"\"ird, (t) -- x\"(\"a,b\" text, [c d] int, `e``f` real, 'g' blob, \"primary\" int, primary key(\"a,b\"))",
		"CREATE TABLE c2(/* id INTEGER PRIMARY KEY, */ a text -- , b int\n, b int CHECK(b > 0 AND a <> ') WITHOUT ROWID'), CONSTRAINT pk PRIMARY KEY(a))",
		`CREATE TABLE x AS SELECT 1 AS x, 'q' AS y`,
		`CREATE TABLE k(k INTEGER PRIMARY KEY ON CONFLICT REPLACE AUTOINCREMENT)`,
		`CREATE TABLE s1(a INT PRIMARY KEY) STRICT, WITHOUT ROWID`,
		`CREATE TABLE s2(a INT PRIMARY KEY) WITHOUT ROWID, STRICT`,
		`CREATE TABLE kv(a)`, `CREATE TABLE sqlitelike(a)`)
	first := s.bodies()
	if n := s.stats.Records; n != 17 || len(s.stats.Bulk) != 0 { // 8 schemas, 8 snapshots, the end
		t.Errorf("%d records, bulk %v:\n%s", n, s.stats.Bulk, strings.Join(first, "\n"))
	}
	check(t, s.bodies("INSERT INTO \"we\"\"ird, (t) -- x\" VALUES ('k', 1, 2, 'b', 3)", `INSERT INTO c2 VALUES ('a', 1)`, `INSERT INTO x VALUES (2, 'r')`,
		`INSERT INTO k VALUES (NULL)`, `INSERT INTO s1 VALUES (1)`, `INSERT INTO s2 VALUES (2)`, `INSERT INTO kv VALUES (1)`, `INSERT INTO sqlitelike VALUES (1)`),
		rows("_cf_SQL_kv", `"a"`, `"_rowid_"`, `["I",[1],[1]]`),
		rows("c2", `"a","b"`, `"a"`, `["I",["a"],["a",1]]`),
		rows("k", `"k"`, `"k"`, `["I",[1],[1]]`),
		rows("s1", `"a"`, `"a"`, `["I",[1],[1]]`),
		rows("s2", `"a"`, `"a"`, `["I",[2],[2]]`),
		rows("sqlitelike", `"a"`, `"_rowid_"`, `["I",[1],[1]]`),
		rows(`we"ird, (t) -- x`, "\"a,b\",\"c d\",\"e`f\",\"g\",\"primary\"", `"a,b"`, `["I",["k"],["k",1,2.0,"b",3]]`),
		rows("x", `"x","y"`, `"_rowid_"`, `["I",[2],[2,"r"]]`))
}

func TestWideAndLongRows(t *testing.T) {
	for _, size := range []int{512, 4096, 65536} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			columns, values := make([]string, 700), make([]string, 700)
			for i := range columns {
				columns[i], values[i] = fmt.Sprintf("c%d", i), fmt.Sprint(i)
			}
			s := newTape(t, fmt.Sprintf("PRAGMA page_size = %d", size), `CREATE TABLE wide(`+strings.Join(columns, ",")+`)`,
				`CREATE TABLE long(k TEXT PRIMARY KEY, v) WITHOUT ROWID`)
			s.unit()
			s.unit(`INSERT INTO wide VALUES (` + strings.Join(values, ",") + `)`)
			check(t, s.bodies(`INSERT INTO long VALUES (hex(zeroblob(1500)), 1)`),
				rows("long", `"k","v"`, `"k"`, `["I",["`+strings.Repeat("0", 3000)+`"],["`+strings.Repeat("0", 3000)+`",1]]`))
			s.unit(`WITH RECURSIVE n(i) AS (SELECT 440 UNION ALL SELECT i+1 FROM n WHERE i < 520) INSERT INTO long SELECT i, hex(zeroblob(i)) FROM n`)
			if s.stats.Inserts != 81 {
				t.Errorf("%d rows, want 81", s.stats.Inserts)
			}
		})
	}
}
