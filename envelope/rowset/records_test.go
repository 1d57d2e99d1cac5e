package rowset

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/envelope"
)

// The lines of this file are written by hand from the record format.

func TestFirstUnitOfFreshStream(t *testing.T) {
	s := newTape(t)
	head := `{"script":"depot","class":"Shelf","cell":"Shelf:a17","facet":null,"incarnation":4,"cell_name":null,"epoch":4,"txid":1,"commit":1,"committed_at":1795000000001,"node":"n1","origin":"snapshot","fragment":1,"fragments":1,`
	check(t, s.unit(
		`CREATE TABLE tags(name TEXT COLLATE NOCASE PRIMARY KEY, x)`,
		`CREATE TABLE bins(b TEXT, a TEXT, w REAL, len AS (length(a)), PRIMARY KEY(a,b))`,
		`INSERT INTO bins VALUES ('x','a',1), ('y','a',NULL)`,
	),
		head+`"kind":"schema","table":"bins","generation":1,"sql":"CREATE TABLE bins(b TEXT, a TEXT, w REAL, len AS (length(a)), PRIMARY KEY(a,b))","columns":[{"name":"b","type":"TEXT","pk":2,"not_null":false,"generated":false},{"name":"a","type":"TEXT","pk":1,"not_null":false,"generated":false},{"name":"w","type":"REAL","pk":0,"not_null":false,"generated":false},{"name":"len","type":"","pk":0,"not_null":false,"generated":true}]}`,
		head+`"kind":"schema","table":"tags","generation":1,"sql":"CREATE TABLE tags(name TEXT COLLATE NOCASE PRIMARY KEY, x)","columns":[{"name":"name","type":"TEXT","pk":1,"not_null":false,"generated":false},{"name":"x","type":"","pk":0,"not_null":false,"generated":false}]}`,
		head+`"kind":"snapshot","snapshot_id":"ddl-1795000000001-1-0","table":"bins","generation":1,"columns":["b","a","w"],"key_columns":["a","b"],"rows":[["I",["a","x"],["x","a",1.0]],["I",["a","y"],["y","a",null]]]}`,
		head+`"kind":"snapshot","snapshot_id":"ddl-1795000000001-1-0","table":"tags","generation":1,"columns":["name","x"],"key_columns":["name"],"rows":[]}`,
		head+`"kind":"snapshot_end","snapshot_id":"ddl-1795000000001-1-0","scope":"tables","tables":[{"table":"bins","generation":1},{"table":"tags","generation":1}],"records":2}`,
	)
	head = strings.NewReplacer(`"txid":1,"commit":1`, `"txid":2,"commit":2`, `000001`, `000002`, `"origin":"snapshot"`, `"origin":"live"`).Replace(head)
	check(t, s.unit(`UPDATE bins SET w = -0.5 WHERE b = 'y'`, `INSERT INTO tags VALUES ('nil', NULL)`),
		head+`"kind":"rows","table":"bins","generation":1,"columns":["b","a","w"],"key_columns":["a","b"],"rows":[["U",["a","y"],["y","a",-0.5]]]}`,
		head+`"kind":"rows","table":"tags","generation":1,"columns":["name","x"],"key_columns":["name"],"rows":[["I",["nil"],["nil",null]]]}`,
	)
}

// rows is the body of a rows record of generation 1.
func rows(table, columns, keys, changes string) string {
	return fmt.Sprintf(`live {"kind":"rows","table":%q,"generation":1,"columns":[%s],"key_columns":[%s],"rows":[%s]}`, table, columns, keys, changes)
}

func TestRowsOfOneUnit(t *testing.T) {
	for _, tc := range []struct {
		name          string
		create, setup []string
		change        []string
		want          []string
	}{
		{
			name:   "rowid table without key",
			create: []string{`CREATE TABLE log(msg)`},
			setup:  []string{`INSERT INTO log VALUES ('a'),('b'),('c')`},
			change: []string{`DELETE FROM log WHERE msg = 'a'`, `UPDATE log SET msg = 'B' WHERE msg = 'b'`, `INSERT INTO log(rowid, msg) VALUES (-9223372036854775808, 'd')`},
			want:   []string{rows("log", `"msg"`, `"_rowid_"`, `["I",[-9223372036854775808],["d"]],["D",[1],["a"]],["U",[2],["B"]]`)},
		},
		{
			name:   "integer primary key",
			create: []string{`CREATE TABLE t(v, id INTEGER PRIMARY KEY)`},
			setup:  []string{`INSERT INTO t VALUES ('x',5)`},
			change: []string{`UPDATE t SET id = 3`},
			want:   []string{rows("t", `"v","id"`, `"id"`, `["I",[3],["x",3]],["D",[5],["x",5]]`)},
		},
		{
			name:   "key order is not column order",
			create: []string{`CREATE TABLE t(a, b, PRIMARY KEY(b, a))`},
			setup:  []string{`INSERT INTO t VALUES (1,'y'),(2,'x')`},
			change: []string{`DELETE FROM t WHERE a = 1`, `INSERT INTO t VALUES (1,'x')`},
			want:   []string{rows("t", `"a","b"`, `"b","a"`, `["I",["x",1],[1,"x"]],["D",["y",1],[1,"y"]]`)},
		},
		{
			name:   "primary key change is delete and insert",
			create: []string{`CREATE TABLE t(k TEXT PRIMARY KEY, v)`},
			setup:  []string{`INSERT INTO t VALUES ('m', 1)`},
			change: []string{`UPDATE t SET k = 'a'`},
			want:   []string{rows("t", `"k","v"`, `"k"`, `["I",["a"],["a",1]],["D",["m"],["m",1]]`)},
		},
		{
			name:   "rowid change of a keyed table is nothing",
			create: []string{`CREATE TABLE t(k TEXT PRIMARY KEY, v)`},
			setup:  []string{`INSERT INTO t VALUES ('a', 1), ('b', 2)`},
			change: []string{`UPDATE t SET rowid = rowid + 100`},
		},
		{
			name:   "keys exchanged between rowids",
			create: []string{`CREATE TABLE t(k TEXT PRIMARY KEY, v)`},
			setup:  []string{`INSERT INTO t VALUES ('a', 1), ('b', 2), ('c', 3)`},
			change: []string{`UPDATE t SET k = 'x' WHERE k = 'a'`, `UPDATE t SET k = 'a' WHERE k = 'b'`, `UPDATE t SET k = 'b' WHERE k = 'x'`, `UPDATE t SET rowid = 9 WHERE k = 'c'`},
			want:   []string{rows("t", `"k","v"`, `"k"`, `["U",["a"],["a",2]],["U",["b"],["b",1]]`)},
		},
		{
			name:   "key spelled anew under its collation",
			create: []string{`CREATE TABLE t(k TEXT COLLATE NOCASE PRIMARY KEY, v) WITHOUT ROWID`},
			setup:  []string{`INSERT INTO t VALUES ('Red', 7)`},
			change: []string{`REPLACE INTO t VALUES ('RED', 7)`},
			want:   []string{rows("t", `"k","v"`, `"k"`, `["I",["RED"],["RED",7]],["D",["Red"],["Red",7]]`)},
		},
		{
			name:   "keys of every class in order",
			create: []string{`CREATE TABLE t(k PRIMARY KEY, v) WITHOUT ROWID`},
			change: []string{`INSERT INTO t VALUES (x'31',1), ('1',2), (1,3), (-1.5,4), (-1e300,5), (x'',6), ('',7), (-7,8), ('10',9), (x'3100',10), (0.5,11)`},
			want:   []string{rows("t", `"k","v"`, `"k"`, `["I",[-7],[-7,8]],["I",[1],[1,3]],["I",[-1e+300],[-1e+300,5]],["I",[-1.5],[-1.5,4]],["I",[0.5],[0.5,11]],["I",[""],["",7]],["I",["1"],["1",2]],["I",["10"],["10",9]],["I",[{"$blob":""}],[{"$blob":""},6]],["I",[{"$blob":"MQ=="}],[{"$blob":"MQ=="},1]],["I",[{"$blob":"MQA="}],[{"$blob":"MQA="},10]]`)},
		},
		{
			name:   "one key of two classes",
			create: []string{`CREATE TABLE t(k PRIMARY KEY, v) WITHOUT ROWID`},
			setup:  []string{`INSERT INTO t VALUES (1, 'i')`},
			change: []string{`REPLACE INTO t VALUES (1.0, 'r')`},
			want:   []string{rows("t", `"k","v"`, `"k"`, `["D",[1],[1,"i"]],["I",[1.0],[1.0,"r"]]`)},
		},
		{
			name:   "generated columns are left out",
			create: []string{`CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, v INT AS (a*2) VIRTUAL, s INT AS (a*3) STORED, z)`},
			setup:  []string{`INSERT INTO t(id,a,z) VALUES (1,5,'y')`},
			change: []string{`UPDATE t SET z = 'z'`},
			want:   []string{rows("t", `"id","a","z"`, `"id"`, `["U",[1],[1,5,"z"]]`)},
		},
		{
			name:   "shadowed rowid",
			create: []string{`CREATE TABLE t(_rowid_, v)`},
			change: []string{`INSERT INTO t VALUES ('x', 1)`},
			want:   []string{rows("t", `"_rowid_","v"`, `"rowid"`, `["I",[1],["x",1]]`)},
		},
		{
			name:   "rowid shadowed twice, in any case",
			create: []string{`CREATE TABLE t("ROWID", _RowId_)`},
			change: []string{`INSERT INTO t VALUES ('x', 1)`},
			want:   []string{rows("t", `"ROWID","_RowId_"`, `"oid"`, `["I",[1],["x",1]]`)},
		},
		{
			name:   "integer primary key desc is no alias",
			create: []string{`CREATE TABLE t(id INTEGER PRIMARY KEY DESC, v)`},
			change: []string{`INSERT INTO t VALUES (5,'x'),(NULL,'y'),(NULL,'z')`},
			want:   []string{rows("t", `"id","v"`, `"id"`, `["I",[5],[5,"x"]]`)},
		},
		{
			name:   "text that is not valid",
			create: []string{`CREATE TABLE t(id INTEGER PRIMARY KEY, v)`},
			change: []string{`INSERT INTO t VALUES (1, CAST(x'610062' AS TEXT)), (2, CAST(x'ff41c3' AS TEXT)), (3, '<a&b>' || char(0x2028)), (4, CAST(x'eda080' AS TEXT))`},
			want:   []string{rows("t", `"id","v"`, `"id"`, `["I",[1],[1,"a\u0000b"]],["I",[2],[2,{"$blob":"/0HD"}]],["I",[3],[3,"<a&b>`+"\u2028"+`"]],["I",[4],[4,{"$blob":"7aCA"}]]`)},
		},
		{
			name:   "nothing in the end",
			create: []string{`CREATE TABLE t(id INTEGER PRIMARY KEY, v)`},
			setup:  []string{`INSERT INTO t VALUES (1, 1)`},
			change: []string{`INSERT INTO t VALUES (2, 2)`, `DELETE FROM t WHERE id = 2`, `UPDATE t SET v = 1`, `CREATE INDEX i ON t(v)`, `ANALYZE`, `VACUUM`},
		},
		{
			name:   "recreated with the same text",
			create: []string{`CREATE TABLE t(id INTEGER PRIMARY KEY, v)`},
			setup:  []string{`INSERT INTO t VALUES (1,'a'),(2,'b')`},
			change: []string{`DROP TABLE t`, `CREATE TABLE t(id INTEGER PRIMARY KEY, v)`, `INSERT INTO t VALUES (2,'c')`},
			want:   []string{rows("t", `"id","v"`, `"id"`, `["D",[1],[1,"a"]],["U",[2],[2,"c"]]`)},
		},
		{
			name:   "names reserved and not",
			create: []string{`CREATE TABLE _cf_ALARM(a)`, `CREATE TABLE _Litestream_seq(a)`, `CREATE TABLE __queue_meta(a)`, `CREATE TABLE __kv_meta(a)`, `CREATE TABLE __queue(a)`, `CREATE TABLE cf_x(a)`, `CREATE VIEW w AS SELECT 1 AS a`},
			change: []string{`INSERT INTO _cf_ALARM VALUES (1)`, `INSERT INTO _litestream_seq VALUES (1)`, `INSERT INTO __queue_meta VALUES (1)`, `INSERT INTO __kv_meta VALUES (1)`, `INSERT INTO __queue VALUES (1)`, `INSERT INTO cf_x VALUES (1)`},
			want:   []string{rows("__queue", `"a"`, `"_rowid_"`, `["I",[1],[1]]`), rows("cf_x", `"a"`, `"_rowid_"`, `["I",[1],[1]]`)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newTape(t, tc.create...)
			s.unit(tc.setup...)
			got := s.bodies(tc.change...)
			check(t, got, tc.want...)
		})
	}
}

func TestNullKeysAreCounted(t *testing.T) {
	s := newTape(t, `CREATE TABLE t(id INT, b, PRIMARY KEY(id, b))`, `INSERT INTO t VALUES (NULL,1),(1,NULL),(1,1)`)
	s.unit()
	if s.stats.NullKeys != 2 || s.stats.Snapshot != 1 {
		t.Errorf("snapshot: %d rows left out and %d shown, want 2 and 1", s.stats.NullKeys, s.stats.Snapshot)
	}
	check(t, s.bodies(`UPDATE t SET id = 7 WHERE id IS NULL`, `DELETE FROM t WHERE b IS NULL`),
		rows("t", `"id","b"`, `"id","b"`, `["I",[7,1],[7,1]]`))
	if s.stats.NullKeys != 2 || s.stats.Inserts != 1 {
		t.Errorf("rows: %d sides left out and %d inserts, want 2 and 1", s.stats.NullKeys, s.stats.Inserts)
	}
	check(t, s.bodies(`INSERT INTO t VALUES (NULL, NULL)`))
}

func TestSchemaIsDescribedOncePerEpoch(t *testing.T) {
	s := newTape(t, `CREATE TABLE a(id INTEGER PRIMARY KEY)`, `CREATE TABLE b(id INTEGER PRIMARY KEY)`)
	s.unit()
	clear(s.described) // the next epoch
	schema := `live {"kind":"schema","table":"b","generation":1,"sql":"CREATE TABLE b(id INTEGER PRIMARY KEY)","columns":[{"name":"id","type":"INTEGER","pk":1,"not_null":false,"generated":false}]}`
	check(t, s.bodies(`INSERT INTO b VALUES (1)`), schema, rows("b", `"id"`, `"id"`, `["I",[1],[1]]`))
	check(t, s.bodies(`INSERT INTO b VALUES (2)`), rows("b", `"id"`, `"id"`, `["I",[2],[2]]`))
}

func TestUTF16IsTheSame(t *testing.T) {
	statements := []string{`CREATE TABLE "é"(k TEXT PRIMARY KEY, v)`, `INSERT INTO "é" VALUES ('😀é', char(0) || 'x'), ('a', 'ﬀ')`}
	var want []string
	for _, enc := range []string{"UTF-8", "UTF-16le", "UTF-16be"} {
		s := newTape(t, `PRAGMA encoding = '`+enc+`'`)
		got := s.unit(statements...)
		got = append(got, s.unit(`UPDATE "é" SET k = 'b' WHERE k = 'a'`)...)
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-UTF-8 +%s):\n%s", enc, enc, diff)
		}
	}
	s := newTape(t, `PRAGMA encoding = 'UTF-16le'`, `CREATE TABLE t(id INTEGER PRIMARY KEY, v)`)
	s.unit()
	check(t, s.bodies(`INSERT INTO t VALUES (1, CAST(x'00d8' AS TEXT))`),
		rows("t", `"id","v"`, `"id"`, `["I",[1],[1,{"$blob":"ANg="}]]`))
}

func bulk(tables ...string) string {
	var list []string
	for _, name := range tables {
		list = append(list, fmt.Sprintf(`{"table":%q,"generation":1}`, name))
	}
	return `live {"kind":"bulk","tables":[` + strings.Join(list, ",") + `]}`
}

func TestBulk(t *testing.T) {
	s := newTape(t,
		`CREATE TABLE bad(k TEXT PRIMARY KEY, v)`,
		`CREATE TABLE fine(id INTEGER PRIMARY KEY)`,
		`CREATE TABLE shadowed(rowid, _rowid_, oid)`,
		`CREATE TABLE big(id INTEGER PRIMARY KEY, v)`)
	s.opt.MaxRecordBytes = 1000
	first := s.bodies()
	if got := first[len(first)-1]; got != bulk("shadowed") {
		t.Errorf("last record %s, want the table without a key as bulk", got)
	}
	// Nothing changed in it, so it is not named again.
	s.d.exec(`INSERT INTO bad VALUES ('ok', 1)`, `INSERT INTO fine VALUES (1)`)
	check(t, s.bodies(`INSERT INTO bad VALUES (CAST(x'ff' AS TEXT), 1)`, `INSERT INTO big VALUES (1, zeroblob(1000))`, `INSERT INTO shadowed VALUES (1,2,3)`),
		rows("fine", `"id"`, `"id"`, `["I",[1],[1]]`),
		bulk("bad", "big", "shadowed"))
	want := []envelope.TableGeneration{{Table: "bad", Generation: 1}, {Table: "big", Generation: 1}, {Table: "shadowed", Generation: 1}}
	if diff := cmp.Diff(want, s.stats.Bulk); diff != "" || len(s.stats.Reasons) != 3 {
		t.Errorf("bulk %s, reasons %v", diff, s.stats.Reasons)
	}
	// The broken key is untouched here.
	check(t, s.bodies(`INSERT INTO bad VALUES ('also', 1)`), rows("bad", `"k","v"`, `"k"`, `["I",["also"],["also",1]]`))
}

func TestFragments(t *testing.T) {
	s := newTape(t, `CREATE TABLE log(msg)`)
	s.unit()
	s.opt.MaxRecordBytes = 450
	lines := s.unit(`INSERT INTO log VALUES ('` + strings.Repeat("a", 50) + `'), ('` + strings.Repeat("b", 50) + `'), ('c')`)
	if len(lines) != 2 || s.stats.Records != 1 || s.stats.Inserts != 3 {
		t.Fatalf("%d lines, %d records, %d rows; want 2, 1, 3:\n%s", len(lines), s.stats.Records, s.stats.Inserts, strings.Join(lines, "\n"))
	}
	for i, line := range lines {
		if want := fmt.Sprintf(`"fragment":%d,"fragments":2,"kind":"rows"`, i+1); !strings.Contains(line, want) {
			t.Errorf("%s lacks %s", line, want)
		}
	}
}
