package diffpage

import (
	"errors"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPairsComeInOrder holds the sorter against sorting in memory.
func TestPairsComeInOrder(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 9*minPairs).Draw(t, "pairs")
		keys := rapid.Uint64Range(1, 1<<63).Draw(t, "keys")
		s := &pairs{limit: rapid.Int64Range(0, 3*minPairs*pairSize).Draw(t, "limit"), file: &spillFile{dir: dir}}
		defer s.file.close()
		var want []pair
		for i := range n {
			p := pair{uint64(i) * 0x9E3779B97F4A7C15 % keys, uint64(i) ^ 5}
			want = append(want, p)
			if err := s.add(p.a, p.b); err != nil {
				t.Fatal(err)
			}
		}
		if most := max(minPairs, int(s.limit/pairSize)); len(s.held) > most {
			t.Fatalf("%d pairs are held, the limit is %d", len(s.held), most)
		}
		slices.SortFunc(want, comparePairs)
		for range 2 { // they can be read again
			var got []pair
			if err := s.each(func(p pair) error { got = append(got, p); return nil }); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%d of %d pairs are not in order", len(got), len(want))
			}
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files are left behind: %v, %v", left, err)
	}
}

// TestPairsStop ends a walk in the middle, in memory and on disk.
func TestPairsStop(t *testing.T) {
	stop := errors.New("stop")
	for _, n := range []int{10, 5 * minPairs} {
		s := &pairs{file: &spillFile{dir: t.TempDir()}}
		for i := range n {
			if err := s.add(uint64(i), 0); err != nil {
				t.Fatal(err)
			}
		}
		calls := 0
		err := s.each(func(pair) error { calls++; return stop })
		if !errors.Is(err, stop) || calls != 1 {
			t.Errorf("%d pairs: %d calls, error %v", n, calls, err)
		}
		if err := s.file.close(); err != nil {
			t.Error(err)
		}
	}
	if err := (&pairs{file: &spillFile{dir: "/nowhere/at/all"}, held: make([]pair, 1)}).spill(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is not there: error %v", err)
	}
}
