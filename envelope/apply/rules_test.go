package apply_test

import (
	"math"
	"testing"

	"celldexport/envelope"
)

// Each rule of applying, by what the root stream's tables hold afterwards.
func TestRules(t *testing.T) {
	const top = math.MaxUint64
	a1, a2, b1 := tg("a", 1), tg("a", 2), tg("b", 1)
	stream, tables := envelope.ScopeStream, envelope.ScopeTables
	base := rec(at(1, 1, 1), rowsBody(a1, "I x 1", "I y 1"))
	type records = []*envelope.Record
	for _, tt := range []struct {
		name    string
		records records
		want    string
	}{
		{"rows", records{base}, "a.1: x=1 y=1"},
		{"newest wins", records{base, rec(at(1, 3, 3), rowsBody(a1, "U x 3")), rec(at(1, 2, 2), rowsBody(a1, "U x 2", "D y"))}, "a.1: x=3"},
		{"epoch before txid", records{rec(at(2, 1, 1), rowsBody(a1, "U x new")), rec(at(1, 9, 9), rowsBody(a1, "U x old"))}, "a.1: x=new"},
		{"commit decides last", records{rec(at(1, 1, 2), rowsBody(a1, "U x new")), rec(at(1, 1, 1), rowsBody(a1, "U x old"))}, "a.1: x=new"},
		{"delete then insert", records{base, rec(at(1, 2, 2), rowsBody(a1, "D x")), rec(at(1, 3, 3), rowsBody(a1, "I x 3"))}, "a.1: x=3 y=1"},
		{"delete of what is unknown", records{rec(at(1, 2, 2), rowsBody(a1, "D x"))}, "a.1:"},
		{"later element of a record wins", records{rec(at(1, 1, 1), rowsBody(a1, "D x", "I x 2")), rec(at(1, 1, 1), rowsBody(b1, "I x 2", "D x"))}, "a.1: x=2; b.1:"},
		{"repair wins over snapshot over live", records{
			rec(at(1, 1, 1), rowsBody(a1, "U x repair"), by(envelope.Repair)), rec(at(1, 1, 1), rowsBody(a1, "U x live")),
			rec(at(1, 1, 1), rowsBody(a1, "U x snap", "U y snap"), by(envelope.Snapshot)), rec(at(1, 1, 1), rowsBody(a1, "U y live")),
		}, "a.1: x=repair y=snap"},

		{"snapshot without end", records{base, rec(at(1, 2, 2), snapBody("s", a1, "I z 2"))}, "a.1: x=1 y=1"},
		{"end without its records", records{base, rec(at(1, 2, 2), endBody("s", stream, 1, a1))}, "a.1: x=1 y=1"},
		{"end of too few records", records{base, rec(at(1, 2, 2), snapBody("s", a1, "I z 2")), rec(at(1, 2, 2), endBody("s", stream, 2, a1))}, "a.1: x=1 y=1"},
		{"end of too many records", records{base, rec(at(1, 2, 2), snapBody("s", a1, "I z 2")), rec(at(1, 2, 2), snapBody("s", b1)), rec(at(1, 2, 2), endBody("s", stream, 1, a1))}, "a.1: x=1 y=1; b.1:"},
		{"rows of the origin that won", records{
			rec(at(1, 2, 2), snapBody("s", a1, "I y live")), rec(at(1, 2, 2), snapBody("s", a1, "I z repair"), by(envelope.Repair)), rec(at(1, 2, 2), endBody("s", stream, 2, a1), by(envelope.Repair)),
		}, "a.1: z=repair"},
		{"records elsewhere do not complete it", records{base, rec(at(1, 3, 3), snapBody("s", a1, "I z 2")), rec(at(1, 2, 2), snapBody("r", a1, "I z 2")), rec(at(1, 2, 2), endBody("s", stream, 1, a1))}, "a.1: x=1 y=1"},
		{"snapshot replaces, also rows it lacks", records{base, rec(at(1, 2, 2), snapBody("s", a1, "I z 2")), rec(at(1, 2, 2), endBody("s", tables, 1, a1))}, "a.1: z=2"},
		{"rows at the snapshot lose, later ones apply", records{
			rec(at(1, 2, 2), snapBody("s", a1, "I x 2")), rec(at(1, 2, 2), endBody("s", tables, 1, a1)),
			rec(at(1, 2, 2), rowsBody(a1, "U x lost"), by(envelope.Repair)), rec(at(1, 2, 3), rowsBody(a1, "I y 3")),
		}, "a.1: x=2 y=3"},
		{"empty snapshot empties", records{base, rec(at(1, 2, 2), snapBody("s", a1)), rec(at(1, 2, 2), endBody("s", tables, 1, a1))}, "a.1:"},
		{"stream snapshot of nothing empties all", records{base, rec(at(1, 2, top), endBody("s", stream, 0), by(envelope.Repair))}, "a.1:"},
		{"tables snapshot of nothing changes nothing", records{base, rec(at(1, 2, top), endBody("s", tables, 0), by(envelope.Repair))}, "a.1: x=1 y=1"},
		{"generation not listed is emptied, later rows apply", records{
			base, rec(at(1, 1, 1), rowsBody(b1, "I q 1")), rec(at(1, 2, 2), snapBody("s", a1, "I z 2")), rec(at(1, 2, 2), endBody("s", stream, 1, a1)), rec(at(1, 3, 3), rowsBody(b1, "I r 3")),
		}, "a.1: z=2; b.1: r=3"},
		{"tables snapshot leaves others", records{
			base, rec(at(1, 1, 1), rowsBody(b1, "I q 1")), rec(at(1, 2, 2), snapBody("s", a1, "I z 2")), rec(at(1, 2, 2), endBody("s", tables, 1, a1)),
		}, "a.1: z=2; b.1: q=1"},
		{"higher of two snapshots, positions", records{
			rec(at(1, 3, 3), snapBody("s", a1, "I z 3")), rec(at(1, 3, 3), endBody("s", tables, 1, a1)),
			rec(at(1, 2, 2), snapBody("r", a1, "I z 2")), rec(at(1, 2, 2), endBody("r", stream, 1, a1)),
		}, "a.1: z=3"},
		{"higher of two snapshots, origins", records{
			rec(at(1, 2, 2), snapBody("z", a1, "I z live")), rec(at(1, 2, 2), endBody("z", stream, 1, a1)),
			rec(at(1, 2, 2), snapBody("a", a1, "I z repair"), by(envelope.Repair)), rec(at(1, 2, 2), endBody("a", tables, 1, a1), by(envelope.Repair)),
		}, "a.1: z=repair"},
		{"higher of two snapshots, ids", records{
			rec(at(1, 2, 2), snapBody("r", a1, "I z r")), rec(at(1, 2, 2), endBody("r", stream, 1, a1)),
			rec(at(1, 2, 2), snapBody("s", a1, "I z s")), rec(at(1, 2, 2), endBody("s", tables, 1, a1)),
		}, "a.1: z=s"},
		{"stream snapshot above an older tables one", records{
			rec(at(1, 2, 2), snapBody("s", b1, "I z 2")), rec(at(1, 2, 2), endBody("s", tables, 1, b1)),
			rec(at(1, 3, 3), snapBody("t", a1, "I z 3")), rec(at(1, 3, 3), endBody("t", stream, 1, a1)),
		}, "a.1: z=3; b.1:"},

		{"schema alone", records{rec(at(1, 1, 1), schemaBody(a1))}, "a.1:"},
		{"dropped", records{base, rec(at(1, 2, 2), schemaBody(a1, dropped))}, ""},
		{"dropped stays dropped", records{base, rec(at(1, 2, 2), schemaBody(a1, dropped)), rec(at(1, 3, 3), rowsBody(a1, "I z 3"))}, ""},
		{"created anew", records{base, rec(at(1, 2, 2), schemaBody(a1, dropped)), rec(at(1, 3, 3), schemaBody(a2)), rec(at(1, 4, 4), rowsBody(a2, "I z 4"))}, "a.2: z=4"},
		{"higher generation closes", records{base, rec(at(1, 2, 2), rowsBody(a2, "I z 2"))}, "a.2: z=2"},
		{"higher generation closes whenever it was seen", records{rec(at(1, 9, 9), rowsBody(a1, "I x 9")), rec(at(1, 2, 2), rowsBody(a2, "I z 2"))}, "a.2: z=2"},
		{"higher generation closes though dropped", records{base, rec(at(1, 2, 2), schemaBody(a2, dropped))}, ""},
		{"rename", records{base, rec(at(1, 2, 2), schemaBody(b1, renamedFrom("a")))}, "b.1:"},
		{"rename at the position it opened", records{base, rec(at(1, 1, 1), schemaBody(b1, renamedFrom("a")))}, "b.1:"},
		{"rename before it opened", records{rec(at(1, 2, 2), rowsBody(a1, "I x 2")), rec(at(1, 1, 1), schemaBody(b1, renamedFrom("a")))}, "a.1: x=2; b.1:"},
		{"rename after it opened, before its rows", records{rec(at(1, 3, 3), rowsBody(a1, "I x 3")), rec(at(1, 1, 1), schemaBody(a1)), rec(at(1, 2, 2), schemaBody(b1, renamedFrom("a")))}, "b.1:"},
		{"rename and back", records{
			base, rec(at(1, 2, 2), schemaBody(b1, renamedFrom("a"))), rec(at(1, 3, 3), schemaBody(a2, renamedFrom("b"))), rec(at(1, 4, 4), rowsBody(a2, "I z 4")),
		}, "a.2: z=4"},

		{"bulk", records{base, rec(at(1, 2, 2), &envelope.Bulk{Tables: []envelope.TableGeneration{a1}})}, "a.1?: x=1 y=1"},
		{"bulk of nothing else", records{rec(at(1, 2, 2), &envelope.Bulk{Tables: []envelope.TableGeneration{a1, b1}})}, "a.1?:; b.1?:"},
		{"bulk opens the next generation", records{base, rec(at(1, 2, 2), &envelope.Bulk{Tables: []envelope.TableGeneration{a2}})}, "a.2?:"},
		{"rows do not clear bulk", records{rec(at(1, 2, 2), &envelope.Bulk{Tables: []envelope.TableGeneration{a1}}), rec(at(1, 3, 3), rowsBody(a1, "I x 3"))}, "a.1?: x=3"},
		{"snapshot at the bulk clears it", records{
			rec(at(1, 2, 2), &envelope.Bulk{Tables: []envelope.TableGeneration{a1}}), rec(at(1, 2, 2), snapBody("s", a1, "I x 2")), rec(at(1, 2, 2), endBody("s", tables, 1, a1)),
		}, "a.1: x=2"},
		{"snapshot before the bulk does not", records{
			rec(at(1, 2, 3), &envelope.Bulk{Tables: []envelope.TableGeneration{a1}}), rec(at(1, 2, 2), snapBody("s", a1, "I x 2")), rec(at(1, 2, 2), endBody("s", stream, 1, a1)),
		}, "a.1?: x=2"},
		{"newest bulk decides", records{
			rec(at(1, 1, 1), &envelope.Bulk{Tables: []envelope.TableGeneration{a1}}), rec(at(1, 2, 2), snapBody("s", a1, "I x 2")), rec(at(1, 2, 2), endBody("s", stream, 1, a1)),
			rec(at(1, 3, 3), &envelope.Bulk{Tables: []envelope.TableGeneration{b1, a1}}),
		}, "a.1?: x=2; b.1?:"},

		{"stream deleted", records{base, rec(at(1, 2, 2), &envelope.Deleted{})}, ""},
		{"stream deleted, later records live on", records{base, rec(at(1, 2, 2), &envelope.Deleted{}), rec(at(1, 2, 2), rowsBody(a1, "I q 2")), rec(at(1, 2, 3), rowsBody(a1, "I z 3"))}, "a.1: z=3"},
		{"highest deletion counts", records{rec(at(1, 5, 5), &envelope.Deleted{}), rec(at(1, 2, 2), &envelope.Deleted{}), rec(at(1, 4, 4), rowsBody(a1, "I z 4"))}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := content(build(t, tt.records...), root); got != tt.want {
				t.Errorf("state is %q, want %q", got, tt.want)
			}
		})
	}
}

// Keys are compared by class and exact value.
func TestKeysAreExact(t *testing.T) {
	keys := []envelope.Value{
		envelope.Null(), envelope.Int(1), envelope.Real(1), envelope.Real(0), envelope.Real(math.Copysign(0, -1)),
		envelope.Text("1"), envelope.Text("a"), envelope.Text("A"), envelope.Text("a "), envelope.Blob([]byte("a")), envelope.Blob(nil), envelope.Text(""),
	}
	body := rowsBody(tg("a", 1))
	for _, k := range keys {
		body.Changes = append(body.Changes, envelope.RowChange{Op: envelope.Insert, Key: []envelope.Value{k}, Row: []envelope.Value{k, envelope.Null()}})
	}
	table := build(t, rec(at(1, 1, 1), body)).Table(root, "a")
	if len(table.Rows) != len(keys) {
		t.Fatalf("%d rows of %d keys", len(table.Rows), len(keys))
	}
	for i := 1; i < len(table.Rows); i++ {
		if table.Rows[i-1].Key[0].Compare(table.Rows[i].Key[0]) >= 0 {
			t.Errorf("rows %d and %d are not in order", i-1, i)
		}
	}
}

func TestTableDescription(t *testing.T) {
	s := build(t,
		rec(at(1, 1, 1), schemaBody(tg("a", 1))),
		rec(at(1, 2, 2), schemaBody(tg("a", 1), func(s *envelope.Schema) { s.SQL = "newer" })),
		rec(at(1, 1, 1), schemaBody(tg("v", 1), func(s *envelope.Schema) { s.Unsupported = true })),
		rec(at(1, 3, 3), rowsBody(tg("b", 1), "I x 1")),
	)
	a := s.Table(root, "a")
	if a.Schema == nil || a.Schema.SQL != "newer" || len(a.Columns) != 2 || a.Columns[1] != "v" || len(a.KeyColumns) != 1 || a.KeyColumns[0] != "k" {
		t.Errorf("a is described as %+v", a)
	}
	if v := s.Table(root, "v"); v == nil || !v.Schema.Unsupported || len(v.Columns) != 0 {
		t.Errorf("v is described as %+v", v)
	}
	b := s.Table(root, "b")
	if b.Schema != nil || len(b.Columns) != 2 || b.Rows[0].Position != at(1, 3, 3) || b.Rows[0].Origin != envelope.Live {
		t.Errorf("b is described as %+v", b)
	}
	if s.Table(root, "c") != nil || s.Table(facet, "a") != nil || s.Tables(facet) != nil {
		t.Error("tables that no record names")
	}
}

func TestAddRefuses(t *testing.T) {
	s := build(t, rec(at(1, 1, 1), rowsBody(tg("a", 1), "I x 1"), func(r *envelope.Record) { r.Fragments = 2 }))
	if s.Pending() != 1 {
		t.Errorf("%d records pending, want 1", s.Pending())
	}
	other := rec(at(1, 1, 1), rowsBody(tg("a", 1), "I y 1"), func(r *envelope.Record) { r.Fragment, r.Fragments, r.Node = 2, 2, "other" })
	if err := s.Add(other); err == nil {
		t.Error("an inconsistent fragment is taken")
	}
	if err := s.Add(rec(at(1, 1, 1), nil)); err == nil {
		t.Error("a record without a body is taken")
	}
	if got := content(s, root); got != "" {
		t.Errorf("state of refused and incomplete records is %q", got)
	}
}
