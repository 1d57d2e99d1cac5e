package chain

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"celldexport/internal/celld"
	"celldexport/internal/objstore"
)

func TestExtend(t *testing.T) {
	for _, c := range []struct {
		files string
		from  uint64
		want  []uint64
	}{
		{"", 0, nil},
		{"e1/0/1-1 e1/0/2-2 e1/0/3-3", 0, []uint64{1, 2, 3}},
		{"e1/0/3-3 e1/0/2-2 e1/0/1-1", 0, []uint64{1, 2, 3}},
		{"e1/0/1-1 e1/0/2-2 e1/0/3-3", 2, []uint64{3}},
		{"e1/0/1-1 e1/0/3-3", 0, []uint64{1}},                            // a hole
		{"e1/0/2-9", 0, nil},                                             // above a hole
		{"e1/0/2-9", 1, []uint64{9}},                                     //
		{"e1/1/1-20", 7, []uint64{20}},                                   // wider than what is new
		{"e1/1/1-20", 20, nil},                                           //
		{"e1/0/1-5 e1/0/3-4", 0, []uint64{5}},                            // no way to stop at 4
		{"e1/0/1-2 e1/0/3-4 e1/1/1-5 e1/0/4-8", 0, []uint64{2, 4, 5, 8}}, // overlaps
		{"e1/9/1-4 e1/0/5-5 e1/0/3-3", 0, []uint64{4, 5}},
		{"e1/0/1-18446744073709551615", 3, []uint64{1<<64 - 1}},
	} {
		if got := Extend(files(t, c.files), c.from); !slices.Equal(got, c.want) {
			t.Errorf("%s from %d: got %d, want %d", c.files, c.from, got, c.want)
		}
	}
}

func TestDerive(t *testing.T) {
	for _, c := range []struct {
		files string
		want  Head
	}{
		// The fact that the rule is checked by everywhere: e4 is no part of
		// the chain, since it does not end at 6.
		{"e3/0/1-1 e3/0/2-5 e3/0/6-6 e3/0/7-8 e4/9/1-4 e5/0/7-7 e5/0/8-9",
			Head{5, 9, []Span{{3, 1, 6}, {5, 7, 9}}}},
		{"e1/0/1-1", Head{1, 1, []Span{{1, 1, 1}}}},
		{"e1/0/1-9 e2/0/1-3", Head{2, 3, []Span{{2, 1, 3}}}},
		// A marker that nothing follows, over two paged epochs.
		{"e2/0/1-4 e5/0/5-5 e5/0/6-7 e9/0/8-8", Head{9, 8, []Span{{2, 1, 4}, {5, 5, 7}, {9, 8, 8}}}},
		// Late objects of an epoch that was left are clipped.
		{"e2/0/1-4 e2/0/5-5 e3/0/5-5 e3/0/6-6", Head{3, 6, []Span{{2, 1, 4}, {3, 5, 6}}}},
		// A hole in the predecessor below the cut: the head is below it too.
		{"e2/0/1-2 e2/0/4-4 e3/0/5-5", Head{2, 2, []Span{{2, 1, 2}}}},
		// A hole in the newest epoch.
		{"e2/0/1-2 e3/0/3-3 e3/0/5-5", Head{3, 3, []Span{{2, 1, 2}, {3, 3, 3}}}},
	} {
		got, ok := Derive(files(t, c.files))
		if diff := cmp.Diff(c.want, got); diff != "" || !ok {
			t.Errorf("%s: ok %v (-want +got):\n%s", c.files, ok, diff)
		}
	}
	for _, broken := range []string{"", "e1/0/2-2", "e1/0/1-3 e2/0/5-5", "e1/0/1-6 e2/0/5-5", "e3/0/4-4 e2/0/2-3"} {
		if got, ok := Derive(files(t, broken)); ok {
			t.Errorf("%s: %+v", broken, got)
		}
	}
}

func TestNewest(t *testing.T) {
	if e, ok := Newest(files(t, "e3/0/1-1 e12/0/1-1 e4/0/1-1")); !ok || e != 12 {
		t.Errorf("got %d, %v", e, ok)
	}
	if e, ok := Newest(nil); ok {
		t.Errorf("no files: got %d", e)
	}
}

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		files       string
		epoch, txid uint64
		want        string
	}{
		{"e1/0/1-1 e1/0/2-2 e1/0/3-3", 1, 2, "e1/0/1-1 e1/0/2-2"},
		{"e1/0/1-1 e1/0/2-2 e1/1/1-2 e1/0/3-3", 1, 3, "e1/1/1-2 e1/0/3-3"},
		{"e1/0/1-2 e1/1/1-2", 1, 2, "e1/1/1-2"}, // the more compacted one
		{"e1/0/1-5 e1/0/2-7 e1/0/4-7", 1, 7, "e1/0/1-5 e1/0/2-7"},
		// The snapshot is not the longest way, and it is taken first.
		{"e1/0/1-6 e1/9/1-4 e1/9/1-3 e1/0/5-5 e1/0/6-6", 1, 6, "e1/9/1-4 e1/0/1-6"},
		{"e1/0/1-6 e1/9/1-4 e1/0/5-5", 1, 5, "e1/9/1-4 e1/0/5-5"},
		{"e1/9/1-9 e1/0/1-3", 1, 3, "e1/0/1-3"}, // a snapshot beyond the target
		{"e1/9/3-4 e1/0/1-2", 1, 4, "e1/0/1-2 e1/9/3-4"},
		// Across paged epochs, also to a position of the older one.
		{"e3/0/1-1 e3/0/2-5 e3/0/6-6 e3/0/7-8 e4/9/1-4 e5/0/7-7 e5/0/8-9", 5, 9, "e3/0/1-1 e3/0/2-5 e3/0/6-6 e5/0/7-7 e5/0/8-9"},
		{"e3/0/1-1 e3/0/2-5 e3/0/6-6 e3/0/7-8 e4/9/1-4 e5/0/7-7 e5/0/8-9", 5, 6, "e3/0/1-1 e3/0/2-5 e3/0/6-6"},
		{"e3/0/1-1 e3/0/2-5 e3/0/6-6 e3/0/7-8 e4/9/1-4 e5/0/7-7 e5/0/8-9", 3, 8, "e3/0/1-1 e3/0/2-5 e3/0/6-6 e3/0/7-8"},
		{"e3/0/1-1 e3/0/2-5 e3/0/6-6 e3/0/7-8 e4/9/1-4 e5/0/7-7 e5/0/8-9", 4, 4, "e4/9/1-4"},
		// Level 0 files that were removed once compacted.
		{"e1/0/1-9 e1/0/10-10 e1/1/11-30 e1/0/29-29 e1/0/30-30 e1/0/31-31", 1, 31, "e1/0/1-9 e1/0/10-10 e1/1/11-30 e1/0/31-31"},
	} {
		plan, err := Plan(files(t, c.files), c.epoch, c.txid)
		if got := names(plan); err != nil || got != c.want {
			t.Errorf("%s to e%d:%d: got %q, %v, want %q", c.files, c.epoch, c.txid, got, err, c.want)
		}
	}
	for _, c := range []struct {
		files       string
		epoch, txid uint64
	}{
		{"", 1, 1}, {"e1/0/1-1", 1, 0}, {"e1/0/1-1", 1, 2}, {"e1/0/1-1", 2, 1}, {"e2/0/1-1", 1, 1}, {"e1/0/1-5", 1, 4},
		{"e1/0/1-1 e1/0/3-3", 1, 3}, {"e1/0/2-2", 1, 2}, {"e1/0/1-3 e2/0/5-5", 2, 5},
		// A position that two epochs number alike, in the one that is not there.
		{"e1/0/1-4 e2/0/3-3 e2/0/4-4", 2, 5},
	} {
		if plan, err := Plan(files(t, c.files), c.epoch, c.txid); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s to e%d:%d: %s, %v", c.files, c.epoch, c.txid, names(plan), err)
		}
	}
}

// drawFiles makes any list of names, over few epochs and transactions so that
// they meet.
func drawFiles(t *rapid.T) []File {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) File {
		lo := rapid.Uint64Range(1, 12).Draw(t, "min")
		return File{
			Scope: scope, Epoch: rapid.Uint64Range(1, 4).Draw(t, "epoch"),
			Level: rapid.SampledFrom([]int{0, 0, 1, 9}).Draw(t, "level"),
			Min:   lo, Max: lo + rapid.Uint64Range(0, 3).Draw(t, "more"),
		}
	}), 0, 14).Draw(t, "files")
}

// reachable is the cuts rule taken literally: sets that grow until they stop.
func reachable(list []File, from uint64) map[uint64]bool {
	reached := map[uint64]bool{from: true}
	for grown := true; grown; {
		grown = false
		for _, f := range list {
			for r := range reached {
				if f.Min-1 <= r && r < f.Max && !reached[f.Max] {
					reached[f.Max], grown = true, true
					break
				}
			}
		}
	}
	delete(reached, from)
	return reached
}

func TestExtendFindsExactlyWhatIsReachable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, from := drawFiles(t), rapid.Uint64Range(0, 15).Draw(t, "from")
		got := Extend(list, from)
		want := reachable(list, from)
		if !slices.IsSorted(got) || len(got) != len(want) {
			t.Fatalf("got %d, want %v", got, want)
		}
		for _, cut := range got {
			if !want[cut] {
				t.Fatalf("got %d, want %v", got, want)
			}
		}
	})
}

// TestPlanReachesExactlyTheCuts plans every position of every chain.
func TestPlanReachesExactlyTheCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawFiles(t)
		for epoch := uint64(1); epoch <= 4; epoch++ {
			cuts := reachable(flatten(chainFrom(list, epoch)), 0)
			for txid := uint64(0); txid <= 16; txid++ {
				plan, err := Plan(list, epoch, txid)
				if (err == nil) != cuts[txid] {
					t.Fatalf("e%d:%d: reachable %v, %v", epoch, txid, cuts[txid], err)
				}
				at := uint64(0)
				for _, f := range plan {
					if f.Min-1 > at || f.Max <= at || f.Epoch > epoch {
						t.Fatalf("e%d:%d: plan %s does not follow on", epoch, txid, names(plan))
					}
					at = f.Max
				}
				if err == nil && at != txid {
					t.Fatalf("e%d:%d: plan %s ends elsewhere", epoch, txid, names(plan))
				}
			}
		}
	})
}

// TestDeriveAgreesWithPlan holds the head to what can be restored: the spans
// tile 1 to the head, and the head is the last position that the newest epoch
// has a plan for.
func TestDeriveAgreesWithPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawFiles(t)
		head, ok := Derive(list)
		newest, _ := Newest(list)
		last := uint64(0)
		for txid := uint64(1); txid <= 16; txid++ {
			if _, err := Plan(list, newest, txid); err == nil {
				last = txid
			}
		}
		if last != head.TXID || ok != (last > 0) {
			t.Fatalf("head %+v, %v; the last position with a plan is %d", head, ok, last)
		}
		next := uint64(1)
		for i, s := range head.Spans {
			if s.Lo != next || s.Hi < s.Lo || i > 0 && s.Epoch <= head.Spans[i-1].Epoch {
				t.Fatalf("spans %+v", head.Spans)
			}
			next = s.Hi + 1
		}
		if ok && (next != head.TXID+1 || head.Epoch != head.Spans[len(head.Spans)-1].Epoch) {
			t.Fatalf("head %+v", head)
		}
	})
}

// A listing that starts near a position lacks only objects that end far
// before it.
func TestListRest(t *testing.T) {
	store := objstore.NewMemory()
	const scope = "Cart:a"
	put := func(level int, minTXID, maxTXID uint64) {
		t.Helper()
		key := celld.LTXKey(scope, 4, level, minTXID, maxTXID)
		if _, err := objstore.PutBytes(t.Context(), store, key, []byte("x"), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for txid := uint64(1); txid <= 3000; txid++ {
		put(0, txid, txid)
	}
	put(1, 1, 256)
	put(9, 1, 3000)
	for _, c := range []struct {
		txid uint64
		want int
	}{{0, 3002}, {mergeReach, 3002}, {3000, mergeReach + 1 + 2}, {5000, 2}} {
		files, err := ListRest(t.Context(), store, scope, 4, c.txid)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != c.want {
			t.Errorf("from %d: %d files, want %d", c.txid, len(files), c.want)
		}
	}
}
