package rowset

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/envelope"
	"celldexport/envelope/apply"
	"celldexport/internal/ledger"
)

// blind follows a database by its pages alone and applies the records to a
// consumer: for databases that the SQLite of this process cannot read.
type blind struct {
	t     *testing.T
	d     *database
	p     *pages
	state *apply.State
	gens  map[string][]ledger.Generation
	txid  uint64
	stats Stats
}

func newBlind(t *testing.T, statements ...string) *blind {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cell.db")
	d := openDatabase(t, path).exec("PRAGMA journal_mode = MEMORY", "PRAGMA synchronous = OFF").exec(statements...)
	return &blind{t: t, d: d, p: newPages(t, path), state: apply.New(), gens: map[string][]ledger.Generation{}}
}

// unit executes statements as one unit and returns its records, shortened.
func (r *blind) unit(statements ...string) []string {
	r.t.Helper()
	r.d.exec(statements...)
	r.txid++
	change := r.p.change()
	defer func() {
		if err := change.Close(); err != nil {
			r.t.Error(err)
		}
	}()
	opt := Options{Scope: "Shelf:a17", MaxRecordBytes: 1 << 20, MemoryBytes: 1 << 20, TempDir: r.t.TempDir()}
	plan, err := NewPlan(change.After(), change.Before(), r.gens, ledger.Mark{Epoch: 4, TXID: r.txid}, ledger.Mark{Epoch: 4, TXID: r.txid - 1}, opt)
	if err != nil {
		r.t.Fatal(err)
	}
	var lines []string
	r.stats, err = plan.Encode(testEnvelope(r.txid), change, nil, func(e *envelope.Encoded) error {
		lines = append(lines, string(e.AppendJSON(nil)))
		return nil
	})
	if err == nil {
		err = change.Accept()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	maps.Copy(r.gens, plan.Ledger())
	addAll(r.t, r.state, lines)
	return lines
}

// rewrite gives a table the text that another writer, with more functions,
// collations or grammar than ours, would have stored.
func rewrite(table, from, to string) []string {
	q := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	return []string{"PRAGMA writable_schema = ON", fmt.Sprintf("UPDATE sqlite_schema SET sql = replace(sql, %s, %s) WHERE name = %s", q(from), q(to), q(table))}
}

// holds compares what the consumer has of a table: key and row.
func (r *blind) holds(table string, want ...string) {
	r.t.Helper()
	got, uncertain := consumer(r.state)
	want = append([]string{}, want...)
	slices.Sort(want)
	if uncertain[table] || got[table] == nil {
		r.t.Fatalf("the consumer has no certain table %q: %v, uncertain %v", table, got, uncertain)
	}
	if diff := cmp.Diff(want, got[table]); diff != "" {
		r.t.Errorf("table %s (-want +got):\n%s", table, diff)
	}
}

// only checks that the consumer heard of these tables alone.
func (r *blind) only(names ...string) {
	r.t.Helper()
	got, uncertain := consumer(r.state)
	for name := range uncertain {
		got[name] = nil
	}
	if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, names) {
		r.t.Errorf("the consumer heard of %q, want %q", have, names)
	}
}

func TestUnknownCollation(t *testing.T) {
	r := newBlind(t, `CREATE TABLE t(k TEXT COLLATE NOCASE PRIMARY KEY, v) WITHOUT ROWID`, `CREATE TABLE u(id INTEGER PRIMARY KEY, n TEXT COLLATE NOCASE UNIQUE)`,
		`INSERT INTO t VALUES ('a', 1), ('b', 2)`, `INSERT INTO u VALUES (1, 'x'), (2, 'y')`)
	r.unit(append(rewrite("t", "NOCASE", "KLINGON"), rewrite("u", "NOCASE", "KLINGON")...)...)
	r.unit(`UPDATE t SET v = 3 WHERE k = 'A'`, `DELETE FROM t WHERE k = 'b'`, `INSERT INTO t VALUES ('c', 4)`, `UPDATE u SET n = 'X' WHERE id = 1`)
	r.holds("t", `["a"]["a",3]`, `["c"]["c",4]`)
	r.holds("u", `[1][1,"X"]`, `[2][2,"y"]`)
}

func TestUnknownFunctions(t *testing.T) {
	r := newBlind(t, `CREATE TABLE t(id INTEGER PRIMARY KEY, a CHECK(abs(a) > 0), d DEFAULT (abs(-4)), v AS (abs(a)), s AS (abs(a)) STORED, z)`,
		`CREATE INDEX i ON t(abs(z))`, `INSERT INTO t(id, a, z) VALUES (1, -2, 'z')`)
	r.unit(append(rewrite("t", "abs(", "writers_own("), rewrite("i", "abs(", "writers_own(")...)...)
	r.unit(`UPDATE t SET a = -5`, `INSERT INTO t(id, a, z) VALUES (2, 3, 'y')`)
	r.holds("t", `[1][1,-5,4,"z"]`, `[2][2,3,4,"y"]`)
}

func TestUnknownModule(t *testing.T) {
	r := newBlind(t, `CREATE VIRTUAL TABLE v USING rtree(id, a, b)`, `INSERT INTO v VALUES (1, 2, 3)`, `CREATE TABLE plain(id INTEGER PRIMARY KEY)`)
	r.unit(rewrite("v", "USING rtree(id, a, b)", "USING writers_own(whatever < ')')")...)
	// Whose tables v_node and the others are, only the module could say: they
	// are exported rather than lost.
	r.only("plain", "v", "v_node", "v_parent", "v_rowid")
	r.unit(`INSERT INTO plain VALUES (7)`)
	r.holds("plain", `[7][7]`)
}

// A table that our SQLite cannot read, and what stands around it.
func TestBrokenNeighbour(t *testing.T) {
	r := newBlind(t, `CREATE TABLE a(id INTEGER PRIMARY KEY, v)`, `CREATE TABLE odd(x)`, `CREATE TABLE z(k PRIMARY KEY, v) WITHOUT ROWID`)
	r.unit()
	r.only("a", "odd", "z")
	r.unit(append(rewrite("odd", "(x)", "(x FROM THE FUTURE ("), `INSERT INTO odd VALUES (1)`, `INSERT INTO a VALUES (1, 'one')`)...)
	r.unit(`INSERT INTO odd VALUES (2)`, `INSERT INTO z VALUES ('k', 'two')`, `UPDATE a SET v = 'uno'`)
	r.holds("a", `[1][1,"uno"]`)
	r.holds("z", `["k"]["k","two"]`)
}

func TestTwoThousandColumns(t *testing.T) {
	columns, values := make([]string, 2000), make([]string, 2000)
	for i := range columns {
		columns[i], values[i] = fmt.Sprintf("c%d", i), fmt.Sprint(i)
	}
	r := newBlind(t, `PRAGMA page_size = 512`, `CREATE TABLE wide(`+strings.Join(columns[:1999], ",")+`)`)
	r.unit()
	r.unit(`INSERT INTO wide VALUES (` + strings.Join(values[:1999], ",") + `)`)
	r.unit(`ALTER TABLE wide ADD COLUMN c1999 REAL DEFAULT 1`)
	values[1999] = "1.0"
	r.holds("wide", "[1]["+strings.Join(values, ",")+"]")
	r.unit(`UPDATE wide SET c1000 = 'changed', c1998 = NULL`)
	values[1000], values[1998] = `"changed"`, "null"
	r.holds("wide", "[1]["+strings.Join(values, ",")+"]")
	if r.stats.Updates != 1 || len(r.stats.Bulk) > 0 {
		t.Errorf("%+v, want one update", r.stats)
	}
}

// Names that differ in case alone are one to SQLite, which opens a database
// that has both only for writable_schema: the first is exported, of the second
// it is said why not. Reserved prefixes hold in any case, other names exactly.
func TestNamesInEveryCase(t *testing.T) {
	r := newBlind(t, `CREATE TABLE kv(a)`, `CREATE TABLE "KV2"(a)`, `CREATE TABLE "_Cf_x"(a)`, `CREATE TABLE "_LITESTREAM_y"(a)`, `CREATE TABLE "__Queue_z"(a)`, `CREATE TABLE "__kv_META"(a)`,
		`CREATE TABLE t(a)`, `CREATE TABLE u(a)`, `INSERT INTO t VALUES (1)`, `INSERT INTO u VALUES (2)`)
	r.unit(`PRAGMA writable_schema = ON`, `UPDATE sqlite_schema SET name = 'T', tbl_name = 'T', sql = 'CREATE TABLE T(a)' WHERE name = 'u'`)
	r.only("KV2", "T", "__Queue_z", "__kv_META", "_cf_SQL_kv", "t")
	r.holds("t", `[1][1]`)
	if r.holds("T"); len(r.stats.Reasons) != 1 || r.stats.Reasons[0].Table != "T" {
		t.Errorf("reasons %v, want one for T", r.stats.Reasons)
	}
}

func TestGeneratedColumns(t *testing.T) {
	s := newTape(t, `CREATE TABLE t(v AS (b || 'v'), a PRIMARY KEY, s AS (b || 's') STORED, b, w INT GENERATED ALWAYS AS (length(b)) VIRTUAL) WITHOUT ROWID`,
		`CREATE TABLE u(s REAL AS (a * 2) STORED, a, v AS (s), z)`)
	s.unit()
	check(t, s.bodies(`INSERT INTO t(a, b) VALUES ('k', 'x')`, `INSERT INTO u(a, z) VALUES (1, 'z')`),
		rows("t", `"a","b"`, `"a"`, `["I",["k"],["k","x"]]`), rows("u", `"a","z"`, `"_rowid_"`, `["I",[1],[1,"z"]]`))
	check(t, s.bodies(`UPDATE t SET b = 'y'`, `UPDATE u SET a = '1.0'`),
		rows("t", `"a","b"`, `"a"`, `["U",["k"],["k","y"]]`), rows("u", `"a","z"`, `"_rowid_"`, `["U",[1],["1.0","z"]]`))
	check(t, s.bodies(`UPDATE u SET a = a, z = z`))
}

func TestShadowedRowids(t *testing.T) {
	s := newTape(t, `CREATE TABLE a(rowid, v)`, `CREATE TABLE b("ROWID", _rowid_)`, `CREATE TABLE c(rowid INTEGER PRIMARY KEY, oid, _rowid_)`, `CREATE TABLE d(rowid, oid, _ROWID_)`)
	s.unit()
	check(t, s.bodies(`INSERT INTO a VALUES ('r', 1)`, `INSERT INTO b VALUES ('r', 2)`, `INSERT INTO c VALUES (9, 'o', 3)`, `INSERT INTO d VALUES ('r', 'o', 4)`),
		rows("a", `"rowid","v"`, `"_rowid_"`, `["I",[1],["r",1]]`),
		rows("b", `"ROWID","_rowid_"`, `"oid"`, `["I",[1],["r",2]]`),
		rows("c", `"rowid","oid","_rowid_"`, `"rowid"`, `["I",[9],[9,"o",3]]`),
		bulk("d"))
}

func TestStrictTables(t *testing.T) {
	s := newTape(t, `CREATE TABLE t(id INTEGER PRIMARY KEY, i INT, r REAL, x TEXT, b BLOB, a ANY) STRICT`, `CREATE TABLE w(a ANY PRIMARY KEY) STRICT, WITHOUT ROWID`)
	s.unit()
	check(t, s.bodies(`INSERT INTO t VALUES (1, '5', 6, 7, x'08', '9'), (2, 5.0, 6.5, 'x', x'', 9.0)`, `INSERT INTO w VALUES ('1'), (1), (x'31')`),
		rows("t", `"id","i","r","x","b","a"`, `"id"`, `["I",[1],[1,5,6.0,"7",{"$blob":"CA=="},"9"]],["I",[2],[2,5,6.5,"x",{"$blob":""},9.0]]`),
		rows("w", `"a"`, `"a"`, `["I",[1],[1]],["I",["1"],["1"]],["I",[{"$blob":"MQ=="}],[{"$blob":"MQ=="}]]`))
	check(t, s.bodies(`UPDATE t SET r = 6.0, i = 5 WHERE id = 1`))
}

// What SQLite and its modules keep for themselves is no table of the
// application, whatever changes in it.
func TestTablesNobodyMade(t *testing.T) {
	r := newBlind(t, `CREATE TABLE seq(id INTEGER PRIMARY KEY AUTOINCREMENT, v)`, `CREATE INDEX i ON seq(v)`, `CREATE VIRTUAL TABLE docs USING fts5(body)`, `CREATE VIRTUAL TABLE box USING rtree(id, a, b)`,
		`CREATE VIRTUAL TABLE emb USING fts5(x)`, `CREATE TABLE emb_chunks(a)`, `CREATE TABLE emb_vector_chunks00(a)`)
	r.unit(append(rewrite("emb", "fts5(x)", "vec0(x float[4])"), `INSERT INTO docs VALUES ('words')`, `INSERT INTO box VALUES (1, 2, 3)`)...)
	r.only("box", "docs", "emb", "emb_config", "emb_content", "emb_data", "emb_docsize", "emb_idx", "seq")
	got := r.unit(`INSERT INTO seq(v) VALUES ('one')`, `INSERT INTO docs VALUES ('more')`, `INSERT INTO box VALUES (2, 2, 3)`, `INSERT INTO emb_chunks VALUES (1)`, `INSERT INTO emb_vector_chunks00 VALUES (1)`, `ANALYZE`)
	if r.holds("seq", `[1][1,"one"]`); len(got) != 2 { // the schema is not in described, so it is said again
		t.Errorf("%d records for one table that changed:\n%s", len(got), strings.Join(got, "\n"))
	}
}

func TestTextsWithoutEncoding(t *testing.T) {
	for encoding, c := range map[string]struct{ stored, nul, want string }{
		"UTF-8":    {"ff41", "610062", `{"$blob":"/0E="}`},
		"UTF-16le": {"00d84100", "610000006200", `{"$blob":"ANhBAA=="}`},
		"UTF-16be": {"d8000041", "006100000062", `{"$blob":"2AAAQQ=="}`},
	} {
		t.Run(encoding, func(t *testing.T) {
			r := newBlind(t, "PRAGMA encoding = '"+encoding+"'", `CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)`, `CREATE TABLE w(k TEXT PRIMARY KEY) WITHOUT ROWID`)
			r.unit()
			r.unit(fmt.Sprintf(`INSERT INTO t VALUES (1, CAST(x'%s' AS TEXT)), (2, CAST(x'%s' AS TEXT)), (3, '')`, c.stored, c.nul), fmt.Sprintf(`INSERT INTO w VALUES (CAST(x'%s' AS TEXT))`, c.nul))
			r.holds("t", `[1][1,`+c.want+`]`, `[2][2,"a\u0000b"]`, `[3][3,""]`)
			r.holds("w", `["a\u0000b"]["a\u0000b"]`)
			r.unit(fmt.Sprintf(`INSERT INTO w VALUES (CAST(x'%s' AS TEXT))`, c.stored))
			if _, uncertain := consumer(r.state); !uncertain["w"] || len(r.stats.Bulk) != 1 {
				t.Errorf("a key that no record can name left the table certain: %v", r.stats)
			}
		})
	}
}
