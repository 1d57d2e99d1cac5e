package envelope_test

import (
	"errors"
	"strings"
	"testing"

	"celldexport/envelope"
)

// fragment is one of k fragments with one row, its rowid the fragment number.
func fragment(i, k uint32, change ...func(*envelope.Record)) *envelope.Record {
	r := &envelope.Record{Envelope: testEnvelope, Body: &envelope.Rows{
		TableGeneration: envelope.TableGeneration{Table: "t", Generation: 1}, Columns: []string{"a"}, KeyColumns: []string{"_rowid_"},
		Changes: []envelope.RowChange{{Op: envelope.Insert, Key: []envelope.Value{envelope.Int(int64(i))}, Row: []envelope.Value{envelope.Null()}}},
	}}
	r.Fragment, r.Fragments = i, k
	for _, f := range change {
		f(r)
	}
	return r
}

func TestReassemblerRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*envelope.Record)
		want   string
	}{
		"fragment 0":     {func(r *envelope.Record) { r.Fragment = 0 }, "out of range"},
		"past the last":  {func(r *envelope.Record) { r.Fragment = 4 }, "out of range"},
		"other count":    {func(r *envelope.Record) { r.Fragments = 4 }, "inconsistent"},
		"whole":          {func(r *envelope.Record) { r.Fragment, r.Fragments = 1, 1 }, "inconsistent"},
		"other node":     {func(r *envelope.Record) { r.Node = "m" }, "inconsistent"},
		"other time":     {func(r *envelope.Record) { r.CommittedAt++ }, "inconsistent"},
		"other name":     {func(r *envelope.Record) { r.CellName = ptr("x") }, "inconsistent"},
		"other columns":  {func(r *envelope.Record) { r.Body.(*envelope.Rows).Columns = []string{"b"} }, "inconsistent"},
		"other key":      {func(r *envelope.Record) { r.Body.(*envelope.Rows).KeyColumns = nil }, "inconsistent"},
		"not splittable": {func(r *envelope.Record) { r.Body = &envelope.Bulk{} }, "not splittable"},
	} {
		t.Run(name, func(t *testing.T) {
			var a envelope.Reassembler
			if _, err := a.Add(fragment(1, 3)); err != nil {
				t.Fatal(err)
			}
			whole, err := a.Add(fragment(2, 3, tt.change))
			if whole != nil || !errors.Is(err, envelope.ErrFragments) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, %v; want an error of %q", whole, err, tt.want)
			}
			// The refused one changed nothing.
			if _, err := a.Add(fragment(2, 3)); err != nil {
				t.Fatal(err)
			}
			if whole, err := a.Add(fragment(3, 3)); err != nil || whole == nil || a.Pending() != 0 {
				t.Fatalf("got %v, %v with %d pending", whole, err, a.Pending())
			}
		})
	}
}

func TestReassembler(t *testing.T) {
	var a envelope.Reassembler
	add := func(r *envelope.Record) *envelope.Record {
		t.Helper()
		whole, err := a.Add(r)
		if err != nil {
			t.Fatal(err)
		}
		return whole
	}
	if r := fragment(1, 1); add(r) != r {
		t.Error("a whole record is not handed through")
	}
	elsewhere := func(r *envelope.Record) { r.Position.Commit++ }
	named := func(r *envelope.Record) { r.CellName = ptr("x") } // another pointer each time
	if add(fragment(2, 2, elsewhere)) != nil || add(fragment(3, 3, named)) != nil || add(fragment(3, 3, named)) != nil || add(fragment(1, 3, named)) != nil {
		t.Error("an incomplete record is handed out")
	}
	if a.Pending() != 2 {
		t.Errorf("%d records pending, want 2", a.Pending())
	}
	whole := add(fragment(2, 3, named))
	if whole == nil || whole.Fragments != 1 {
		t.Fatalf("completed as %+v", whole)
	}
	for i, c := range whole.Body.(*envelope.Rows).Changes {
		if c.Key[0].Int() != int64(i+1) {
			t.Errorf("row %d is of fragment %d", i, c.Key[0].Int())
		}
	}
	if add(fragment(2, 3, named)) != nil || a.Pending() != 1 {
		t.Errorf("a late copy starts the record anew, %d pending", a.Pending())
	}
}

func TestJoinRefuses(t *testing.T) {
	for name, list := range map[string][]*envelope.Record{
		"none":             nil,
		"one of two":       {fragment(2, 2)},
		"of other records": {fragment(1, 2), fragment(2, 2, func(r *envelope.Record) { r.Position.TXID++ })},
	} {
		if r, err := envelope.Join(list...); !errors.Is(err, envelope.ErrFragments) {
			t.Errorf("%s: got %v, %v", name, r, err)
		}
	}
}

func TestKeyTellsRecordsApart(t *testing.T) {
	tg := func(table string, g uint64) envelope.TableGeneration {
		return envelope.TableGeneration{Table: table, Generation: g}
	}
	one, two := ptr(uint64(1)), ptr(uint64(2))
	bodies := []envelope.Body{
		&envelope.Rows{TableGeneration: tg("a", 1)}, &envelope.Rows{TableGeneration: tg("a", 2)}, &envelope.Rows{TableGeneration: tg("b", 1)},
		&envelope.SnapshotRows{SnapshotID: "x", Rows: envelope.Rows{TableGeneration: tg("a", 1)}},
		&envelope.SnapshotRows{SnapshotID: "y", Rows: envelope.Rows{TableGeneration: tg("a", 1)}},
		&envelope.SnapshotEnd{SnapshotID: "x"}, &envelope.SnapshotEnd{SnapshotID: "y"},
		&envelope.Schema{TableGeneration: tg("a", 1)}, &envelope.Schema{TableGeneration: tg("a", 2)},
		&envelope.Link{}, &envelope.Recovered{}, &envelope.Watermark{}, &envelope.Gap{},
		&envelope.Deleted{}, &envelope.Deleted{TargetFacet: "f"}, &envelope.Deleted{TargetFacet: "g"},
		&envelope.Deleted{TargetFacet: "f", TargetIncarnation: one, ThroughIncarnation: two}, &envelope.Deleted{TargetFacet: "f", ThroughIncarnation: two},
		&envelope.Bulk{}, &envelope.Bulk{Tables: []envelope.TableGeneration{tg("a", 1)}}, &envelope.Bulk{Tables: []envelope.TableGeneration{tg("a", 1), tg("b", 1)}},
	}
	seen := map[envelope.Key]int{}
	for i, b := range bodies {
		for variant, change := range []func(*envelope.Record){
			func(*envelope.Record) {},
			func(r *envelope.Record) { r.Origin = envelope.Repair },
			func(r *envelope.Record) { r.Position.Commit++ },
			func(r *envelope.Record) { r.Stream.Incarnation++ },
		} {
			r := &envelope.Record{Envelope: testEnvelope, Body: b}
			change(r)
			if j, ok := seen[r.Key()]; ok {
				t.Errorf("%T %d variant %d has the key of %d", b, i, variant, j)
			}
			seen[r.Key()] = i
		}
	}
	same := func(a, b envelope.Body) {
		t.Helper()
		if (&envelope.Record{Body: a}).Key() != (&envelope.Record{Body: b}).Key() {
			t.Errorf("%+v and %+v have different keys", a, b)
		}
	}
	same(&envelope.Bulk{Tables: []envelope.TableGeneration{tg("a", 1), tg("b", 1)}}, &envelope.Bulk{Tables: []envelope.TableGeneration{tg("b", 1), tg("a", 1), tg("b", 1)}})
	same(&envelope.Gap{Reason: "x"}, &envelope.Gap{Reason: "y"})
	same(&envelope.Watermark{Records: 1}, &envelope.Watermark{Records: 2})
	same(&envelope.Deleted{Subtree: true, ThroughIncarnation: one}, &envelope.Deleted{})
}
