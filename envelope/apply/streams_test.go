package apply_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"celldexport/envelope"
	"celldexport/envelope/apply"
)

func withFacet(s envelope.Stream, path string, incarnation uint64) envelope.Stream {
	s.Facet, s.Incarnation = path, incarnation
	return s
}

func TestFacetDeletes(t *testing.T) {
	streams := []envelope.Stream{
		root,
		withFacet(root, "facets/aa", 50), withFacet(root, "facets/aa", 60),
		withFacet(root, "facets/aa/facets/bb", 50), withFacet(root, "facets/aa/facets/bb", 60),
		withFacet(root, "facets/aab", 50),
		{Script: "other", Class: "Shelf", Cell: "Shelf:a17", Facet: "facets/aa", Incarnation: 50},
		{Script: "depot", Class: "Shelf", Cell: "Shelf:b", Facet: "facets/aa", Incarnation: 50},
	}
	for _, tt := range []struct {
		name   string
		delete envelope.Deleted
		on     envelope.Stream
		gone   []int // of streams
	}{
		{"through an incarnation with the subtree", envelope.Deleted{TargetFacet: "facets/aa", Subtree: true, ThroughIncarnation: ptr(uint64(50))}, root, []int{1, 3}},
		{"through an incarnation", envelope.Deleted{TargetFacet: "facets/aa", ThroughIncarnation: ptr(uint64(60))}, root, []int{1, 2}},
		{"through wins over one incarnation", envelope.Deleted{TargetFacet: "facets/aa", TargetIncarnation: ptr(uint64(60)), ThroughIncarnation: ptr(uint64(50))}, root, []int{1}},
		{"one incarnation", envelope.Deleted{TargetFacet: "facets/aa", TargetIncarnation: ptr(uint64(60))}, root, []int{2}},
		{"one incarnation with the subtree", envelope.Deleted{TargetFacet: "facets/aa", TargetIncarnation: ptr(uint64(60)), Subtree: true}, root, []int{2, 3, 4}},
		{"every incarnation", envelope.Deleted{TargetFacet: "facets/aa"}, root, []int{1, 2}},
		{"from another incarnation of the root", envelope.Deleted{TargetFacet: "facets/aa"}, withFacet(root, "", 9), []int{1, 2}},
		{"not from a facet's stream", envelope.Deleted{TargetFacet: "facets/aa"}, withFacet(root, "facets/aab", 50), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Positions do not matter: the delete comes before all of them.
			records := []*envelope.Record{rec(at(1, 1, 1), &tt.delete, on(tt.on))}
			for _, s := range streams {
				records = append(records, rec(at(9, 9, 9), rowsBody(tg("a", 1), "I x 1"), on(s)))
			}
			state := build(t, records...)
			for i, s := range streams {
				_, visible := state.Summary(s)
				if visible == slices.Contains(tt.gone, i) {
					t.Errorf("%s is visible: %v", s, visible)
				}
				if listed := slices.Contains(state.Streams(), s); listed != visible {
					t.Errorf("%s is listed: %v", s, listed)
				}
			}
		})
	}
}

// A facet's end outlives the end of the root that it was told on.
func TestFacetDeleteOutlivesItsRoot(t *testing.T) {
	s := build(t,
		rec(at(1, 1, 1), &envelope.Deleted{TargetFacet: "facets/aa"}), rec(at(1, 2, 2), &envelope.Deleted{}),
		rec(at(1, 1, 1), rowsBody(tg("a", 1), "I x 1"), on(facet)),
	)
	if got := s.Streams(); !slices.Equal(got, []envelope.Stream{root}) {
		t.Errorf("visible streams are %v", got)
	}
	if sum, _ := s.Summary(root); sum.DeletedAt == nil || *sum.DeletedAt != at(1, 2, 2) {
		t.Errorf("root is summed up as %+v", sum)
	}
}

func TestTombstones(t *testing.T) {
	next := withFacet(root, "", 9)
	records := func() *apply.State {
		return build(t, rec(at(4, 1, 1), rowsBody(tg("a", 1), "I x 1")), rec(at(9, 1, 1), rowsBody(tg("a", 1), "I x 1"), on(next)),
			rec(at(1, 1, 1), rowsBody(tg("a", 1), "I x 1"), on(facet)))
	}
	stone := func(change func(*apply.Tombstone)) apply.Tombstone {
		s := apply.Tombstone{Script: root.Script, Class: root.Class, Cell: root.Cell, ErasedAt: 10}
		change(&s)
		return s
	}
	all := stone(func(*apply.Tombstone) {})
	one := stone(func(s *apply.Tombstone) { s.Incarnation = ptr(uint64(4)) })
	ofFacet := stone(func(s *apply.Tombstone) { s.Facet = ptr("facets/aa") })
	cleared := stone(func(s *apply.Tombstone) { s.ClearedAt = ptr(int64(20)) })
	again := stone(func(s *apply.Tombstone) { s.ErasedAt = 30 })
	for _, tt := range []struct {
		name   string
		stones []apply.Tombstone
		want   []envelope.Stream
	}{
		{"none", nil, []envelope.Stream{root, next, facet}},
		{"a root without its facets", []apply.Tombstone{all}, []envelope.Stream{facet}},
		{"one incarnation", []apply.Tombstone{one}, []envelope.Stream{next, facet}},
		{"a facet", []apply.Tombstone{ofFacet}, []envelope.Stream{root, next}},
		{"cleared", []apply.Tombstone{all, cleared}, []envelope.Stream{root, next, facet}},
		{"cleared does not clear the other", []apply.Tombstone{cleared, one}, []envelope.Stream{next, facet}},
		{"erased again", []apply.Tombstone{all, cleared, again}, []envelope.Stream{facet}},
		{"of another cell", []apply.Tombstone{{Script: "depot", Class: "Shelf", Cell: "Shelf:b"}}, []envelope.Stream{root, next, facet}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slices.SortFunc(tt.want, envelope.Stream.Compare)
			for _, reverse := range []bool{false, true} {
				s := records()
				if reverse {
					slices.Reverse(tt.stones)
				}
				s.Streams() // computed before and after
				for _, stone := range tt.stones {
					s.Tombstone(stone)
				}
				if got := s.Streams(); !slices.Equal(got, tt.want) {
					t.Errorf("visible streams are %v, want %v", got, tt.want)
				}
			}
		})
	}
}

func TestTombstoneJSON(t *testing.T) {
	const text = `{"script":"depot","class":"Shelf","cell":"Shelf:a17","facet":null,"incarnation":4,"erased_at_ms":7,"reason":"law","cleared_at_ms":null}`
	var stone apply.Tombstone
	if err := json.Unmarshal([]byte(text), &stone); err != nil {
		t.Fatal(err)
	}
	if !stone.Matches(root) || stone.Matches(withFacet(root, "", 5)) || stone.Matches(facet) {
		t.Errorf("%+v matches the wrong streams", stone)
	}
	if got, err := json.Marshal(stone); err != nil || string(got) != text {
		t.Errorf("written as %s, %v", got, err)
	}
	if err := json.Unmarshal([]byte(`{"script":"depot","class":"Shelf","cell":"Shelf:a17","erased_at_ms":7}`), &stone); err != nil {
		t.Error(err)
	}
}

func TestAdoption(t *testing.T) {
	head := at(9, 20, math.MaxUint64)
	recovered := func(script, facet string) *envelope.Record {
		return rec(head, &envelope.Recovered{Session: "n/1", Head: head, Cells: 1},
			on(envelope.Stream{Script: script, Class: root.Class, Cell: root.Cell, Facet: facet}))
	}
	live := func(script, facet string, incarnation uint64) *envelope.Record {
		return rec(at(1, 1, 1), rowsBody(tg("a", 1), "I x 1"),
			on(envelope.Stream{Script: script, Class: root.Class, Cell: root.Cell, Facet: facet, Incarnation: incarnation}))
	}
	for _, tt := range []struct {
		name    string
		records []*envelope.Record
		want    []string // streams with the gap
		streams int      // visible ones
	}{
		{"nobody", []*envelope.Record{recovered("", "")}, []string{"/Shelf:a17@0"}, 1},
		{"latest at the epoch", []*envelope.Record{recovered("", ""), live("s", "", 3), live("s", "", 9), live("s", "", 10)}, []string{"s/Shelf:a17@9"}, 3},
		{"only later ones", []*envelope.Record{recovered("", ""), live("s", "", 10)}, []string{"/Shelf:a17@0", "s/Shelf:a17@10 none"}, 2},
		{"per script", []*envelope.Record{recovered("", ""), live("s", "", 3), live("t", "", 4)}, []string{"s/Shelf:a17@3", "t/Shelf:a17@4"}, 2},
		{"of its own script only", []*envelope.Record{recovered("s", ""), live("s", "", 3), live("t", "", 4)}, []string{"s/Shelf:a17@3"}, 2},
		{"its script unknown", []*envelope.Record{recovered("s", ""), live("t", "", 4)}, []string{"s/Shelf:a17@0"}, 2},
		{"a stream without a script", []*envelope.Record{recovered("", ""), live("", "", 0)}, []string{"/Shelf:a17@0"}, 1},
		{"every incarnation of a facet", []*envelope.Record{recovered("", "facets/a"), live("s", "facets/a", 300), live("s", "facets/a", 400), live("s", "facets/b", 300), live("s", "", 3)},
			[]string{"s/Shelf:a17/facets/a@300", "s/Shelf:a17/facets/a@400"}, 4},
		{"goes with a deleted facet", []*envelope.Record{recovered("", "facets/a"), live("s", "facets/a", 300), rec(at(1, 1, 1), &envelope.Deleted{TargetFacet: "facets/a"}, on(envelope.Stream{Script: "s", Class: root.Class, Cell: root.Cell, Incarnation: 3}))},
			nil, 1},
		{"below a deletion", []*envelope.Record{recovered("", ""), live("s", "", 3), rec(at(9, 21, 0), &envelope.Deleted{}, on(envelope.Stream{Script: "s", Class: root.Class, Cell: root.Cell, Incarnation: 3}))},
			nil, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := build(t, tt.records...)
			gaps, err := s.Gaps()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, g := range gaps {
				got = append(got, g.Stream.String())
				if g.Kind != apply.GapRecovered || *g.Bound != (apply.Bound{Epoch: 9, TXID: 20}) {
					t.Errorf("gap is %+v", g)
				}
			}
			want := slices.DeleteFunc(slices.Clone(tt.want), func(s string) bool { return len(s) > 5 && s[len(s)-5:] == " none" })
			if !slices.Equal(got, want) {
				t.Errorf("gaps of %v, want %v", got, want)
			}
			if n := len(s.Streams()); n != tt.streams {
				t.Errorf("%d streams are visible, want %d: %v", n, tt.streams, s.Streams())
			}
		})
	}
}

// An adopted record vanishes with the stream that an erasure hides.
func TestAdoptedRecordIsErasedWithItsStream(t *testing.T) {
	head := at(9, 20, math.MaxUint64)
	s := build(t, rec(at(1, 1, 1), rowsBody(tg("a", 1), "I x 1")),
		rec(head, &envelope.Recovered{Session: "n/1", Head: head}, on(envelope.Stream{Class: root.Class, Cell: root.Cell})))
	if got := gapLines(t, s); got != "recovered at e9:20:18446744073709551615 bound 9:20" {
		t.Errorf("gaps are %q", got)
	}
	s.Tombstone(apply.Tombstone{Script: root.Script, Class: root.Class, Cell: root.Cell})
	if got := observe(t, s); got != "" {
		t.Errorf("after erasure there is still %s", got)
	}
}
