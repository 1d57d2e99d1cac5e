package apply_test

import (
	"math"
	"testing"

	"celldexport/envelope"
)

// certify is a watermark from the start of the epoch over what the records
// hold there.
func certify(p envelope.Position, commits, records uint64) *envelope.Record {
	return rec(p, &envelope.Watermark{Through: p, Commits: commits, Records: records})
}

func TestGaps(t *testing.T) {
	const top = math.MaxUint64
	a1, a2 := tg("a", 1), tg("a", 2)
	// Epoch 4 is certified through (4,7,7), epoch 5 not at all.
	base := []*envelope.Record{
		rec(at(4, 1, 0), &envelope.Link{StartTXID: 1, Mode: envelope.ModeFresh}),
		rec(at(4, 7, 7), rowsBody(a1, "I x 1")),
		certify(at(4, 7, 7), 2, 2),
	}
	link := func(epoch, txid *uint64) *envelope.Record {
		return rec(at(5, 8, 0), &envelope.Link{StartTXID: 8, PrevEpoch: epoch, PrevTXID: txid, Mode: envelope.ModePaged})
	}
	recovered := func(epoch, txid uint64, loss bool) *envelope.Record {
		head := at(epoch, txid, top)
		return rec(head, &envelope.Recovered{Session: "n/1", Head: head, Loss: loss, Cells: 1}, on(envelope.Stream{Class: root.Class, Cell: root.Cell}))
	}
	snapshot := func(p envelope.Position, scope envelope.Scope, tables ...envelope.TableGeneration) *envelope.Record {
		return rec(p, endBody("s", scope, 0, tables...), by(envelope.Repair))
	}
	stream := envelope.ScopeStream
	gap := rec(at(5, 9, 9), &envelope.Gap{From: at(5, 8, 0), To: at(5, 9, 9), Reason: "lost"})
	bulk := rec(at(5, 9, 9), &envelope.Bulk{Tables: []envelope.TableGeneration{a1}})
	for _, tt := range []struct {
		name    string
		records []*envelope.Record
		want    string
	}{
		{"none", nil, ""},
		{"gap", []*envelope.Record{gap}, "gap at e5:9:9 bound 5:9 (lost)"},
		{"gap of a certified epoch", []*envelope.Record{rec(at(5, 9, 9), &envelope.Gap{To: at(4, 3, 0), Reason: "r"})}, "gap at e5:9:9 bound 4:3 certified 7 (r)"},
		{"gap of a tool", []*envelope.Record{rec(at(5, 9, top), &envelope.Gap{From: at(5, 0, 0), To: at(5, 9, top), Reason: "r"}, by(envelope.Repair))}, "gap at e5:9:18446744073709551615 bound 5:9 (r)"},
		{"gap covered, whatever the commit", []*envelope.Record{gap, snapshot(at(5, 9, 0), stream)}, ""},
		{"gap not quite covered", []*envelope.Record{gap, snapshot(at(5, 8, top), stream)}, "gap at e5:9:9 bound 5:9 (lost)"},
		{"gap not covered by tables", []*envelope.Record{gap, snapshot(at(6, 9, top), envelope.ScopeTables, a1)}, "gap at e5:9:9 bound 5:9 (lost)"},
		{"link to what is certified", []*envelope.Record{link(ptr(uint64(4)), ptr(uint64(7)))}, ""},
		{"link past what is certified", []*envelope.Record{link(ptr(uint64(4)), ptr(uint64(8)))}, "link at e5:8:0 bound 4:8 certified 7"},
		{"link to an unknown epoch", []*envelope.Record{link(ptr(uint64(3)), ptr(uint64(1)))}, "link at e5:8:0 bound 3:1"},
		{"link to nothing", []*envelope.Record{link(nil, nil)}, ""},
		{"link with an unknown end", []*envelope.Record{link(ptr(uint64(3)), nil)}, ""},
		{"link covered", []*envelope.Record{link(ptr(uint64(4)), ptr(uint64(8))), snapshot(at(4, 8, top), stream)}, ""},
		{"recovered as certified", []*envelope.Record{recovered(4, 7, false)}, ""},
		{"recovered less than certified", []*envelope.Record{recovered(4, 6, false)}, ""},
		{"recovered more", []*envelope.Record{recovered(4, 8, false)}, "recovered at e4:8:18446744073709551615 bound 4:8 certified 7"},
		{"recovered more, covered", []*envelope.Record{recovered(4, 8, false), snapshot(at(4, 8, 0), stream)}, ""},
		{"loss beyond certified", []*envelope.Record{recovered(4, 8, true)}, "recovered at e4:8:18446744073709551615 bound 4:8 certified 7"},
		{"loss of what was certified", []*envelope.Record{recovered(4, 5, true)}, "recovered at e4:5:18446744073709551615 bound 4:7 certified 7"},
		{"loss of what was certified, covered to the head only", []*envelope.Record{recovered(4, 5, true), snapshot(at(4, 6, top), stream)}, "recovered at e4:5:18446744073709551615 bound 4:7 certified 7"},
		{"loss exactly at certified", []*envelope.Record{recovered(4, 7, true)}, ""},
		{"bulk", []*envelope.Record{bulk}, "bulk a.1 (bulk)"},
		{"bulk of a closed generation", []*envelope.Record{bulk, rec(at(5, 10, 10), schemaBody(a2))}, ""},
		{"bulk covered by tables", []*envelope.Record{bulk, snapshot(at(5, 9, 9), envelope.ScopeTables, a1)}, ""},
		{"bulk covered by a snapshot of the stream without the table", []*envelope.Record{bulk, snapshot(at(5, 9, 9), stream)}, ""},
		{"bulk not quite covered", []*envelope.Record{bulk, snapshot(at(5, 9, 8), stream)}, "bulk a.1 (bulk)"},
		{"deleted stream", []*envelope.Record{gap, bulk, link(ptr(uint64(3)), ptr(uint64(1))), rec(at(5, 9, 9), &envelope.Deleted{})}, ""},
		{"all of them", []*envelope.Record{recovered(4, 8, false), bulk, gap, link(ptr(uint64(4)), ptr(uint64(8)))},
			"bulk a.1 (bulk); gap at e5:9:9 bound 5:9 (lost); link at e5:8:0 bound 4:8 certified 7; recovered at e4:8:18446744073709551615 bound 4:8 certified 7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := gapLines(t, build(t, append(tt.records, base...)...)); got != tt.want {
				t.Errorf("gaps are %q, want %q", got, tt.want)
			}
		})
	}
}

func TestGapRowJSON(t *testing.T) {
	s := build(t,
		rec(at(5, 9, 9), &envelope.Gap{From: at(5, 8, 0), To: at(5, 9, 9), Reason: "lost"}, on(facet)),
		rec(at(5, 9, 9), &envelope.Bulk{Tables: []envelope.TableGeneration{tg("a", 2)}}, on(facet)),
		rec(at(5, 8, 0), &envelope.Link{StartTXID: 8, PrevEpoch: ptr(uint64(4)), PrevTXID: ptr(uint64(8)), Mode: envelope.ModePaged}),
	)
	gaps, err := s.Gaps()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"script":"depot","class":"Shelf","cell":"Shelf:a17","facet":null,"incarnation":4,"gap_kind":"link","epoch":5,"txid":8,"commit":0,"bound_epoch":4,"bound_txid":8,"certified_txid":null,"table_name":null,"generation":null,"reason":null,"detail":{"kind":"link","start_txid":8,"prev_epoch":4,"prev_txid":8,"mode":"paged"}}`,
		`{"script":"depot","class":"Shelf","cell":"Shelf:a17","facet":"facets/aa","incarnation":50,"gap_kind":"bulk","epoch":null,"txid":null,"commit":null,"bound_epoch":null,"bound_txid":null,"certified_txid":null,"table_name":"a","generation":2,"reason":"bulk","detail":null}`,
		`{"script":"depot","class":"Shelf","cell":"Shelf:a17","facet":"facets/aa","incarnation":50,"gap_kind":"gap","epoch":5,"txid":9,"commit":9,"bound_epoch":5,"bound_txid":9,"certified_txid":null,"table_name":null,"generation":null,"reason":"lost","detail":{"kind":"gap","from":{"epoch":5,"txid":8,"commit":0},"to":{"epoch":5,"txid":9,"commit":9},"reason":"lost"}}`,
	}
	if len(gaps) != len(want) {
		t.Fatalf("%d gaps, want %d", len(gaps), len(want))
	}
	for i := range gaps {
		if got := string(gaps[i].AppendJSON(nil)); got != want[i] {
			t.Errorf("gap %d is %s, want %s", i, got, want[i])
		}
	}
}

// What counts towards a stream's watermarks, and what does not.
func TestCertification(t *testing.T) {
	a1 := tg("a", 1)
	live := rec(at(4, 1, 1), rowsBody(a1, "I x 1"))
	mark := func(commits, records uint64) *envelope.Record { return certify(at(4, 3, 3), commits, records) }
	deleted := rec(at(4, 2, 2), &envelope.Deleted{})
	for _, tt := range []struct {
		name    string
		records []*envelope.Record
		want    bool
	}{
		{"counted", []*envelope.Record{live, mark(1, 1)}, true},
		{"one too many", []*envelope.Record{live, rec(at(4, 1, 1), rowsBody(tg("b", 1))), mark(1, 1)}, false},
		{"one missing", []*envelope.Record{live, mark(1, 2)}, false},
		{"nothing sent", []*envelope.Record{mark(0, 0)}, true},
		{"repair does not count", []*envelope.Record{live, rec(at(4, 2, 2), snapBody("r", a1), by(envelope.Repair)), rec(at(4, 2, 2), schemaBody(a1), by(envelope.Repair)), mark(1, 1)}, true},
		{"origin snapshot counts", []*envelope.Record{live, rec(at(4, 2, 2), snapBody("r", a1), by(envelope.Snapshot)), mark(2, 2)}, true},
		{"recovered does not count", []*envelope.Record{live, rec(at(4, 2, 2), &envelope.Recovered{Session: "n/1", Head: at(4, 2, 2)}), mark(1, 1)}, true},
		{"gap, bulk and link count", []*envelope.Record{live, rec(at(4, 1, 0), &envelope.Link{Mode: envelope.ModeFresh}), rec(at(4, 1, 1), &envelope.Bulk{}), rec(at(4, 2, 2), &envelope.Gap{}), mark(3, 4)}, true},
		{"a facet's delete counts", []*envelope.Record{rec(at(4, 1, 1), &envelope.Deleted{TargetFacet: "facets/aa"}), mark(1, 1)}, true},
		{"what a deletion removed does not count", []*envelope.Record{live, deleted, rec(at(4, 3, 3), rowsBody(a1, "I x 1")), mark(3, 3)}, false},
		{"what it left counts", []*envelope.Record{live, deleted, rec(at(4, 3, 3), rowsBody(a1, "I x 1")), mark(1, 1)}, true},
		{"another stream's record does not count", []*envelope.Record{live, rec(at(4, 1, 1), rowsBody(a1), on(facet)), mark(1, 1)}, true},
		{"a watermark elsewhere than it certifies", []*envelope.Record{live, rec(at(4, 9, 9), &envelope.Watermark{Through: at(4, 3, 3), Commits: 1, Records: 1})}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := build(t, tt.records...).Certified(root)[4]
			if ok != tt.want || ok && got != at(4, 3, 3) {
				t.Errorf("certified %s, %v; want %v", got, ok, tt.want)
			}
		})
	}
	if c := build(t).Certified(root); c != nil {
		t.Errorf("an unknown stream is certified: %v", c)
	}
}
