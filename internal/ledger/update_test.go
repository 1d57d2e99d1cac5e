package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/internal/objstore"
)

const key = "exportd/ledger/Cart:1/root.json"

var identity = Identity{Script: "shop", Class: "Cart", Cell: "Cart:1", Incarnation: 1}

// noise is a random source that differs between its users and is the same in
// every run.
func noise(seed byte) io.Reader { return rand.NewChaCha8([32]byte{seed}) }

// enter is a change that binds the stream and enters a state.
func enter(state string) func(*Document) error {
	return func(d *Document) error {
		s, err := d.Bind(identity)
		if err != nil {
			return err
		}
		s.Life(state)
		return nil
	}
}

func states(t *testing.T, store objstore.Store) []string {
	t.Helper()
	d, etag, err := Load(t.Context(), store, key)
	if err != nil {
		t.Fatal(err)
	}
	if d == nil {
		return nil
	}
	if etag == "" {
		t.Error("a ledger without an ETag")
	}
	return d.Streams[0].States
}

func TestUpdateCreatesAndChanges(t *testing.T) {
	store := objstore.NewFault(objstore.NewMemory())
	first, err := Update(t.Context(), store, key, noise(1), enter("a"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := Update(t.Context(), store, key, noise(2), enter("b"))
	if err != nil {
		t.Fatal(err)
	}
	if first.Token == second.Token || len(first.Token) != 32 {
		t.Errorf("tokens are %q and %q", first.Token, second.Token)
	}
	stored, _, err := Load(t.Context(), store, key)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(second, stored); diff != "" {
		t.Errorf("returned and stored (-want +got):\n%s", diff)
	}
	if got := states(t, store); len(got) != 2 {
		t.Errorf("states are %q", got)
	}
	writes := store.Calls(objstore.OpPut)
	same, err := Update(t.Context(), store, key, noise(3), enter("a"))
	if err != nil || store.Calls(objstore.OpPut) != writes {
		t.Errorf("a change of nothing wrote %d times (%v)", store.Calls(objstore.OpPut)-writes, err)
	}
	if diff := cmp.Diff(second, same); diff != "" {
		t.Errorf("a change of nothing returned (-want +got):\n%s", diff)
	}
	if d, err := Update(t.Context(), store, "exportd/ledger/Cart:2/root.json", noise(4), func(*Document) error { return nil }); err != nil || d == nil || len(d.Streams) != 0 {
		t.Errorf("a change of nothing on no ledger returned %+v, %v", d, err)
	}
}

func TestUpdateOutcomes(t *testing.T) {
	broken := errors.New("connection reset")
	for _, test := range []struct {
		name  string
		rules []objstore.Rule
		race  int // how often another writer comes in between
		want  error
		calls int // of the change
		then  []string
	}{
		{"answer lost", []objstore.Rule{{Op: objstore.OpPut, Times: 1, After: broken}}, 0, nil, 1, []string{"a", "mine"}},
		{"request lost", []objstore.Rule{{Op: objstore.OpPut, Times: 1, Before: broken}}, 0, nil, 2, []string{"a", "mine"}},
		{"requests lost", []objstore.Rule{{Op: objstore.OpPut, Before: broken}}, 0, broken, maxFailures, []string{"a"}},
		{"answers lost", []objstore.Rule{{Op: objstore.OpPut, After: broken}}, 0, nil, 1, []string{"a", "mine"}},
		{"refused", []objstore.Rule{{Op: objstore.OpPut, Before: objstore.ErrDenied}}, 0, objstore.ErrDenied, 1, []string{"a"}},
		{"unsupported", []objstore.Rule{{Op: objstore.OpPut, Before: errors.ErrUnsupported}}, 0, errors.ErrUnsupported, 1, []string{"a"}},
		{"cannot be read", []objstore.Rule{{Op: objstore.OpGet, Before: broken}}, 0, broken, 0, []string{"a"}},
		{"cannot be read back", []objstore.Rule{{Op: objstore.OpPut, Times: 1, Before: broken}, {Op: objstore.OpGet, Skip: 1, Before: broken}}, 0, broken, 1, []string{"a"}},
		{"half read", []objstore.Rule{{Op: objstore.OpGet, CutAt: 20, CutError: io.ErrUnexpectedEOF}}, 0, io.ErrUnexpectedEOF, 0, []string{"a"}},
		{"a race lost", nil, 1, nil, 2, []string{"a", "other0", "mine"}},
		{"races lost", nil, 9, nil, 10, []string{"a", "other0", "other1", "other2", "other3", "other4", "other5", "other6", "other7", "other8", "mine"}},
		{"a race lost, then the answer", []objstore.Rule{{Op: objstore.OpPut, Times: 1, After: broken}}, 1, nil, 2, []string{"a", "other0", "mine"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := objstore.NewMemory()
			if _, err := Update(t.Context(), base, key, noise(1), enter("a")); err != nil {
				t.Fatal(err)
			}
			store := objstore.NewFault(base)
			for i := range test.race {
				store.Add(objstore.Rule{Op: objstore.OpPut, Skip: i, Times: 1, Wait: func(ctx context.Context, _, _ string) error {
					_, err := Update(ctx, base, key, noise(byte(10+i)), enter(fmt.Sprintf("other%d", i)))
					return err
				}})
			}
			for _, r := range test.rules {
				store.Add(r)
			}
			calls := 0
			_, err := Update(t.Context(), store, key, noise(2), func(d *Document) error {
				calls++
				return enter("mine")(d)
			})
			if !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
			if calls != test.calls {
				t.Errorf("the change was applied %d times, want %d", calls, test.calls)
			}
			if diff := cmp.Diff(test.then, states(t, base)); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUpdateAnswerLostAndOverwritten loses the answer of a write that another
// writer then changes: its token is gone, so the change is applied once more
// and must find itself done.
func TestUpdateAnswerLostAndOverwritten(t *testing.T) {
	base := objstore.NewMemory()
	store := objstore.NewFault(base)
	store.Add(objstore.Rule{Op: objstore.OpPut, Times: 1, After: errors.New("connection reset")})
	// The first read finds nothing, the second comes after the lost answer.
	store.Add(objstore.Rule{Op: objstore.OpGet, Skip: 1, Times: 1, Wait: func(ctx context.Context, _, _ string) error {
		_, err := Update(ctx, base, key, noise(9), enter("other"))
		return err
	}})
	d, err := Update(t.Context(), store, key, noise(1), enter("mine"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"mine", "other"}, states(t, base)); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if n := store.Calls(objstore.OpPut); n != 1 {
		t.Errorf("%d writes", n)
	}
	if diff := cmp.Diff([]string{"mine", "other"}, d.Streams[0].States); diff != "" {
		t.Errorf("returned states (-want +got):\n%s", diff)
	}
}

func TestUpdateGivesUp(t *testing.T) {
	base := objstore.NewMemory()
	store := objstore.NewFault(base)
	n := 0
	store.Add(objstore.Rule{Op: objstore.OpPut, Wait: func(ctx context.Context, _, _ string) error {
		n++
		_, err := Update(ctx, base, key, noise(byte(n)), enter(fmt.Sprintf("other%d", n)))
		return err
	}})
	_, err := Update(t.Context(), store, key, noise(200), enter("mine"))
	if !errors.Is(err, objstore.ErrPrecondition) || n != maxRaces || !strings.Contains(err.Error(), key) {
		t.Errorf("after %d races: %v", n, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	store.Clear()
	store.Add(objstore.Rule{Op: objstore.OpPut, Wait: func(context.Context, string, string) error {
		cancel()
		return context.Canceled
	}})
	if _, err := Update(ctx, store, key, noise(201), enter("mine")); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestUpdateReturnsTheChangesError(t *testing.T) {
	store := objstore.NewMemory()
	if _, err := Update(t.Context(), store, key, noise(1), enter("a")); err != nil {
		t.Fatal(err)
	}
	_, err := Update(t.Context(), store, key, noise(2), func(d *Document) error {
		d.Streams[0].Life("half done")
		return ErrFenced
	})
	if !errors.Is(err, ErrFenced) || !strings.Contains(err.Error(), key) {
		t.Errorf("error is %v", err)
	}
	if got := states(t, store); len(got) != 1 {
		t.Errorf("a refused change left %q", got)
	}
	if _, err := Update(t.Context(), store, key, strings.NewReader("short"), enter("b")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("without random numbers: %v", err)
	}
}

func TestUpdateRefusesWhatCannotBeReadBack(t *testing.T) {
	store := objstore.NewMemory()
	_, err := Update(t.Context(), store, key, noise(1), func(d *Document) error {
		s, err := d.Bind(identity)
		if err != nil {
			return err
		}
		s.Life(strings.Repeat("x", maxBytes))
		return nil
	})
	if err == nil || states(t, store) != nil {
		t.Errorf("a ledger beyond the limit: %v", err)
	}
}

// TestUpdateConcurrently has sixteen writers enter something each, while
// answers get lost on the way.
func TestUpdateConcurrently(t *testing.T) {
	const writers = 16
	base := objstore.NewMemory()
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			store := objstore.NewFault(base)
			store.Add(objstore.Rule{Op: objstore.OpPut, Skip: i % 3, Times: 1, After: errors.New("connection reset")})
			random := noise(byte(i))
			for n := range 2 {
				if _, err := Update(t.Context(), store, key, random, enter(fmt.Sprintf("w%d-%d", i, n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, s := range states(t, base) {
		if seen[s] {
			t.Errorf("%s was entered twice", s)
		}
		seen[s] = true
	}
	if len(seen) != 2*writers {
		t.Errorf("%d of %d entries are there", len(seen), 2*writers)
	}
}

// TestPinRace has two nodes pin the same epoch and one the next: whatever the
// order, the epoch belongs to one of them.
func TestPinRace(t *testing.T) {
	for round := range byte(20) {
		store := objstore.NewMemory()
		won := make([]error, 3)
		var wg sync.WaitGroup
		for i, e := range []Epoch{pin(5, nodeA), pin(5, nodeB), pin(6, nodeB)} {
			wg.Go(func() {
				_, won[i] = Update(t.Context(), store, key, noise(3*round+byte(i)), func(d *Document) error {
					s, err := d.Bind(identity)
					if err != nil {
						return err
					}
					return s.Pin(e)
				})
			})
		}
		wg.Wait()
		if won[2] != nil {
			t.Fatalf("the highest epoch was refused: %v", won[2])
		}
		if won[0] == nil && won[1] == nil {
			t.Fatal("one epoch was pinned by two nodes")
		}
		for _, err := range won[:2] {
			if err != nil && !errors.Is(err, ErrPinned) && !errors.Is(err, ErrFenced) {
				t.Fatal(err)
			}
		}
	}
}
