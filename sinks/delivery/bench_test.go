package delivery

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// benchUnit is the pages and the body of a unit of rows changed rows.
func benchUnit(rows int) ([][]byte, envelope.Encoded, Unit) {
	rng := rand.New(rand.NewPCG(7, 7))
	u := unit(1, 1)
	body := []byte(`{"kind":"rows","table":"items","generation":1,"columns":["id","sku","qty","price","note"],"key_columns":["id"],"rows":[`)
	pages := make([][]byte, 3+rows/20)
	for i := range pages {
		pages[i] = make([]byte, 4096)
		for off := 1024; off+64 < 4096; off += 64 { // a page of rows, partly free
			binary.LittleEndian.PutUint64(pages[i][off:], rng.Uint64())
			copy(pages[i][off+8:], fmt.Sprintf("A-%06d note of the row %d", rng.IntN(1e6), off))
		}
	}
	for i := range rows {
		if i > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `["U",[%d],[%d,"A-%06d",%d,%.2f,"note of the row %d"]]`, i, i, rng.IntN(1e6), rng.IntN(99), rng.Float64()*100, i)
	}
	body = append(body, "]}"...)
	e := record(u, envelope.KindRows, "")
	e.Body = body
	return pages, e, u
}

// BenchmarkSpoolWrite is units of one hundred changed rows, synced in groups.
func BenchmarkSpoolWrite(b *testing.B) {
	for _, c := range []struct {
		rows, group int
	}{{1, 1}, {1, 64}, {100, 64}, {10000, 16}} {
		b.Run(fmt.Sprintf("rows=%d/group=%d", c.rows, c.group), func(b *testing.B) {
			s := openSpool(b, b.TempDir(), Options{})
			pages, e, u := benchUnit(c.rows)
			b.SetBytes(int64(len(pages)*4096 + len(e.Body)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				w, err := s.Begin(u)
				if err != nil {
					b.Fatal(err)
				}
				for n, p := range pages {
					if err := w.Page(uint32(n+1), p); err != nil {
						b.Fatal(err)
					}
				}
				if err := w.Record(&e); err != nil {
					b.Fatal(err)
				}
				seq, err := w.Commit()
				if err != nil {
					b.Fatal(err)
				}
				if i%c.group != c.group-1 {
					continue
				}
				syncSpool(b, s)
				if err := s.SetApplied(seq); err != nil {
					b.Fatal(err)
				}
				if err := s.release(seq); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSpoolRead is reading the records of such units.
func BenchmarkSpoolRead(b *testing.B) {
	for _, rows := range []int{1, 100, 10000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			s := openSpool(b, b.TempDir(), Options{})
			_, e, u := benchUnit(rows)
			for range 64 {
				mustAdd(b, s, u, e)
			}
			syncSpool(b, s)
			b.SetBytes(64 * int64(len(e.Body)))
			b.ReportAllocs()
			for b.Loop() {
				for entry, err := range s.Entries(0) {
					if err != nil {
						b.Fatal(err)
					}
					for _, err := range entry.Records() {
						if err != nil {
							b.Fatal(err)
						}
					}
				}
			}
		})
	}
}

// BenchmarkQueue is what a sink reads of units of one changed row: their
// heads and their records, between page images that are not for it.
func BenchmarkQueue(b *testing.B) {
	const entries = 5000
	dir := b.TempDir()
	s := openSpool(b, dir+"/spool", Options{})
	e, err := New(Config{Spool: s, Dir: dir, Sinks: []sinks.Sink{&fakeSink{name: "bucket"}}})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	pages, rec, _ := benchUnit(1)
	for i := range entries {
		u := unit(i%50, uint64(i/50+1))
		rec.Envelope = record(u, envelope.KindRows, "").Envelope
		w, err := s.Begin(u)
		if err != nil {
			b.Fatal(err)
		}
		for n, p := range pages {
			if err := w.Page(uint32(n+1), p); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Record(&rec); err != nil {
			b.Fatal(err)
		}
		if _, err := w.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	syncSpool(b, s)
	if _, err := e.Lagging(); err != nil { // until then every stream may be behind
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		q := newQueue(e, e.outlets[0])
		for range entries {
			entry, err := q.Next(b.Context(), time.Time{})
			if err != nil {
				b.Fatal(err)
			}
			for _, err := range entry.Records() {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(entries*b.N), "ns/entry")
}
