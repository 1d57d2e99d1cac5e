package celldsim

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func integer(n int64) Value { return Value{Class: Integer, Bits: n} }
func real64(x float64) Value {
	return Value{Class: Real, Bits: int64(math.Float64bits(x))}
}
func text(s string) Value { return Value{Class: Text, Bytes: s} }
func blob(s string) Value { return Value{Class: Blob, Bytes: s} }

// freshCell activates a cell with a certain form of database.
func freshCell(t *testing.T, pragmas ...string) *Cell {
	t.Helper()
	f := newFleet(t, Config{})
	c, err := newNode(t, f, "node-a").ActivateWith(t.Context(), Activation{Cell: f.CellID("Shelf", "a"), Pragmas: pragmas})
	must(t, err)
	return c
}

func TestDumpValues(t *testing.T) {
	for _, encoding := range []string{"UTF-8", "UTF-16le", "UTF-16be"} {
		c := freshCell(t, fmt.Sprintf("encoding('%s')", encoding))
		must(t, c.Exec(`CREATE TABLE t(id INTEGER PRIMARY KEY, r REAL, d DATETIME, b BOOLEAN, x)`))
		must(t, c.Exec(`INSERT INTO t VALUES
			(1, 3, '2026-01-02 03:04:05', 1, -0.0),
			(2, 1e999, 5, 0, x''),
			(-3, NULL, 1.5, NULL, 'é🚂' || char(0) || 'z'),
			(4, 9007199254740993, '', 'yes', 9223372036854775807)`))
		want := DumpedTable{
			Columns: []string{"id", "r", "d", "b", "x"}, KeyColumns: []string{"id"},
			Rows: []DumpedRow{
				{[]Value{integer(-3)}, []Value{integer(-3), {}, real64(1.5), {}, text("é🚂\x00z")}},
				{[]Value{integer(1)}, []Value{integer(1), real64(3), text("2026-01-02 03:04:05"), integer(1), real64(math.Copysign(0, -1))}},
				{[]Value{integer(2)}, []Value{integer(2), real64(math.Inf(1)), integer(5), integer(0), blob("")}},
				{[]Value{integer(4)}, []Value{integer(4), real64(9007199254740992), text(""), text("yes"), integer(math.MaxInt64)}},
			},
		}
		if diff := cmp.Diff(want, dump(t, c)["t"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", encoding, diff)
		}
	}
}

func TestDumpInvalidText(t *testing.T) {
	for encoding, bad := range map[string]string{"UTF-8": "ff41", "UTF-16le": "00d84100", "UTF-16be": "d8000041"} {
		c := freshCell(t, fmt.Sprintf("encoding('%s')", encoding))
		must(t, c.Exec(`CREATE TABLE t(id INTEGER PRIMARY KEY, x)`))
		must(t, c.Exec(`INSERT INTO t VALUES(1, CAST(x'`+bad+`' AS TEXT))`))
		got := dump(t, c)["t"].Rows[0].Values[1]
		if want := fmt.Sprintf("x'%s'", bad); got.String() != want {
			t.Errorf("%s: got %v, want %s", encoding, got, want)
		}
	}
}

func TestDumpKeysAndColumns(t *testing.T) {
	c := freshCell(t)
	must(t, c.Exec(`
		CREATE TABLE composite(b TEXT, a TEXT, w AS (length(a)), PRIMARY KEY(a, b));
		INSERT INTO composite VALUES('x', 'y'), ('z', NULL);
		CREATE TABLE plain(oid, rowid);
		INSERT INTO plain VALUES(1, 2);
		CREATE TABLE shadowed(oid, rowid, _rowid_);
		INSERT INTO shadowed VALUES(1, 2, 3);
		CREATE TABLE descending(id INTEGER PRIMARY KEY DESC);
		INSERT INTO descending VALUES(5), (NULL);
		CREATE TABLE "strange ""name"""(a) ;
		CREATE TABLE kv(a);
		CREATE TABLE _CF_other(a); CREATE TABLE __queue_x(a); CREATE TABLE __queue(a);
		CREATE VIEW v AS SELECT 1;
		CREATE VIRTUAL TABLE search USING fts5(body);
		CREATE TABLE counted(id INTEGER PRIMARY KEY AUTOINCREMENT);`))
	must(t, c.Exec(`INSERT INTO _cf_KV VALUES(?, 'mine', x'ff0f54'), ('other', 'theirs', x'ff0f46')`, c.Scope()))
	rowid := []string{"_rowid_"}
	want := map[string]DumpedTable{
		"composite": {Columns: []string{"b", "a"}, KeyColumns: []string{"a", "b"}, NullKeys: 1,
			Rows: []DumpedRow{{[]Value{text("y"), text("x")}, []Value{text("x"), text("y")}}}},
		"plain": {Columns: []string{"oid", "rowid"}, KeyColumns: rowid,
			Rows: []DumpedRow{{[]Value{integer(1)}, []Value{integer(1), integer(2)}}}},
		"shadowed": {Columns: []string{"oid", "rowid", "_rowid_"}},
		"descending": {Columns: []string{"id"}, KeyColumns: []string{"id"}, NullKeys: 1,
			Rows: []DumpedRow{{[]Value{integer(5)}, []Value{integer(5)}}}},
		`strange "name"`: {Columns: []string{"a"}, KeyColumns: rowid},
		"_cf_SQL_kv":     {Columns: []string{"a"}, KeyColumns: rowid},
		"__queue":        {Columns: []string{"a"}, KeyColumns: rowid},
		"counted":        {Columns: []string{"id"}, KeyColumns: []string{"id"}},
		"kv": {Columns: []string{"key", "value"}, KeyColumns: []string{"key"},
			Rows: []DumpedRow{{[]Value{text("mine")}, []Value{text("mine"), blob("\xff\x0fT")}}}},
	}
	if diff := cmp.Diff(want, dump(t, c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestV8(t *testing.T) {
	for _, tt := range []struct {
		value any
		want  string
	}{
		{nil, "\xff\x0f0"}, {true, "\xff\x0fT"}, {false, "\xff\x0fF"},
		{1, "\xff\x0fI\x02"}, {-1, "\xff\x0fI\x01"}, {300, "\xff\x0fI\xd8\x04"},
		{1.5, "\xff\x0fN\x00\x00\x00\x00\x00\x00\xf8\x3f"},
		{"hé", "\xff\x0f\"\x02h\xe9"},
		{"日", "\xff\x0fc\x02\xe5\x65"},
		{[]any{1, "a"}, "\xff\x0fA\x02I\x02\"\x01a$\x00\x02"},
		{map[string]any{"b": nil, "a": true}, "\xff\x0fo\"\x01aT\"\x01b0{\x02"},
		{map[string]any{"ab": "日"}, "\xff\x0fo\"\x02ab\x00c\x02\xe5\x65{\x01"},
	} {
		got, err := V8(tt.value)
		if err != nil || string(got) != tt.want {
			t.Errorf("V8(%v) = %q, %v; want %q", tt.value, got, err, tt.want)
		}
	}
	if _, err := V8([]any{struct{}{}}); err == nil {
		t.Error("an unknown kind was encoded")
	}
}

func TestWorkloadRepeats(t *testing.T) {
	cfg := WorkloadConfig{Seed: 11, Vacuum: true, InvalidText: true}
	var dumps []map[string]DumpedTable
	for range 2 {
		c := freshCell(t)
		cfg.Scope = c.Scope()
		w := NewWorkload(cfg)
		must(t, w.Run(t.Context(), c.DB(), 300))
		if w.Transactions() < 250 || w.Transactions() >= 300 {
			t.Errorf("%d of 300 transactions committed", w.Transactions())
		}
		dumps = append(dumps, dump(t, c))
	}
	if diff := cmp.Diff(dumps[0], dumps[1]); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
	checkVariety(t, dumps[0])
}

// checkVariety fails when a workload's result is too poor to test anything.
func checkVariety(t *testing.T, d map[string]DumpedTable) {
	t.Helper()
	classes := map[StorageClass]int{}
	rows, longest := 0, 0
	for _, table := range d {
		rows += len(table.Rows)
		for _, row := range table.Rows {
			for _, v := range row.Values {
				classes[v.Class]++
				longest = max(longest, len(v.Bytes))
			}
		}
	}
	if len(d) < 4 || rows < 60 || longest < 8000 || len(classes) != 5 {
		t.Errorf("%d tables, %d rows, longest value %d, classes %v", len(d), rows, longest, classes)
	}
}

func TestWorkloadsOfManySeeds(t *testing.T) {
	for seed := range uint64(20) {
		c := freshCell(t)
		w := NewWorkload(WorkloadConfig{Seed: seed, Scope: c.Scope()})
		if err := w.Run(t.Context(), c.DB(), 120); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		var verdict string
		must(t, c.DB().QueryRow(`PRAGMA integrity_check`).Scan(&verdict))
		if verdict != "ok" {
			t.Errorf("seed %d: integrity check says %s", seed, verdict)
		}
	}
}
