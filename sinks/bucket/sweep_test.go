package bucket

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"celldexport/internal/objstore"
)

// wantPlaces holds where the engine says a cell's records are against where
// they are.
func wantPlaces(t testing.TB, r *rig, list []object, cell int) {
	t.Helper()
	d, ok, err := r.engine.Delivered(stream(cell), 3, SinkName)
	if err != nil || !ok {
		t.Fatalf("delivered: %v, %v", ok, err)
	}
	var first, last int64
	for _, o := range list {
		for _, rec := range o.records {
			if rec.Stream == stream(cell) {
				last = o.name.Micros
				if first == 0 {
					first = last
				}
			}
		}
	}
	if d.First > first || d.First == 0 || d.Last != last {
		t.Errorf("records lie from %d to %d, told was %d to %d", first, last, d.First, d.Last)
	}
}

func TestKept(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var ranges []Range
		held := map[int64]bool{}
		for range rng.IntN(8) {
			r := Range{First: rng.Int64N(60)}
			r.Last = r.First + rng.Int64N(15)
			ranges = append(ranges, r)
			for at := r.First; at <= r.Last; at++ {
				held[at] = true
			}
		}
		k := Keep(ranges)
		for at := range int64(80) {
			if k.Holds(at) != held[at] {
				t.Fatalf("seed %d: %v holds %d: %v", seed, ranges, at, k.Holds(at))
			}
		}
	}
}

// since is when the objects of these tests begin, in seconds.
const since = 1_790_000_000

// fill stores objects of a node, one a second, and returns their keys.
func fill(t *testing.T, store objstore.Store, node string, n int) []string {
	t.Helper()
	var keys []string
	for i := range n {
		key := Name{Node: node, Micros: (since + int64(i+1)) * 1e6, Rand: uint32(i)}.Key()
		if _, err := objstore.PutBytes(t.Context(), store, key, []byte("x"), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

func at(first, last int64) Range { return Range{(since + first) * 1e6, (since + last) * 1e6} }

func keys(t *testing.T, store objstore.Store) []string {
	t.Helper()
	var out []string
	for obj, err := range store.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, obj.Key)
	}
	return out
}

// TestSweep: only the node's own, old and unwanted objects go, by one request
// each, and the listing ends where they begin to be young.
func TestSweep(t *testing.T) {
	mem := objstore.NewMemory()
	store := objstore.NewFault(mem)
	ours, others := fill(t, mem, "node-a", 20), fill(t, mem, "node-ab", 20)
	strange := Prefix + "node-a/2026/01/01/00/1000001-zz.parquet"
	if _, err := objstore.PutBytes(t.Context(), mem, strange, nil, objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	s := Sweep{Node: "node-a", Before: time.Unix(since+11, 0), Keeps: Keep([]Range{at(3, 4), at(9, 15)})}
	done, err := s.Run(t.Context(), store)
	if want := (Swept{Deleted: 6, Kept: 4}); err != nil || done != want {
		t.Errorf("%+v, %v; want %+v", done, err, want)
	}
	want := append([]string{ours[2], ours[3], ours[8], ours[9], strange}, append(ours[10:], others...)...)
	slices.Sort(want)
	if got := keys(t, mem); !slices.Equal(got, want) {
		t.Errorf("left\n%q\nwant\n%q", got, want)
	}
	if n := store.Calls(objstore.OpDelete); n != 6 {
		t.Errorf("%d deletions", n)
	}
}

func TestSweepThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		rule         objstore.Rule
		deleted      int
		failed, left int
	}{
		"one object":    {objstore.Rule{Skip: 2, Times: 1, Before: errors.New("503")}, 19, 1, 1},
		"lost answer":   {objstore.Rule{Skip: 2, Times: 1, After: errors.New("reset")}, 19, 1, 0},
		"all":           {objstore.Rule{Before: errors.New("503")}, 0, maxFailures, 20},
		"no permission": {objstore.Rule{Before: fmt.Errorf("403: %w", objstore.ErrDenied)}, 0, 1, 20},
	} {
		t.Run(name, func(t *testing.T) {
			mem := objstore.NewMemory()
			store := objstore.NewFault(mem)
			fill(t, mem, "node-a", 20)
			c.rule.Op = objstore.OpDelete
			store.Add(c.rule)
			s := Sweep{Node: "node-a", Before: time.Unix(since+1000, 0)}
			done, err := s.Run(t.Context(), store)
			if err == nil || done.Deleted != c.deleted || done.Failed != c.failed || len(keys(t, mem)) != c.left {
				t.Errorf("%+v, %d left, %v; want %+v", done, len(keys(t, mem)), err, c)
			}
			store.Clear()
			if _, err := s.Run(t.Context(), store); err != nil || len(keys(t, mem)) != 0 {
				t.Errorf("the next sweep: %v, %d left", err, len(keys(t, mem)))
			}
		})
	}
}

func TestSweepEndsWithItsContext(t *testing.T) {
	mem := objstore.NewMemory()
	fill(t, mem, "node-a", 20)
	ctx, cancel := context.WithCancel(t.Context())
	store := objstore.NewFault(mem)
	store.Add(objstore.Rule{Op: objstore.OpDelete, Skip: 4, Wait: func(context.Context, string, string) error { cancel(); return nil }})
	s := Sweep{Node: "node-a", Before: time.Unix(since+1000, 0), Pause: time.Microsecond}
	done, _ := s.Run(ctx, store)
	if done.Deleted > 6 || len(keys(t, mem)) < 14 {
		t.Errorf("%+v after the end", done)
	}
}
