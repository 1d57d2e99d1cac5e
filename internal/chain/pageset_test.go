package chain

import (
	"testing"

	"pgregory.net/rapid"
)

func TestPageSetMissing(t *testing.T) {
	var s pageSet
	for n := uint32(1); n <= 200000; n++ {
		if n != 131072 {
			s.add(n)
		}
	}
	for _, c := range []struct {
		last, skip, want uint32
		ok               bool
	}{
		{0, 5, 0, false}, {131071, 5, 0, false}, {131072, 5, 131072, true}, {200000, 131072, 0, false}, {200001, 131072, 200001, true},
		{1<<32 - 1, 131072, 200001, true}, {200001, 200001, 131072, true},
	} {
		if got, ok := s.missing(c.last, c.skip); got != c.want || ok != c.ok {
			t.Errorf("missing(%d, %d) = %d, %v", c.last, c.skip, got, ok)
		}
	}
	var empty pageSet
	if got, ok := empty.missing(2, 1); !ok || got != 2 {
		t.Errorf("empty set: %d, %v", got, ok)
	}
	if _, ok := empty.missing(1, 1); ok {
		t.Error("empty set: the skipped page is missed")
	}
	s.add(1<<32 - 1)
	s.truncate(1<<32 - 1)
	s.truncate(3)
	if got, ok := s.missing(5, 0); !ok || got != 4 {
		t.Errorf("truncated to 3: %d, %v", got, ok)
	}
}

// TestPageSetModel compares with a map.
func TestPageSetModel(t *testing.T) {
	// Numbers around the edges of words and chunks.
	numbers := rapid.Custom(func(t *rapid.T) uint32 {
		edge := rapid.SampledFrom([]uint32{1, 64, 128, chunkPages, 2 * chunkPages}).Draw(t, "edge")
		return max(1, edge+rapid.Uint32Range(0, 4).Draw(t, "off")-2)
	})
	rapid.Check(t, func(t *rapid.T) {
		var s pageSet
		model := map[uint32]bool{}
		for _, n := range rapid.SliceOf(numbers).Draw(t, "operations") {
			if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
				s.truncate(n)
				for k := range model {
					if k > n {
						delete(model, k)
					}
				}
			} else {
				s.add(n)
				model[n] = true
			}
		}
		for _, n := range []uint32{1, 62, 63, 64, 65, 66, 127, 128, 129, chunkPages - 1, chunkPages, chunkPages + 1, 2 * chunkPages} {
			if got := s.firstGap(uint64(n)) != uint64(n); got != model[n] {
				t.Fatalf("page %d: in the set %v, want %v", n, got, model[n])
			}
		}
	})
}
