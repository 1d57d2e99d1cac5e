package ledger

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	nodeA  = Writer{Node: "a", State: "a1"}
	nodeA2 = Writer{Node: "a", State: "a2"} // after node a lost its state
	nodeB  = Writer{Node: "b", State: "b1"}
)

func ref(n uint64) *uint64 { return &n }

// pin is an entry that continues the epoch before at txid 9.
func pin(epoch uint64, w Writer) Epoch {
	e := Epoch{Epoch: epoch, StartTXID: 1, Mode: ModeClone, Writer: w}
	if epoch > 1 {
		e.PrevEpoch, e.PrevTXID = ref(epoch-1), ref(9)
	}
	return e
}

// pinned is a stream with these pins; closed ones end at txid 5.
func pinned(pins ...Epoch) *Stream {
	return &Stream{Identity: Identity{Script: "shop", Class: "Cart", Cell: "Cart:1", Incarnation: 1}, Epochs: pins}
}

func closed(e Epoch, txid uint64) Epoch {
	e.Closed = &txid
	return e
}

func TestBind(t *testing.T) {
	one := Identity{Script: "shop", Class: "Cart", Cell: "Cart:1", Facet: "f", Incarnation: 3}
	with := func(change func(*Identity)) Identity {
		id := one
		change(&id)
		return id
	}
	for _, test := range []struct {
		name string
		have []Identity
		bind Identity
		want error
		then []uint64 // incarnations afterwards
	}{
		{"first entry", nil, one, nil, []uint64{3}},
		{"the same again", []Identity{one}, one, nil, []uint64{3}},
		{"incarnation 0", nil, with(func(i *Identity) { i.Incarnation = 0 }), nil, []uint64{0}},
		{"a later incarnation", []Identity{one}, with(func(i *Identity) { i.Incarnation = 9 }), nil, []uint64{3, 9}},
		{"an earlier incarnation", []Identity{one}, with(func(i *Identity) { i.Incarnation = 2 }), ErrFenced, []uint64{3}},
		{"another script", []Identity{one}, with(func(i *Identity) { i.Script = "other" }), ErrIdentity, []uint64{3}},
		{"another script, later", []Identity{one}, with(func(i *Identity) { i.Script, i.Incarnation = "other", 9 }), ErrIdentity, []uint64{3}},
		{"another class", []Identity{one}, with(func(i *Identity) { i.Class = "Basket" }), ErrIdentity, []uint64{3}},
		{"another cell", []Identity{one}, with(func(i *Identity) { i.Cell = "Cart:2" }), ErrIdentity, []uint64{3}},
		{"another facet", []Identity{one}, with(func(i *Identity) { i.Facet = "g" }), ErrIdentity, []uint64{3}},
		{"no class", nil, with(func(i *Identity) { i.Class = "" }), ErrIdentity, nil},
		{"no cell", nil, with(func(i *Identity) { i.Cell = "" }), ErrIdentity, nil},
		{"no script", nil, with(func(i *Identity) { i.Script = "" }), nil, []uint64{3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var d Document
			for _, id := range test.have {
				if _, err := d.Bind(id); err != nil {
					t.Fatal(err)
				}
			}
			s, err := d.Bind(test.bind)
			if !errors.Is(err, test.want) || err == nil && s.Identity != test.bind {
				t.Errorf("bind gave %+v and %v, want %v", s, err, test.want)
			}
			var then []uint64
			for _, s := range d.Streams {
				then = append(then, s.Incarnation)
			}
			if diff := cmp.Diff(test.then, then); diff != "" {
				t.Errorf("incarnations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBindKeepsTheNewest(t *testing.T) {
	var d Document
	for i := range uint64(100) {
		s, err := d.Bind(Identity{Class: "C", Cell: "C:1", Incarnation: i})
		if err != nil {
			t.Fatal(err)
		}
		s.Life("x")
	}
	if len(d.Streams) != keptStreams || d.Streams[keptStreams-1].Incarnation != 99 || d.Streams[keptStreams-1].States[0] != "x" {
		t.Errorf("%d streams, the last %+v", len(d.Streams), d.Streams[len(d.Streams)-1])
	}
}

func TestLife(t *testing.T) {
	s := pinned()
	for i, want := range []struct {
		state string
		life  uint64
	}{{"a", 0}, {"a", 0}, {"b", 1}, {"a", 0}, {"c", 2}, {"b", 1}} {
		if got := s.Life(want.state); got != want.life {
			t.Errorf("call %d: life of %s is %d, want %d", i, want.state, got, want.life)
		}
	}
	seen := map[uint64]bool{0: true, 1: true, 2: true}
	for i := range 500 {
		life := s.Life(fmt.Sprintf("n%d", i))
		if seen[life] {
			t.Fatalf("life %d is given twice", life)
		}
		seen[life] = true
	}
	if len(s.States) != keptStates {
		t.Errorf("%d states are kept", len(s.States))
	}
	if again := s.Life("a"); seen[again] {
		t.Errorf("a state that was forgotten got life %d, which another had", again)
	}
	if got := s.Life("n499"); got != 502 {
		t.Errorf("a kept state moved to life %d", got)
	}
}

func TestPin(t *testing.T) {
	other := pin(5, nodeA)
	other.StartTXID = 2
	mode := pin(5, nodeA)
	mode.Mode = ModePaged
	fresh := Epoch{Epoch: 5, StartTXID: 1, Mode: ModeFresh, Writer: nodeA}
	for _, test := range []struct {
		name string
		have []Epoch
		pin  Epoch
		want error
		then []Epoch // nil: as before
	}{
		{"first", nil, pin(5, nodeA), nil, []Epoch{pin(5, nodeA)}},
		{"fresh", nil, fresh, nil, []Epoch{fresh}},
		{"higher", []Epoch{pin(4, nodeA)}, pin(5, nodeB), nil, []Epoch{pin(4, nodeA), pin(5, nodeB)}},
		{"higher, after a gap", []Epoch{pin(4, nodeA)}, pin(9, nodeB), nil, []Epoch{pin(4, nodeA), pin(9, nodeB)}},
		{"higher, over an open epoch", []Epoch{closed(pin(4, nodeA), 5), pin(5, nodeA)}, pin(6, nodeB), nil, []Epoch{closed(pin(4, nodeA), 5), pin(5, nodeA), pin(6, nodeB)}},
		{"the same again", []Epoch{pin(5, nodeA)}, pin(5, nodeA), nil, nil},
		{"the same again, closed since", []Epoch{closed(pin(5, nodeA), 7)}, pin(5, nodeA), nil, nil},
		{"another node", []Epoch{pin(5, nodeA)}, pin(5, nodeB), ErrPinned, nil},
		{"another state", []Epoch{pin(5, nodeA)}, pin(5, nodeA2), ErrPinned, nil},
		{"another start", []Epoch{pin(5, nodeA)}, other, ErrPinned, nil},
		{"another mode", []Epoch{pin(5, nodeA)}, mode, ErrPinned, nil},
		{"another predecessor", []Epoch{pin(5, nodeA)}, fresh, ErrPinned, nil},
		{"lower", []Epoch{pin(6, nodeB)}, pin(5, nodeA), ErrFenced, nil},
		{"lower, which is there", []Epoch{pin(5, nodeA), pin(6, nodeB)}, pin(5, nodeA), ErrFenced, nil},
		{"closed at once", nil, closed(pin(5, nodeA), 5), ErrClosed, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := pinned(test.have...)
			if test.then == nil {
				test.then = test.have
			}
			if err := s.Pin(test.pin); !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
			if diff := cmp.Diff(test.then, s.Epochs); diff != "" {
				t.Errorf("pins (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPinRefusesNonsense(t *testing.T) {
	for name, change := range map[string]func(*Epoch){
		"mode":              func(e *Epoch) { e.Mode = "resume" },
		"no node":           func(e *Epoch) { e.Writer.Node = "" },
		"no state":          func(e *Epoch) { e.Writer.State = "" },
		"txid 0":            func(e *Epoch) { e.StartTXID = 0 },
		"half predecessor":  func(e *Epoch) { e.PrevTXID = nil },
		"its own ancestor":  func(e *Epoch) { e.PrevEpoch = ref(e.Epoch) },
		"a later ancestor":  func(e *Epoch) { e.PrevEpoch = ref(e.Epoch + 1) },
		"other half of one": func(e *Epoch) { e.PrevEpoch = nil },
	} {
		e := pin(5, nodeA)
		change(&e)
		s := pinned()
		if err := s.Pin(e); err == nil || len(s.Epochs) != 0 {
			t.Errorf("%s: error is %v, pins are %+v", name, err, s.Epochs)
		}
	}
}

func TestPinKeepsTheNewest(t *testing.T) {
	s := pinned()
	for epoch := uint64(1); epoch <= 20; epoch++ {
		if err := s.Pin(pin(epoch, nodeA)); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.Epochs) != keptEpochs || s.Epochs[0].Epoch != 17 {
		t.Errorf("kept pins: %+v", s.Epochs)
	}
	newest, ok := s.Newest()
	if !ok || newest.Epoch != 20 {
		t.Errorf("newest is %+v, %t", newest, ok)
	}
}

func TestLookups(t *testing.T) {
	s := pinned(pin(3, nodeA), pin(5, nodeB), pin(9, nodeA))
	for epoch, want := range map[uint64]uint64{1: 0, 3: 0, 4: 3, 5: 3, 6: 5, 9: 5, 10: 9} {
		if got, ok := s.Predecessor(epoch); got.Epoch != want || ok != (want > 0) {
			t.Errorf("predecessor of e%d is e%d, %t; want e%d", epoch, got.Epoch, ok, want)
		}
	}
	for epoch, want := range map[uint64]bool{3: true, 4: false, 9: true, 10: false} {
		if got, ok := s.Epoch(epoch); ok != want || ok && got.Epoch != epoch {
			t.Errorf("e%d: %+v, %t", epoch, got, ok)
		}
	}
	if _, ok := pinned().Newest(); ok {
		t.Error("an empty stream has a newest epoch")
	}
}

func TestClose(t *testing.T) {
	late := pin(5, nodeA)
	late.StartTXID = 10
	for _, test := range []struct {
		name  string
		have  []Epoch
		epoch uint64
		txid  uint64
		by    Writer
		want  error
		then  *Epoch // nil: as before
	}{
		{"open", []Epoch{pin(5, nodeA)}, 5, 7, nodeA, nil, ptr(closed(pin(5, nodeA), 7))},
		{"nothing spooled", []Epoch{late}, 5, 9, nodeA, nil, ptr(closed(late, 9))},
		{"nothing spooled, from 1", []Epoch{pin(5, nodeA)}, 5, 0, nodeA, nil, ptr(closed(pin(5, nodeA), 0))},
		{"after the state was lost", []Epoch{pin(5, nodeA)}, 5, 7, nodeA2, nil, ptr(closed(pin(5, nodeA2), 7))},
		{"the same again", []Epoch{closed(pin(5, nodeA), 7)}, 5, 7, nodeA, nil, nil},
		{"the same again, a higher epoch pinned since", []Epoch{closed(pin(5, nodeA), 7), pin(6, nodeB)}, 5, 7, nodeA, nil, nil},
		{"elsewhere", []Epoch{closed(pin(5, nodeA), 7)}, 5, 8, nodeA, ErrClosed, nil},
		{"by the state that was lost", []Epoch{closed(pin(5, nodeA2), 7)}, 5, 7, nodeA, ErrClosed, nil},
		{"a higher epoch is pinned", []Epoch{pin(5, nodeA), pin(6, nodeB)}, 5, 7, nodeA, ErrFenced, nil},
		{"a higher epoch is pinned, closed elsewhere", []Epoch{closed(pin(5, nodeA), 6), pin(6, nodeB)}, 5, 7, nodeA, ErrFenced, nil},
		{"another node's", []Epoch{pin(5, nodeB)}, 5, 7, nodeA, ErrFenced, nil},
		{"never pinned", []Epoch{pin(4, nodeA)}, 5, 7, nodeA, ErrNotPinned, nil},
		{"never pinned, nothing is", nil, 5, 7, nodeA, ErrNotPinned, nil},
		{"its pin is gone", []Epoch{pin(6, nodeB)}, 5, 7, nodeA, ErrFenced, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := pinned(test.have...)
			want := pinned(test.have...)
			want.Epochs = append([]Epoch(nil), test.have...)
			if test.then != nil {
				want.Epochs[len(want.Epochs)-1] = *test.then
			}
			if err := s.Close(test.epoch, test.txid, test.by); !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
			if diff := cmp.Diff(want, s); diff != "" {
				t.Errorf("stream (-want +got):\n%s", diff)
			}
		})
	}
	if err := pinned(late).Close(5, 8, nodeA); err == nil {
		t.Error("an epoch was closed two txids before its start")
	}
}

func ptr(e Epoch) *Epoch { return &e }

func TestWithdraw(t *testing.T) {
	for _, test := range []struct {
		name string
		have []Epoch
		by   Writer
		want error
		open bool
	}{
		{"closed", []Epoch{closed(pin(5, nodeA), 7)}, nodeA, nil, true},
		{"open already", []Epoch{pin(5, nodeA)}, nodeA, nil, true},
		{"a higher epoch is pinned", []Epoch{closed(pin(5, nodeA), 7), pin(6, nodeB)}, nodeA, ErrFenced, false},
		{"another node's", []Epoch{closed(pin(5, nodeB), 7)}, nodeA, ErrFenced, false},
		{"another state's", []Epoch{closed(pin(5, nodeA2), 7)}, nodeA, ErrClosed, false},
		{"its pin is gone", []Epoch{pin(6, nodeB)}, nodeA, ErrFenced, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := pinned(test.have...)
			if err := s.Withdraw(5, test.by); !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
			if e, ok := s.Epoch(5); ok && (e.Closed == nil) != test.open {
				t.Errorf("the epoch is %+v afterwards", e)
			}
		})
	}
	s := pinned(pin(4, nodeB))
	if err := s.Withdraw(5, nodeA); !errors.Is(err, ErrNotPinned) {
		t.Errorf("an epoch nobody pinned: %v", err)
	}
}

// TestErrorsNameTheStream reads the sentences that an operator gets.
func TestErrorsNameTheStream(t *testing.T) {
	s := pinned(pin(5, nodeA), pin(6, nodeB))
	for _, err := range []error{s.Pin(pin(5, nodeA)), s.Close(5, 7, nodeA), s.Withdraw(5, nodeA), s.SetTables(5, nil)} {
		if err == nil || !strings.Contains(err.Error(), `Cart:1 of script "shop", incarnation 1`) || !strings.Contains(err.Error(), "e6 is pinned") {
			t.Errorf("error is %v", err)
		}
	}
}

func TestFacets(t *testing.T) {
	var d Document
	none, err := d.ThroughFacets(3)
	if err != nil || none != 3<<40 {
		t.Errorf("before any facet: %d, %v", none, err)
	}
	var before uint64
	for _, epoch := range []uint64{3, 3, 4, 9, 9} {
		n, err := d.DrawFacet(epoch)
		if err != nil || n <= before || n>>40 != epoch {
			t.Errorf("drawn in e%d after %d: %d, %v", epoch, before, n, err)
		}
		if through, err := d.ThroughFacets(epoch); err != nil || through != n {
			t.Errorf("through %d, %v after drawing %d", through, err, n)
		}
		before = n
	}
	if _, err := d.DrawFacet(1 << 24); err == nil {
		t.Error("an epoch that does not fit was taken")
	}
	d.Facets = 1<<40 - 1
	if _, err := d.DrawFacet(3); err == nil {
		t.Error("a counter that overflows was taken")
	}
}
