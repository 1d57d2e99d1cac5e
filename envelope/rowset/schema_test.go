package rowset

import (
	"fmt"
	"strings"
	"testing"

	"celldexport/envelope"
	"celldexport/envelope/v8json"
)

// schemaOf is a schema record of a table with one column.
func schemaOf(origin, table string, gen int, sql, rest string) string {
	return fmt.Sprintf(`%s {"kind":"schema","table":%q,"generation":%d,"sql":%q,"columns":[%s`, origin, table, gen, sql, rest)
}

// column is a plain column in a schema record.
func column(name, declared string) string {
	return fmt.Sprintf(`{"name":%q,"type":%q,"pk":0,"not_null":false,"generated":false}`, name, declared)
}

// shown is a snapshot record of the n-th unit.
func shown(n int, table string, gen int, columns, keys, changes string) string {
	return fmt.Sprintf(`snapshot {"kind":"snapshot","snapshot_id":"ddl-179500000000%d-%d-0","table":%q,"generation":%d,"columns":[%s],"key_columns":[%s],"rows":[%s]}`,
		n, n, table, gen, columns, keys, changes)
}

// ended is the end of the snapshot of the n-th unit; tables are name, gen.
func ended(n int, tables ...any) string {
	var list []string
	for i := 0; i < len(tables); i += 2 {
		list = append(list, fmt.Sprintf(`{"table":%q,"generation":%d}`, tables[i], tables[i+1]))
	}
	return fmt.Sprintf(`snapshot {"kind":"snapshot_end","snapshot_id":"ddl-179500000000%d-%d-0","scope":"tables","tables":[%s],"records":%d}`,
		n, n, strings.Join(list, ","), len(list))
}

func TestAlterOpensNextGeneration(t *testing.T) {
	s := newTape(t, `CREATE TABLE t(a)`, `INSERT INTO t VALUES (1)`)
	s.unit()
	// The rows of the same unit are in the snapshot.
	check(t, s.bodies(`INSERT INTO t VALUES (2)`, `ALTER TABLE t ADD COLUMN d TEXT DEFAULT 'it''s'`),
		schemaOf("snapshot", "t", 2, `CREATE TABLE t(a, d TEXT DEFAULT 'it''s')`, column("a", "")+`,`+column("d", "TEXT")+`]}`),
		shown(2, "t", 2, `"a","d"`, `"_rowid_"`, `["I",[1],[1,"it's"]],["I",[2],[2,"it's"]]`),
		ended(2, "t", 2))
	check(t, s.bodies(`ALTER TABLE t RENAME COLUMN a TO b`),
		schemaOf("snapshot", "t", 3, `CREATE TABLE t(b, d TEXT DEFAULT 'it''s')`, column("b", "")+`,`+column("d", "TEXT")+`]}`),
		shown(3, "t", 3, `"b","d"`, `"_rowid_"`, `["I",[1],[1,"it's"]],["I",[2],[2,"it's"]]`),
		ended(3, "t", 3))
}

func TestDropAndCreateLater(t *testing.T) {
	s := newTape(t, `CREATE TABLE t(a)`, `INSERT INTO t VALUES (1)`)
	s.unit()
	check(t, s.bodies(`DROP TABLE t`),
		schemaOf("live", "t", 1, `CREATE TABLE t(a)`, `],"dropped":true}`))
	check(t, s.bodies())
	check(t, s.bodies(`CREATE TABLE t(a)`),
		schemaOf("snapshot", "t", 2, `CREATE TABLE t(a)`, column("a", "")+`]}`),
		shown(4, "t", 2, `"a"`, `"_rowid_"`, ``),
		ended(4, "t", 2))
}

func TestRename(t *testing.T) {
	s := newTape(t, `CREATE TABLE a(x)`, `INSERT INTO a VALUES (1)`)
	s.unit()
	check(t, s.bodies(`ALTER TABLE a RENAME TO "b ""c"`),
		schemaOf("snapshot", `b "c`, 1, `CREATE TABLE "b ""c"(x)`, column("x", "")+`],"renamed_from":"a"}`),
		shown(2, `b "c`, 1, `"x"`, `"_rowid_"`, `["I",[1],[1]]`),
		ended(2, `b "c`, 1))
	// Back under the old name, which goes on with its next generation.
	check(t, s.bodies(`ALTER TABLE "b ""c" RENAME TO a`),
		schemaOf("snapshot", "a", 2, `CREATE TABLE "a"(x)`, column("x", "")+`],"renamed_from":"b \"c"}`),
		shown(3, "a", 2, `"x"`, `"_rowid_"`, `["I",[1],[1]]`),
		ended(3, "a", 2))
}

// A rename changes the SQL text wherever a table refers to itself. Whether that
// is all it changed is held against what SQLite writes.
func TestRenameOfTableThatRefersToItself(t *testing.T) {
	for _, tc := range []struct {
		name, create, rename, from, to string
		renamed                        bool
	}{
		{"references", `CREATE TABLE a(x INTEGER PRIMARY KEY, p REFERENCES a(x))`, `ALTER TABLE a RENAME TO b`, "a", "b", true},
		{"references, any case and quotes", `CREATE TABLE a(x INTEGER PRIMARY KEY, p references/* c */ [A], q REFERENCES"a"(x), r REFERENCES 'a', s REFERENCES ` + "`a`" + `(x))`, `ALTER TABLE a RENAME TO b`, "a", "b", true},
		{"foreign key", "CREATE TABLE a(x INTEGER PRIMARY KEY, p, -- of a\n FOREIGN KEY(p) REFERENCES\n a(x) ON DELETE CASCADE)", `ALTER TABLE a RENAME TO "it's [b]"`, "a", "it's [b]", true},
		{"check", `CREATE TABLE a(x CHECK(a.x > 0 AND "a" . x < 100 AND x <> 'a.x'), a)`, `ALTER TABLE a RENAME TO b`, "a", "b", true},
		{"column of its name", `CREATE TABLE a(a INTEGER PRIMARY KEY, p REFERENCES a(a), CHECK(a.a > 0))`, `ALTER TABLE a RENAME TO a2`, "a", "a2", true},
		{"quotes to be doubled", `CREATE TABLE "a""b"(x UNIQUE, p REFERENCES "a""b"(x), CHECK("a""b".x > 0))`, `ALTER TABLE "a""b" RENAME TO "c""d"`, `a"b`, `c"d`, true},
		{"case alone", `CREATE TABLE a(x UNIQUE, p REFERENCES a(x))`, `ALTER TABLE a RENAME TO t; ALTER TABLE t RENAME TO A`, "a", "A", true},
		{"without rowid", `CREATE TABLE a(x PRIMARY KEY, p REFERENCES a(x)) WITHOUT ROWID`, `ALTER TABLE a RENAME TO b`, "a", "b", true},
		{"another reference", `CREATE TABLE a(x UNIQUE, p REFERENCES a(x))`, `DROP TABLE a; CREATE TABLE b(x UNIQUE, p REFERENCES c(x))`, "a", "b", false},
		{"another column", `CREATE TABLE a(a)`, `DROP TABLE a; CREATE TABLE b(b)`, "a", "b", false},
		{"another default", `CREATE TABLE a(x DEFAULT 'a')`, `DROP TABLE a; CREATE TABLE b(x DEFAULT 'b')`, "a", "b", false},
		{"another comment", `CREATE TABLE a(x /* a. */)`, `DROP TABLE a; CREATE TABLE b(x /* b. */)`, "a", "b", false},
		{"more", `CREATE TABLE a(x INT)`, `DROP TABLE a; CREATE TABLE b(x INT)STRICT`, "a", "b", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newTape(t, tc.create)
			before := s.d.capture().schema.ByName(tc.from)
			s.unit()
			var renamed, dropped bool
			for _, line := range s.unit(tc.rename) {
				r, err := envelope.Decode([]byte(line))
				if err != nil {
					t.Fatal(err)
				}
				if b, ok := r.Body.(*envelope.Schema); ok {
					renamed = renamed || b.Table == tc.to && b.RenamedFrom != nil && *b.RenamedFrom == tc.from
					dropped = dropped || b.Table == tc.from && b.Dropped
				}
			}
			if after := s.last.schema.ByName(tc.to); renamed != tc.renamed || dropped == tc.renamed || after.Root != before.Root {
				t.Errorf("renamed %v, dropped %v, want %v: %s\nbecame %s (root %d, %d)", renamed, dropped, tc.renamed, before.SQL, after.SQL, before.Root, after.Root)
			}
		})
	}
}

// Where VACUUM moves the table in the unit that renames it, nothing is left
// that tells it from a drop and a create.
func TestRenameAndVacuum(t *testing.T) {
	s := newTape(t, `CREATE TABLE pad(y)`, `CREATE TABLE a(x)`, `INSERT INTO a VALUES (1)`)
	s.unit()
	check(t, s.bodies(`DROP TABLE pad`, `ALTER TABLE a RENAME TO b`, `VACUUM`),
		schemaOf("live", "a", 1, `CREATE TABLE a(x)`, `],"dropped":true}`),
		schemaOf("live", "pad", 1, `CREATE TABLE pad(y)`, `],"dropped":true}`),
		schemaOf("snapshot", "b", 1, `CREATE TABLE "b"(x)`, column("x", "")+`]}`),
		shown(2, "b", 1, `"x"`, `"_rowid_"`, `["I",[1],[1]]`),
		ended(2, "b", 1))
}

// A rename whose old name is taken again is none: every name involved opens
// its next generation.
func TestRenameUnderTakenName(t *testing.T) {
	for _, tc := range []struct {
		name       string
		statements []string
		want       []string
	}{
		{"rename and create", []string{`ALTER TABLE a RENAME TO c`, `CREATE TABLE a(z)`}, []string{"a 2", "c 1"}},
		{"swap", []string{`ALTER TABLE a RENAME TO x`, `ALTER TABLE b RENAME TO a`, `ALTER TABLE x RENAME TO b`}, []string{"a 2", "b 2"}},
		{"rebuild", []string{`CREATE TABLE new(x, y)`, `INSERT INTO new SELECT x, 1 FROM a`, `DROP TABLE a`, `ALTER TABLE new RENAME TO a`}, []string{"a 2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newTape(t, `CREATE TABLE a(x)`, `CREATE TABLE b(y)`, `INSERT INTO a VALUES (1)`)
			s.unit()
			var got []string
			for _, line := range s.unit(tc.statements...) {
				r, err := envelope.Decode([]byte(line))
				if err != nil {
					t.Fatal(err)
				}
				switch b := r.Body.(type) {
				case *envelope.Schema:
					if b.RenamedFrom != nil || b.Dropped {
						t.Errorf("%s: neither a rename nor a drop", line)
					}
					got = append(got, fmt.Sprint(b.Table, " ", b.Generation))
				case *envelope.SnapshotEnd:
					if len(b.Tables) != len(tc.want) {
						t.Errorf("%d tables in the snapshot, want %d", len(b.Tables), len(tc.want))
					}
				case *envelope.Rows:
					t.Errorf("%s: rows of a table whose definition changed", line)
				}
			}
			check(t, got, tc.want...)
		})
	}
}

func TestRenameRewritesReferences(t *testing.T) {
	s := newTape(t, `CREATE TABLE p(id INTEGER PRIMARY KEY)`, `CREATE TABLE c(x REFERENCES p(id))`)
	s.unit()
	check(t, s.bodies(`ALTER TABLE p RENAME TO q`),
		schemaOf("snapshot", "c", 2, `CREATE TABLE c(x REFERENCES "q"(id))`, column("x", "")+`]}`),
		schemaOf("snapshot", "q", 1, `CREATE TABLE "q"(id INTEGER PRIMARY KEY)`, `{"name":"id","type":"INTEGER","pk":1,"not_null":false,"generated":false}],"renamed_from":"p"}`),
		shown(2, "c", 2, `"x"`, `"_rowid_"`, ``),
		shown(2, "q", 1, `"id"`, `"id"`, ``),
		ended(2, "c", 2, "q", 1))
}

func TestVirtualTables(t *testing.T) {
	s := newTape(t)
	const sql = `CREATE VIRTUAL TABLE docs USING fts5(body)`
	check(t, s.bodies(sql, `INSERT INTO docs VALUES ('words')`),
		schemaOf("live", "docs", 1, sql, `],"unsupported":true}`))
	clear(s.described)
	check(t, s.bodies(`INSERT INTO docs VALUES ('more')`))
	check(t, s.bodies(`DROP TABLE docs`), schemaOf("live", "docs", 1, sql, `],"dropped":true,"unsupported":true}`))
}

func TestUnreadableTable(t *testing.T) {
	s := newTape(t, `CREATE TABLE t(a)`, `CREATE TABLE u(a)`)
	after := s.d.capture()
	broken := after.schema.ByName("t")
	broken.Unreadable, broken.Columns = "more columns than SQLite allows here", nil
	s.txid++
	src := &fake{before: empty(), after: after}
	got := s.short(s.encode(s.plan(src), src))
	check(t, got[:1], schemaOf("live", "t", 1, `CREATE TABLE t(a)`, `],"unsupported":true}`))
	if len(got) != 4 || len(s.stats.Reasons) != 1 || !strings.Contains(s.stats.Reasons[0].Reason, "more columns") {
		t.Errorf("%d records, reasons %v; want the other table shown and one reason", len(got), s.stats.Reasons)
	}
}

func TestDenyRule(t *testing.T) {
	s := newTape(t, `CREATE TABLE t(a)`, `CREATE TABLE u(a)`)
	denied := map[string]bool{"u": true}
	s.opt.Deny = func(name string) bool { return denied[name] }
	check(t, s.bodies(`INSERT INTO u VALUES (1)`),
		schemaOf("snapshot", "t", 1, `CREATE TABLE t(a)`, column("a", "")+`]}`),
		shown(1, "t", 1, `"a"`, `"_rowid_"`, ``), ended(1, "t", 1))
	if got := s.gens["u"]; len(got) != 1 || got[0].Closed == nil {
		t.Errorf("the ledger has %v of a table denied from the start, want a closed generation", got)
	}
	denied["t"], denied["u"] = true, false
	check(t, s.bodies(`INSERT INTO t VALUES (1)`),
		schemaOf("live", "t", 1, `CREATE TABLE t(a)`, `],"dropped":true}`),
		schemaOf("snapshot", "u", 2, `CREATE TABLE u(a)`, column("a", "")+`]}`),
		shown(2, "u", 2, `"a"`, `"_rowid_"`, `["I",[1],[1]]`), ended(2, "u", 2))
	check(t, s.bodies(`ALTER TABLE t ADD COLUMN b`, `INSERT INTO t VALUES (2,3)`))
	denied["t"] = false
	check(t, s.bodies(),
		schemaOf("snapshot", "t", 2, `CREATE TABLE t(a, b)`, column("a", "")+`,`+column("b", "")+`]}`),
		shown(4, "t", 2, `"a","b"`, `"_rowid_"`, `["I",[1],[1,null]],["I",[2],[2,3]]`), ended(4, "t", 2))
	// A table renamed from a denied name says nothing of it.
	denied["t"] = true
	s.unit()
	check(t, s.bodies(`ALTER TABLE t RENAME TO v`)[:1],
		schemaOf("snapshot", "v", 1, `CREATE TABLE "v"(a, b)`, column("a", "")+`,`+column("b", "")+`]}`))
}

func TestKeyValueTables(t *testing.T) {
	const kv = `CREATE TABLE _cf_KV(scope TEXT, k TEXT, v TEXT, PRIMARY KEY(scope,k))`
	s := newTape(t, kv, `CREATE TABLE kv(id INTEGER PRIMARY KEY)`, `CREATE TABLE _CF_kv2(a)`)
	denied := map[string]bool{}
	s.opt.Deny = func(name string) bool { return denied[name] }
	check(t, s.bodies(`INSERT INTO _cf_KV VALUES ('Shelf:a17', 'b', x'ff0f30'), ('Shelf:other', 'b', x'00'), (x'00', 'b', 1), (NULL, 'b', 1)`),
		schemaOf("snapshot", "_cf_SQL_kv", 1, `CREATE TABLE kv(id INTEGER PRIMARY KEY)`, `{"name":"id","type":"INTEGER","pk":1,"not_null":false,"generated":false}]}`),
		schemaOf("snapshot", "kv", 1, kv, `{"name":"key","type":"TEXT","pk":1,"not_null":true,"generated":false},{"name":"value","type":"","pk":0,"not_null":false,"generated":false}]}`),
		shown(1, "_cf_SQL_kv", 1, `"id"`, `"id"`, ``),
		shown(1, "kv", 1, `"key","value"`, `"key"`, `["I",["b"],["b",{"$blob":"/w8w"}]]`),
		ended(1, "_cf_SQL_kv", 1, "kv", 1))
	check(t, s.bodies(`UPDATE _cf_KV SET v = x'01' WHERE scope = 'Shelf:a17'`,
		`INSERT INTO _cf_KV VALUES ('Shelf:a17', 'int', 5), ('Shelf:a17', 'real', CAST(2 AS REAL)), ('Shelf:a17', 'null', NULL),
			('Shelf:a17', 'json', ' { "a" : [1, "x"] } '), ('Shelf:a17', 'broken', '{"a":'), ('Shelf:a17', 'bytes', CAST(x'22ff22' AS TEXT))`),
		rows("kv", `"key","value"`, `"key"`, `["U",["b"],["b",{"$blob":"AQ=="}]],["I",["broken"],["broken",{"$blob":"eyJhIjo="}]],["I",["bytes"],["bytes",{"$blob":"Iv8i"}]],`+
			`["I",["int"],["int","5"]],["I",["json"],["json","{\"a\":[1,\"x\"]}"]],["I",["null"],["null",null]],["I",["real"],["real","2.0"]]`))
	// Rows that change their scope come and go.
	check(t, s.bodies(`UPDATE _cf_KV SET scope = 'x' WHERE k = 'int'`, `DELETE FROM _cf_KV WHERE scope = 'Shelf:a17' AND k = 'b'`, `UPDATE _cf_KV SET scope = 'Shelf:a17' WHERE scope = 'Shelf:other'`),
		rows("kv", `"key","value"`, `"key"`, `["U",["b"],["b",{"$blob":"AA=="}]],["D",["int"],["int","5"]]`))
	denied["kv"] = true
	check(t, s.bodies(`INSERT INTO kv VALUES (7)`, `DELETE FROM _cf_KV`),
		schemaOf("live", "kv", 1, kv, `],"dropped":true}`),
		rows("_cf_SQL_kv", `"id"`, `"id"`, `["I",[7],[7]]`))
	check(t, s.bodies(`ALTER TABLE kv RENAME TO mine`)[:1],
		schemaOf("snapshot", "mine", 1, `CREATE TABLE "mine"(id INTEGER PRIMARY KEY)`, `{"name":"id","type":"INTEGER","pk":1,"not_null":false,"generated":false}],"renamed_from":"_cf_SQL_kv"}`))
}

// TestStoredValues is the table of the storage API with real stored values and
// every class that older versions wrote.
func TestStoredValues(t *testing.T) {
	s := newTape(t, `CREATE TABLE _cf_KV(scope TEXT, k TEXT, v TEXT, PRIMARY KEY(scope,k))`)
	s.opt.DecodeKV = new(v8json.Decoder).Append
	s.unit()
	check(t, s.bodies(`INSERT INTO _cf_KV VALUES
		('Shelf:a17', 'a', x'ff0f6f220524646174652201787b01'), ('Shelf:a17', 'b', x'ff0f6f220473656c665e007b01'),
		('Shelf:a17', 'c', x'01ff0f4902'), ('Shelf:a17', 'd', '{"z": 1.0, "a": "\u0041"}'), ('Shelf:a17', 'e', '{broken'),
		('Shelf:a17', 'f', 7), ('Shelf:a17', 'g', NULL), ('Shelf:a17', 'h', '"\ud800"'), ('Shelf:b', 'a', x'ff0f30')`,
		`INSERT INTO _cf_KV VALUES ('Shelf:a17', 'i', CAST(0.5 AS REAL))`),
		rows("kv", `"key","value"`, `"key"`, `["I",["a"],["a","{\"$object\":{\"$date\":\"x\"}}"]],["I",["b"],["b",{"$blob":"/w9vIgRzZWxmXgB7AQ=="}]],`+
			`["I",["c"],["c","{\"$stub\":1}"]],["I",["d"],["d","{\"z\":1.0,\"a\":\"A\"}"]],["I",["e"],["e",{"$blob":"e2Jyb2tlbg=="}]],`+
			`["I",["f"],["f","7"]],["I",["g"],["g",null]],["I",["h"],["h",{"$blob":"Ilx1ZDgwMCI="}]],["I",["i"],["i","0.5"]]`))
}

func TestDecodedKeyValue(t *testing.T) {
	s := newTape(t, `CREATE TABLE _cf_KV(scope TEXT, k TEXT, v TEXT, PRIMARY KEY(scope,k))`)
	s.opt.DecodeKV = func(dst, stored []byte) ([]byte, bool) {
		if stored[0] != 0xff {
			return nil, false
		}
		return append(dst, `{"n":1}`...), true
	}
	s.unit()
	check(t, s.bodies(`INSERT INTO _cf_KV VALUES ('Shelf:a17', 'a', x'ff'), ('Shelf:a17', 'b', x'00')`),
		rows("kv", `"key","value"`, `"key"`, `["I",["a"],["a","{\"n\":1}"]],["I",["b"],["b",{"$blob":"AA=="}]]`))
}

func TestNamespaceBlobKey(t *testing.T) {
	const digest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
	s := newTape(t, `CREATE TABLE __kv(name TEXT PRIMARY KEY, value BLOB, blob_id TEXT) WITHOUT ROWID`, `CREATE TABLE __kv_meta(name PRIMARY KEY, value INTEGER) WITHOUT ROWID`)
	first := s.bodies()
	if want := `{"name":"blob_id","type":"TEXT","pk":0,"not_null":false,"generated":false},{"name":"blob_key","type":"TEXT","pk":0,"not_null":false,"generated":false}]}`; !strings.HasSuffix(first[0], want) {
		t.Errorf("schema %s, want it to end with %s", first[0], want)
	}
	check(t, s.bodies(`INSERT INTO __kv VALUES ('a', NULL, 'v2:e12:`+digest+`'), ('b', NULL, '`+digest+`'), ('c', x'01', NULL), ('d', NULL, 'v2:eX:`+digest+`'), ('e', NULL, '../x')`),
		rows("__kv", `"name","value","blob_id","blob_key"`, `"name"`,
			`["I",["a"],["a",null,"v2:e12:`+digest+`","kv/blobs-v2/Shelf:a17/e12/`+digest+`"]],`+
				`["I",["b"],["b",null,"`+digest+`","kv/blobs/Shelf:a17/`+digest+`"]],`+
				`["I",["c"],["c",{"$blob":"AQ=="},null,null]],`+
				`["I",["d"],["d",null,"v2:eX:`+digest+`",null]],`+
				`["I",["e"],["e",null,"../x",null]]`))
	old := newTape(t, `CREATE TABLE __kv(name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID`)
	if got := old.bodies(); strings.Contains(got[0], "blob_key") {
		t.Errorf("%s: a table without blob_id gained a blob_key", got[0])
	}
}

// Values of old versions, in a table whose column keeps their classes.
func TestLegacyKeyValueClasses(t *testing.T) {
	s := newTape(t, `CREATE TABLE _cf_KV(scope, k, v, PRIMARY KEY(scope,k))`)
	s.unit()
	check(t, s.bodies(`INSERT INTO _cf_KV VALUES ('Shelf:a17', 1, -7), ('Shelf:a17', 'b', 1e300), ('Shelf:a17', 'c', -9e999), ('Shelf:a17', 'd', NULL), ('Shelf:a17', NULL, 1), (5, 'e', 1)`),
		rows("kv", `"key","value"`, `"key"`, `["I",[1],[1,"-7"]],["I",["b"],["b","1e+300"]],["I",["c"],["c",{"$blob":"//AAAAAAAAA="}]],["I",["d"],["d",null]]`))
	if s.stats.NullKeys != 1 {
		t.Errorf("%d rows with a NULL key, want 1", s.stats.NullKeys)
	}
	s = newTape(t, `CREATE TABLE _cf_KV(scope, key, value)`)
	if got := s.bodies(); len(got) != 2 || got[1] != bulk("kv") {
		t.Errorf("%v: want a table of unknown columns described and bulk", got)
	}
	s = newTape(t, `PRAGMA encoding = 'UTF-16le'`, `CREATE TABLE _cf_KV(scope, k, v, PRIMARY KEY(scope,k))`)
	s.unit()
	check(t, s.bodies(`INSERT INTO _cf_KV VALUES ('Shelf:a17', 'é', '[ 1 ]'), ('Shelf:a17', 'x', CAST(x'00d8' AS TEXT))`),
		rows("kv", `"key","value"`, `"key"`, `["I",["x"],["x",{"$blob":"ANg="}]],["I",["é"],["é","[1]"]]`))
}
