package rowset

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"celldexport/diffpage"
	"celldexport/envelope"
)

// appendValueKey is the sort key of one value.
func appendValueKey(dst []byte, v envelope.Value) []byte {
	switch v.Class() {
	case envelope.ClassInteger:
		return appendIntKey(dst, v.Int())
	case envelope.ClassReal:
		return appendRealKey(dst, v.Real())
	case envelope.ClassText:
		return appendBytesKey(dst, diffpage.Text, []byte(v.Text()))
	}
	return appendBytesKey(dst, diffpage.Blob, v.Blob())
}

func valueGen() *rapid.Generator[envelope.Value] {
	short := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 'b', 0x7f}), 0, 4)
	return rapid.OneOf(
		rapid.Map(rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, -1, 1, math.MinInt64, math.MaxInt64})), envelope.Int),
		rapid.Map(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), 5e-324, -5e-324})), envelope.Real),
		rapid.Map(short, func(b []byte) envelope.Value { return envelope.Text(string(b)) }),
		rapid.Map(short, func(b []byte) envelope.Value { return envelope.Blob(b) }),
	)
}

// The bytes of two keys compare as their values do, one after another.
func TestSortKeysOrderValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3).Draw(t, "columns")
		keys := rapid.SliceOfN(rapid.SliceOfN(valueGen(), n, n), 2, 2).Draw(t, "keys")
		var encoded [2][]byte
		for i, key := range keys {
			for _, v := range key {
				encoded[i] = appendValueKey(encoded[i], v)
			}
		}
		want := slices.CompareFunc(keys[0], keys[1], envelope.Value.Compare)
		if got := bytes.Compare(encoded[0], encoded[1]); got != want {
			t.Fatalf("%v and %v compare as %d, want %d", keys[0], keys[1], got, want)
		}
	})
}

// Whatever the memory, entries come out in the order of one sort.
func TestSorterIsTheSameInAnyMemory(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		s := sorter{limit: rapid.Int64Range(1, 2000).Draw(t, "limit")}
		s.spill.Limit, s.spill.Dir = 1, dir
		defer s.spill.Close()
		for range rapid.IntRange(1, 2).Draw(t, "tables") {
			if err := s.reset(); err != nil {
				t.Fatal(err)
			}
			n := rapid.IntRange(0, 400).Draw(t, "entries")
			want := make([]string, 0, n)
			for i := range n {
				key := appendIntKey(nil, int64((i*7919)%(n+1)))
				op := "DI"[i%2]
				tail := bytes.Repeat([]byte{byte(i)}, i%17)
				want = append(want, fmt.Sprintf("%x %d %x", key, opRank(op), tail))
				if err := s.add(key, op, tail); err != nil {
					t.Fatal(err)
				}
			}
			slices.Sort(want)
			var got []string
			if err := s.each(func(e *entry) error {
				got = append(got, fmt.Sprintf("%x %d %x", e.key, opRank(e.op), e.tail))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) && n > 0 {
				t.Fatalf("got %d entries in another order than %d sorted ones", len(got), len(want))
			}
		}
	})
}

func TestSorterMergesRunsInBetween(t *testing.T) {
	s := sorter{limit: 1}
	s.spill.Limit, s.spill.Dir = 1, t.TempDir()
	defer s.spill.Close()
	const n = 3*maxRuns + 5
	for i := range n {
		if err := s.add(appendIntKey(nil, int64(i*101%n)), 'I', nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.runs) >= maxRuns {
		t.Errorf("%d runs at once, want fewer than %d", len(s.runs), maxRuns)
	}
	if once := int64(n * (frameSize + len(appendIntKey(nil, 0)))); s.size > 2*once {
		t.Errorf("%d bytes were written for entries of %d: some were merged twice", s.size, once)
	}
	next := int64(0)
	if err := s.each(func(e *entry) error {
		if !bytes.Equal(e.key, appendIntKey(nil, next)) {
			t.Fatalf("entry %d is out of order", next)
		}
		next++
		return nil
	}); err != nil || next != n {
		t.Fatalf("%d entries, %v; want %d", next, err, n)
	}
}
