package ledger

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/internal/objstore"
)

// after is a pin of b that continues the end of an epoch.
func after(from Epoch) Epoch {
	e := pin(from.Epoch+1, nodeB)
	e.PrevEpoch, e.PrevTXID = ref(from.Epoch), from.Closed
	return e
}

func TestContinue(t *testing.T) {
	from := closed(pin(5, nodeA), 7)
	next := after(from)
	far := next
	far.Epoch = 9
	for _, test := range []struct {
		name string
		have []Epoch
		pin  Epoch
		want error
	}{
		{"as it was read", []Epoch{from}, next, nil},
		{"over epochs that nobody pinned", []Epoch{from}, far, nil},
		{"withdrawn", []Epoch{pin(5, nodeA)}, next, ErrMoved},
		{"withdrawn and closed later", []Epoch{closed(pin(5, nodeA), 8)}, next, ErrMoved},
		{"closed at the same txid by another state", []Epoch{closed(pin(5, nodeA2), 7)}, next, ErrMoved},
		{"an epoch between was pinned", []Epoch{from, pin(6, nodeA)}, far, ErrMoved},
		{"a higher one was pinned", []Epoch{from, pin(9, nodeA)}, next, ErrFenced},
		{"its own was pinned by another", []Epoch{from, pin(6, nodeA)}, next, ErrPinned},
		{"the same again", []Epoch{from, next}, next, nil},
		{"the same again, forgotten below", []Epoch{next}, next, nil},
		{"the entry is gone", []Epoch{pin(4, nodeA)}, next, ErrMoved},
		{"nothing is pinned", nil, next, ErrMoved},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, before := pinned(test.have...), pinned(append([]Epoch(nil), test.have...)...)
			if err := s.Continue(test.pin, from); !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
			if test.want != nil {
				if diff := cmp.Diff(before, s); diff != "" {
					t.Errorf("a refused pin changed the stream (-before +after):\n%s", diff)
				}
			} else if got, ok := s.Epoch(test.pin.Epoch); !ok || !got.samePin(test.pin) {
				t.Errorf("the pin is %+v, %t", got, ok)
			}
		})
	}
	for name, change := range map[string]func(e, from *Epoch){
		"of an open epoch":       func(_, from *Epoch) { from.Closed = nil },
		"from elsewhere":         func(e, _ *Epoch) { e.PrevTXID = ref(8) },
		"from another epoch":     func(e, _ *Epoch) { e.PrevEpoch = ref(4) },
		"that continues nothing": func(e, _ *Epoch) { e.PrevEpoch, e.PrevTXID = nil, nil },
	} {
		e, f := next, from
		change(&e, &f)
		if s := pinned(from); s.Continue(e, f) == nil || len(s.Epochs) != 1 {
			t.Errorf("a pin %s was entered", name)
		}
	}
}

// TestWithdrawAgainstPin plays every order in which the owner of an epoch takes
// its close back (w), spools one more unit (s), and closes again (c), while the
// next one reads the ledger (l) and pins (p). Whenever the pin names an end,
// the owner has spooled exactly up to it, and never spools more.
func TestWithdrawAgainstPin(t *testing.T) {
	const (
		at    = "continues at 5"
		later = "continues at 6"
		moved = "decides anew"
		open  = "re-bases"
	)
	outcomes := map[string]struct {
		pin     string
		spooled uint64
	}{
		"lpwsc": {at, 5}, "lwpsc": {moved, 6}, "lwspc": {moved, 6}, "lwscp": {moved, 6},
		"wlpsc": {open, 6}, "wlspc": {open, 6}, "wlscp": {open, 6}, "wslpc": {open, 6}, "wslcp": {open, 6},
		"wsclp": {later, 6},
	}
	orders := interleave("wsc", "lp")
	if len(orders) != len(outcomes) {
		t.Fatalf("%d orders, %d outcomes", len(orders), len(outcomes))
	}
	for _, order := range orders {
		s := pinned(closed(pin(1, nodeA), 5))
		spooled, owner, result := uint64(5), true, ""
		var seen Epoch
		for _, step := range order {
			switch step {
			case 'w':
				owner = s.Withdraw(1, nodeA) == nil
			case 's':
				if owner {
					spooled = 6
				}
			case 'c':
				if owner {
					_ = s.Close(1, spooled, nodeA) // a pin above forbids it
				}
			case 'l':
				seen, _ = s.Newest()
			case 'p':
				result = pinOn(t, s, seen)
			}
		}
		want := outcomes[order]
		if result != want.pin || spooled != want.spooled {
			t.Errorf("%s: the next one %s, the owner spooled up to %d; want %+v", order, result, spooled, want)
		}
		if result == at && spooled != 5 || result == later && spooled != 6 {
			t.Errorf("%s: the next one %s, and the owner spooled up to %d", order, result, spooled)
		}
	}
}

// pinOn pins e2 as one does that read an entry of e1: on its end, or with a
// re-base when it had none.
func pinOn(t *testing.T, s *Stream, seen Epoch) string {
	if seen.Closed == nil {
		e := pin(2, nodeB)
		if err := s.Pin(e); err != nil {
			t.Fatal(err)
		}
		return "re-bases"
	}
	switch err := s.Continue(after(seen), seen); {
	case errors.Is(err, ErrMoved):
		return "decides anew"
	case err != nil:
		t.Fatal(err)
	case *seen.Closed == 5:
		return "continues at 5"
	}
	return "continues at 6"
}

// interleave lists the orders of two sequences.
func interleave(a, b string) []string {
	if a == "" || b == "" {
		return []string{a + b}
	}
	var all []string
	for _, rest := range interleave(a[1:], b) {
		all = append(all, a[:1]+rest)
	}
	for _, rest := range interleave(a, b[1:]) {
		all = append(all, b[:1]+rest)
	}
	return all
}

// A pin that loses the race is refused when it is tried again on what is there
// then, and one whose answer was lost is not.
func TestContinueAfterALostRace(t *testing.T) {
	from := closed(pin(1, nodeA), 5)
	for name, test := range map[string]struct {
		rule objstore.Rule
		want error
	}{
		"withdrawn in between": {objstore.Rule{Op: objstore.OpPut, Times: 1}, ErrMoved},
		"the answer is lost":   {objstore.Rule{Op: objstore.OpPut, Times: 1, After: errors.New("connection reset")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			mem := objstore.NewMemory()
			_, err := Update(t.Context(), mem, key, noise(1), func(d *Document) error {
				s, err := d.Bind(identity)
				s.Epochs = []Epoch{from}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			store := objstore.NewFault(mem)
			if test.want != nil {
				test.rule.Wait = withdrawOnce(mem)
			}
			store.Add(test.rule)
			_, err = Update(t.Context(), store, key, noise(2), func(d *Document) error {
				s, err := d.Bind(identity)
				if err != nil {
					return err
				}
				return s.Continue(after(from), from)
			})
			if !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
		})
	}
}

// A stream that was not there when it was looked for is bound only while that
// holds.
func TestBindFirst(t *testing.T) {
	first := Epoch{Epoch: 2, StartTXID: 1, Mode: ModeFresh, Writer: nodeB}
	id := identity
	id.Incarnation = 2
	with := func(id Identity, pins ...Epoch) *Document {
		return &Document{Streams: []Stream{{Identity: id, Epochs: pins}}}
	}
	for name, test := range map[string]struct {
		have *Document
		want error
	}{
		"nothing is there":              {&Document{}, nil},
		"its own entry":                 {with(id, first), nil},
		"another's, of an earlier life": {with(identity, pin(1, nodeA)), ErrMoved},
		"another's, of the same epoch":  {with(id, Epoch{Epoch: 2, StartTXID: 1, Mode: ModeFresh, Writer: nodeA}), ErrMoved},
		"an entry without epochs":       {with(id), ErrMoved},
		"another script's":              {with(Identity{Script: "other", Class: "Cart", Cell: "Cart:1", Incarnation: 1}, pin(1, nodeA)), ErrMoved},
	} {
		t.Run(name, func(t *testing.T) {
			n := len(test.have.Streams)
			_, err := test.have.BindFirst(id, first)
			if !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
			if err != nil && len(test.have.Streams) != n {
				t.Error("a refused binding was entered")
			}
			if err != nil && !strings.Contains(err.Error(), "Cart:1 of script") {
				t.Errorf("the error does not name the stream: %v", err)
			}
		})
	}
}

// withdrawOnce takes the close of e1 back before a write gets through.
func withdrawOnce(store objstore.Store) func(context.Context, string, string) error {
	return func(ctx context.Context, _, _ string) error {
		_, err := Update(ctx, store, key, noise(3), func(d *Document) error { return d.Streams[0].Withdraw(1, nodeA) })
		return err
	}
}
