package apply_test

import (
	"fmt"
	"testing"
)

// BenchmarkState adds a thousand records of ten rows and asks for the rows.
func BenchmarkState(b *testing.B) {
	var lists [][]string
	for i := range 1000 {
		var list []string
		for j := range 10 {
			list = append(list, fmt.Sprintf("U k%d %d", (i*7+j)%3000, i))
		}
		lists = append(lists, list)
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		s := build(b)
		b.StartTimer()
		for i, list := range lists {
			if err := s.Add(rec(at(1, uint64(i+1), 1), rowsBody(tg("a", 1), list...))); err != nil {
				b.Fatal(err)
			}
		}
		if n := len(s.Table(root, "a").Rows); n != 3000 {
			b.Fatalf("%d rows", n)
		}
	}
	b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
