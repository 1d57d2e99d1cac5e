package diffpage

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPageSet holds the set against a map, also when its memory is used again.
func TestPageSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s pageSet
		most := rapid.SampledFrom([]uint32{70, 3 * chunkPages, 70 * chunkPages}).Draw(t, "most")
		for range rapid.IntRange(1, 4).Draw(t, "uses") {
			in := make(map[uint32]bool)
			for _, pgno := range rapid.SliceOfN(rapid.Uint32Range(1, most), 0, 50).Draw(t, "pages") {
				if s.add(pgno) == in[pgno] {
					t.Fatalf("page %d: the set does not know whether it was there", pgno)
				}
				in[pgno] = true
			}
			var got, want []uint32
			s.each(func(pgno uint32) { got = append(got, pgno) })
			for pgno := range in {
				want = append(want, pgno)
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("got pages %v, want %v", got, want)
			}
			at := rapid.Uint32Range(0, most+1).Draw(t, "from")
			i, _ := slices.BinarySearch(want, at)
			if pgno, ok := s.from(at); ok != (i < len(want)) || ok && pgno != want[i] {
				t.Fatalf("from %d: page %d, %v of %v", at, pgno, ok, want)
			}
			if s.has(at) != in[at] {
				t.Fatalf("page %d: %v", at, s.has(at))
			}
			s = s.empty()
		}
	})
}

// TestClaims reads back what was claimed, also from memory that is used again,
// and holds claims to the bytes that they may take.
func TestClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l claimLog
		number := rapid.OneOf(rapid.Uint32Range(0, 300), rapid.Uint32())
		for range rapid.IntRange(1, 3).Draw(t, "uses") {
			var want []claim
			for range rapid.IntRange(0, 200).Draw(t, "claims") {
				r := rapid.SampledFrom([]role{roleTree, roleHead, roleRest}).Draw(t, "role")
				c := claim{number.Draw(t, "page"), newOwner(r, number.Draw(t, "slot")&maxSlot, number.Draw(t, "parent"))}
				want = append(want, c)
				l.add(c)
			}
			var got []claim
			size := 0
			for _, b := range l.blocks {
				size += len(b)
			}
			if err := l.each(func(c claim) error { got = append(got, c); return nil }); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) || l.n != len(want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			if size > 15*len(want) {
				t.Fatalf("%d claims take %d bytes", len(want), size)
			}
			l = l.empty()
		}
	})
}

// TestSpansAndHeads: what is sorted as a pair of numbers is what was put in,
// in the order of rowids and of pages.
func TestSpansAndHeads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := func() span {
			return span{rapid.Uint32().Draw(t, "page"), rapid.Uint16().Draw(t, "lo"), rapid.Uint16().Draw(t, "hi"), rapid.Int64().Draw(t, "first")}
		}
		a, b := span(), span()
		if got := spanOf(a.pair()); got != a {
			t.Fatalf("got %v, want %v", got, a)
		}
		if a.first != b.first && (comparePairs(a.pair(), b.pair()) < 0) != (a.first < b.first) {
			t.Fatalf("%v and %v are out of order", a, b)
		}
		h := head{rapid.Uint32().Draw(t, "head"), rapid.Uint32().Draw(t, "row"), rapid.Uint32().Draw(t, "payload"), rapid.Uint16().Draw(t, "local")}
		if got := headOf(h.pair()); got != h {
			t.Fatalf("got %v, want %v", got, h)
		}
	})
}
