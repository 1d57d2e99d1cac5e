package bucket

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"

	"celldexport/internal/objstore"
)

// TestPQ01 writes bodies of 60 MiB one after the other into one object, with
// absent, empty and set texts between them: nothing in the file comes near
// the 32-bit sizes of the format, every row is there, absent and empty differ.
func TestPQ01(t *testing.T) {
	const records = 12
	enc, err := newEncoder("none", compress.Codecs.Zstd, new(group))
	if err != nil {
		t.Fatal(err)
	}
	seed := maphash.MakeSeed()
	name := "alice"
	empty := ""
	var sums []uint64
	for i := range records {
		e := sample(0)
		e.CellName = []*string{nil, &empty, &name}[i%3]
		e.Body = []byte(`{"kind":"rows","text":"` + strings.Repeat(string(rune('a'+i)), 60<<20) + `"}`)
		sums = append(sums, maphash.Bytes(seed, e.Body))
		if err := enc.add(&e); err != nil {
			t.Fatal(err)
		}
	}
	object, err := enc.finish()
	if err != nil {
		t.Fatal(err)
	}
	lib, err := file.NewParquetReader(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	defer lib.Close()
	if lib.NumRows() != records || lib.NumRowGroups() < 3 {
		t.Errorf("%d rows in %d groups, want %d rows in several", lib.NumRows(), lib.NumRowGroups(), records)
	}
	for g := range lib.NumRowGroups() {
		rowGroup := lib.MetaData().RowGroup(g)
		for c := range rowGroup.NumColumns() {
			chunk, err := rowGroup.ColumnChunk(c)
			if err != nil {
				t.Fatal(err)
			}
			if n := chunk.TotalUncompressedSize(); n <= 0 || n > groupBytes+64<<20 {
				t.Errorf("group %d, column %d holds %d bytes", g, c, n)
			}
		}
	}
	r, err := NewReader("large", bytes.NewReader(object), int64(len(object)))
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for rec, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		want := []*string{nil, &empty, &name}[i%3]
		if maphash.Bytes(seed, rec.Body) != sums[i] || (rec.CellName == nil) != (want == nil) || want != nil && *rec.CellName != *want || rec.Stream.Facet != "" {
			t.Fatalf("record %d came back wrong (name %v, facet %q)", i, rec.CellName, rec.Stream.Facet)
		}
		i++
	}
	if i != records {
		t.Errorf("%d records, want %d", i, records)
	}
}

// TestPQ02 is the quiet cell, the pause, the burst, the restart with records
// in memory, and the change of the hour.
func TestPQ02(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Date(2026, 11, 30, 9, 58, 0, 0, time.UTC)
		time.Sleep(now.Sub(time.Now()))
		store := objstore.NewMemory()
		dir := t.TempDir()
		cfg := Config{Store: store, FlushInterval: 2 * time.Second}
		r := start(t, dir, cfg)
		txid := uint64(1)
		r.unit(t, 1, txid, "one commit, then silence")
		time.Sleep(2100 * time.Millisecond)
		if got := objects(t, store); len(got) != 1 {
			t.Fatalf("%d objects 2.1 s after a commit, want one", len(got))
		}
		time.Sleep(30 * time.Second)
		before := len(objects(t, store))
		for range 500 {
			txid++
			r.unit(t, 1, txid, "burst")
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(1100 * time.Millisecond)
		if n := len(objects(t, store)) - before; n < 1 || n > 2 {
			t.Errorf("%d objects for a burst of 500 commits, want one or two", n)
		}
		time.Sleep(10 * time.Second)
		before = count(objects(t, store))
		for range 100 {
			txid++
			r.unit(t, 1, txid, "buffered")
		}
		synctest.Wait()
		if n := count(objects(t, store)); n != before {
			t.Fatalf("%d records left before the interval, the case needs them in memory", n-before)
		}
		r.stop() // no flush: as a process that ends before its deadline
		r = start(t, dir, cfg)
		for range 60 { // a trickle across the hour
			txid++
			r.unit(t, 1, txid, "trickle")
			time.Sleep(3 * time.Second)
		}
		r.flush(t)
		got := objects(t, store)
		wantCertified(t, got, 1, txid)
		hours := make(map[string]bool)
		for _, o := range got {
			at := time.UnixMicro(o.name.Micros).UTC()
			if !strings.Contains(o.name.Key(), at.Format("/2006/01/02/15/")) {
				t.Errorf("%s is not in the folder of its hour", o.name.Key())
			}
			hours[fmt.Sprint(at.Hour())] = true
		}
		if !hours["9"] || !hours["10"] {
			t.Errorf("objects of the hours %v, the case needs 9 and 10", hours)
		}
		r.stop()
	})
}
