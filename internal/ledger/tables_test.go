package ledger

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func gen(n uint64, opened, shut Mark) Generation {
	g := Generation{Generation: n, Opened: opened, SQLHash: fmt.Sprintf("h%d", n)}
	if shut != (Mark{}) {
		g.Closed = &shut
	}
	return g
}

func TestSetTables(t *testing.T) {
	one := map[string][]Generation{"t": {gen(1, Mark{5, 1}, Mark{})}}
	for _, test := range []struct {
		name string
		have []Epoch
		old  map[string][]Generation
		set  map[string][]Generation
		want error
		then map[string][]Generation
	}{
		{"first", []Epoch{pin(5, nodeA)}, nil, one, nil, one},
		{"nothing", []Epoch{pin(5, nodeA)}, nil, nil, nil, nil},
		{"again", []Epoch{pin(5, nodeA)}, one, one, nil, one},
		{
			"others stay", []Epoch{pin(5, nodeA)}, one, map[string][]Generation{"u": {gen(1, Mark{5, 2}, Mark{})}}, nil,
			map[string][]Generation{"t": one["t"], "u": {gen(1, Mark{5, 2}, Mark{})}},
		},
		{"nothing pinned", nil, nil, one, ErrNotPinned, nil},
		{"not pinned yet", []Epoch{pin(4, nodeA)}, nil, one, ErrNotPinned, nil},
		{"higher pinned", []Epoch{pin(5, nodeA), pin(6, nodeB)}, one, one, ErrFenced, one},
		{"closed", []Epoch{closed(pin(5, nodeA), 3)}, one, one, ErrClosed, one},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := pinned(test.have...)
			s.Tables = test.old
			if err := s.SetTables(5, test.set); !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
			if diff := cmp.Diff(test.then, s.Tables); diff != "" {
				t.Errorf("tables (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetTablesRefusesNonsense(t *testing.T) {
	open := Mark{}
	for name, list := range map[string][]Generation{
		"no generation": {},
		"number 0":      {gen(0, Mark{5, 1}, open)},
		"out of order":  {gen(3, Mark{5, 1}, Mark{5, 2}), gen(2, Mark{5, 2}, open)},
		"twice":         {gen(3, Mark{5, 1}, Mark{5, 2}), gen(3, Mark{5, 2}, open)},
		"two open":      {gen(3, Mark{5, 1}, open), gen(4, Mark{5, 2}, open)},
		"going back":    {gen(1, Mark{5, 1}, open)},
	} {
		s := pinned(pin(5, nodeA))
		s.Tables = map[string][]Generation{"t": {gen(2, Mark{5, 1}, open)}}
		want := pinned(pin(5, nodeA))
		want.Tables = map[string][]Generation{"t": {gen(2, Mark{5, 1}, open)}}
		if err := s.SetTables(5, map[string][]Generation{"good": {gen(1, Mark{5, 1}, open)}, "t": list}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if diff := cmp.Diff(want, s); diff != "" {
			t.Errorf("%s: a refused change left (-want +got):\n%s", name, diff)
		}
	}
}

// TestSetTablesRefusesBadNames: JSON would fold such names into one.
func TestSetTablesRefusesBadNames(t *testing.T) {
	s := pinned(pin(5, nodeA))
	if err := s.SetTables(5, map[string][]Generation{"t\xff": {gen(1, Mark{5, 1}, Mark{})}}); err == nil || len(s.Tables) != 0 {
		t.Errorf("error is %v, tables are %v", err, s.Tables)
	}
}

// TestShrinkByEpoch lets pins push the epochs of closed generations out.
func TestShrinkByEpoch(t *testing.T) {
	s := pinned(pin(1, nodeA))
	err := s.SetTables(1, map[string][]Generation{
		"dropped": {gen(1, Mark{1, 1}, Mark{1, 2}), gen(2, Mark{1, 3}, Mark{1, 4})},
		"altered": {gen(1, Mark{1, 1}, Mark{1, 5}), gen(2, Mark{1, 5}, Mark{})},
		"steady":  {gen(1, Mark{1, 1}, Mark{})},
	})
	if err != nil {
		t.Fatal(err)
	}
	whole := s.Tables["dropped"]
	for epoch := uint64(2); epoch <= 4; epoch++ {
		if err := s.Pin(pin(epoch, nodeA)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(whole, s.Tables["dropped"]); diff != "" {
		t.Errorf("shrunk while the epoch's pin is there (-want +got):\n%s", diff)
	}
	if err := s.Pin(pin(5, nodeA)); err != nil {
		t.Fatal(err)
	}
	want := map[string][]Generation{
		"dropped": {{Generation: 2, Closed: &Mark{1, 4}}},
		"altered": {gen(2, Mark{1, 5}, Mark{})},
		"steady":  {gen(1, Mark{1, 1}, Mark{})},
	}
	if diff := cmp.Diff(want, s.Tables); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
	if err := s.SetTables(5, map[string][]Generation{"dropped": {{Generation: 2, Closed: &Mark{1, 4}}, gen(3, Mark{5, 1}, Mark{})}}); err != nil {
		t.Errorf("a name whose old generations shrank does not go on: %v", err)
	}
}

// TestShrinkUnderChurn alters one table in every unit of one epoch and drops
// another name in every one.
func TestShrinkUnderChurn(t *testing.T) {
	const units = 5000
	d := &Document{Format: Format, Token: "t"}
	s, err := d.Bind(Identity{Script: "shop", Class: "Cart", Cell: "Cart:1", Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Pin(pin(5, nodeA)); err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); n <= units; n++ {
		at := Mark{5, n}
		list := append([]Generation(nil), s.Tables["t"]...)
		if len(list) > 0 {
			list[len(list)-1].Closed = &at
		}
		list = append(list, gen(n, at, Mark{}))
		passing := gen(n, at, at)
		if n > 1 {
			passing.Opened = Mark{5, n - 1}
		}
		if err := s.SetTables(5, map[string][]Generation{"t": list, "passing": append(s.Tables["passing"], passing)}); err != nil {
			t.Fatal(err)
		}
	}
	list := s.Tables["t"]
	if got := list[len(list)-1]; got.Generation != units || got.Closed != nil {
		t.Errorf("the open generation is %+v", got)
	}
	if len(list) != keptClosings+1 || len(s.Tables["passing"]) != keptClosings {
		t.Errorf("%d and %d generations are kept", len(list), len(s.Tables["passing"]))
	}
	data, err := d.encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 40_000 {
		t.Errorf("the ledger has %d bytes after %d units of churn", len(data), units)
	}
}

// TestShrinkKeepsWhatMatters compares with a ledger that never shrinks: the
// open generation and the last number of every name are the same, and so is
// every generation that one of the newest units closed.
func TestShrinkKeepsWhatMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := pinned(pin(1, nodeA))
		all := map[string][]Generation{}
		epoch, txid := uint64(1), uint64(0)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "move") == 0 {
				epoch, txid = epoch+1, 0
				if err := s.Pin(pin(epoch, nodeA)); err != nil {
					t.Fatal(err)
				}
			}
			txid++
			at := Mark{epoch, txid}
			set := map[string][]Generation{}
			for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.ID[string]).Draw(t, "names") {
				reopen := rapid.Bool().Draw(t, "reopen")
				set[name] = step(s.Tables[name], at, reopen)
				all[name] = step(all[name], at, reopen)
			}
			if err := s.SetTables(epoch, set); err != nil {
				t.Fatal(err)
			}
		}
		for name, list := range all {
			got := s.Tables[name]
			if last(got) != last(list) || (got[len(got)-1].Closed == nil) != (list[len(list)-1].Closed == nil) {
				t.Fatalf("table %s ends with %+v, want %+v", name, got[len(got)-1], list[len(list)-1])
			}
			for _, g := range got {
				if g.Opened == (Mark{}) {
					continue
				}
				if diff := cmp.Diff(list[g.Generation-1], g); diff != "" {
					t.Fatalf("table %s (-want +got):\n%s", name, diff)
				}
			}
			if end := list[len(list)-1]; end.Closed != nil && end.Closed.Epoch == epoch && got[len(got)-1].Opened != end.Opened {
				if txid < keptClosings {
					t.Fatalf("table %s: a closing of this epoch shrank to %+v", name, got[len(got)-1])
				}
			}
		}
	})
}

// step closes a name's open generation at a mark, or opens the next one.
func step(list []Generation, at Mark, reopen bool) []Generation {
	list = append([]Generation(nil), list...)
	open := len(list) > 0 && list[len(list)-1].Closed == nil
	if open {
		list[len(list)-1].Closed = &at
	}
	if !open || reopen {
		list = append(list, gen(last(list)+1, at, Mark{}))
	}
	return list
}
