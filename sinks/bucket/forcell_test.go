package bucket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"celldexport/envelope"
	"celldexport/internal/objstore"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
)

// many are records of cells in turn, with bodies of about size bytes.
func many(n, cells, size int) []envelope.Encoded {
	out := make([]envelope.Encoded, n)
	for i := range out {
		e := sample(0)
		e.Stream.Cell = cellName(i % cells)
		e.Position.TXID = uint64(i)
		e.Body = fmt.Appendf(nil, `{"kind":"rows","n":%d,"text":"%s"}`, i, bytes.Repeat([]byte("x"), size))
		out[i] = e
	}
	return out
}

func cellName(i int) string { return fmt.Sprintf("Cart:%032x", uint64(i)*0x9e3779b97f4a7c15) }

func open(t testing.TB, object []byte) *Reader {
	t.Helper()
	r, err := NewReader("test.parquet", bytes.NewReader(object), int64(len(object)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func filterBytes(t *testing.T, object []byte, group int) int64 {
	t.Helper()
	r, err := file.NewParquetReader(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	filters, err := r.GetBloomFilterReader().RowGroup(group)
	if err != nil {
		t.Fatal(err)
	}
	for c := range columns {
		f, err := filters.GetColumnBloomFilter(c)
		if err != nil {
			t.Fatal(err)
		}
		if (f != nil) != (c == colCell) {
			t.Errorf("column %s: bloom filter is there: %v", columns[c].name, f != nil)
		}
		if c == colCell && f != nil {
			return f.Size()
		}
	}
	return 0
}

// TestBloomFilter: it is written for cell alone, as large as the number of
// cells asks for, knows every cell that is there, and hardly another.
func TestBloomFilter(t *testing.T) {
	for cells, most := range map[int]int64{1: 32, 8: 32, 500: 1024, 40000: 64 << 10} {
		object := encode(t, many(max(cells, 1000), cells, 10))
		if got := filterBytes(t, object, 0); got == 0 || got > most {
			t.Errorf("%d cells: filter of %d bytes, want at most %d", cells, got, most)
		}
		r := open(t, object)
		for i := range cells {
			if may, err := r.MayHold(cellName(i)); err != nil || !may {
				t.Fatalf("%d cells: cell %d is not found: %v", cells, i, err)
			}
		}
		wrong := 0
		for i := range 2000 {
			may, err := r.MayHold(cellName(cells + i))
			if err != nil {
				t.Fatal(err)
			}
			if may {
				wrong++
			}
		}
		if wrong > 60 {
			t.Errorf("%d cells: %d of 2000 absent cells are not excluded", cells, wrong)
		}
	}
}

// TestFilterPerRowGroup: the filter of a row group is of the cells in that one.
func TestFilterPerRowGroup(t *testing.T) {
	records := append(many(40, 1, 500<<10), many(2000, 2000, 10)...)
	object := encode(t, records)
	r := open(t, object)
	if r.file.NumRowGroups() != 2 {
		t.Fatalf("%d row groups", r.file.NumRowGroups())
	}
	small, large := filterBytes(t, object, 0), filterBytes(t, object, 1)
	if small != 32 || large < 1024 {
		t.Errorf("filters of %d and %d bytes", small, large)
	}
	for g, want := range []bool{false, true} {
		if may, err := r.mayHold(g, cellName(77)); err != nil || may != want {
			t.Errorf("row group %d may hold the cell: %v, %v", g, may, err)
		}
	}
}

func collect(t testing.TB, r *Reader, cell string) []envelope.Encoded {
	t.Helper()
	var out []envelope.Encoded
	for rec, err := range r.ForCell(cell) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rec)
	}
	return out
}

// TestForCell: what is read for a cell is what a reader of everything finds of
// it, facets included.
func TestForCell(t *testing.T) {
	var records []envelope.Encoded
	for i := range 3000 {
		records = append(records, sample(i))
	}
	records = append(records, many(60, 3, 600<<10)...)
	r := open(t, encode(t, records))
	for _, cell := range []string{"Cart:0", "Cart:1", "Cart:999", cellName(0), cellName(1), "Cart:1000", "", "Cart:", "Zebra:1"} {
		var want []envelope.Encoded
		for _, rec := range records {
			if rec.Stream.Cell == cell {
				want = append(want, rec)
			}
		}
		if got := collect(t, r, cell); !reflect.DeepEqual(want, got) {
			t.Errorf("cell %q: %d records, want %d, or others", cell, len(got), len(want))
		}
	}
}

// TestForCellReadsNothingElse: row groups that hold none of the cell are not
// read from the file.
func TestForCellReadsNothingElse(t *testing.T) {
	records := append(many(40, 1, 500<<10), many(2000, 2000, 10)...)
	object := encode(t, records)
	counted := &countingReader{r: bytes.NewReader(object)}
	r, err := NewReader("counted", counted, int64(len(object)))
	if err != nil {
		t.Fatal(err)
	}
	counted.n = 0
	if got := collect(t, r, cellName(77)); len(got) != 1 {
		t.Fatalf("%d records", len(got))
	}
	one := counted.n
	counted.n = 0
	if got := collect(t, r, cellName(123456)); len(got) != 0 {
		t.Fatalf("%d records of an absent cell", len(got))
	}
	absent := counted.n
	counted.n = 0
	for _, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
	}
	if all := counted.n; one >= all || absent >= one || absent > 8<<10 {
		t.Errorf("bytes read: %d for an absent cell, %d for one of the second row group, %d of all", absent, one, all)
	}
}

type countingReader struct {
	r io.ReaderAt
	n int
}

func (c *countingReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(p, off)
	c.n += n
	return n, err
}

// TestRemote: an excluded object costs one request for its end, another one
// two, and the bytes are those of the object.
func TestRemote(t *testing.T) {
	store := objstore.NewMemory()
	var ops []string
	counting := objstore.Counting(store, func(op, outcome string, bytes int64) { ops = append(ops, op) })
	rng := uint32(1)
	records := many(4000, 20, 0)
	for i := range records {
		records[i].Body = []byte(`{"kind":"rows","t":"`)
		for range 100 {
			rng = rng*1664525 + 1013904223
			records[i].Body = append(records[i].Body, 'a'+byte(rng>>24%26))
		}
		records[i].Body = append(records[i].Body, `"}`...)
	}
	small, large := encode(t, many(10, 2, 10)), encode(t, records)
	if len(large) < 2*tailBytes {
		t.Fatalf("the large object has only %d bytes", len(large))
	}
	for key, object := range map[string][]byte{"small": small, "large": large} {
		if _, err := objstore.PutBytes(t.Context(), store, key, object, objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		key, cell  string
		gets, want int
	}{
		{"small", cellName(1), 1, 5}, {"small", "Zebra:1", 1, 0},
		{"large", "Zebra:1", 1, 0}, {"large", cellName(3), 2, 200},
	} {
		ops = nil
		remote, err := OpenRemote(t.Context(), counting, c.key)
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(c.key, remote, remote.Size())
		if err != nil {
			t.Fatal(err)
		}
		got := collect(t, r, c.cell)
		gets := slices.Collect(func(yield func(string) bool) {
			for _, op := range ops {
				if op == objstore.OpGet && !yield(op) {
					return
				}
			}
		})
		if len(got) != c.want || len(gets) != c.gets {
			t.Errorf("%s of %s: %d records by %d requests, want %d by %d", c.cell, c.key, len(got), len(gets), c.want, c.gets)
		}
	}
}

// TestRemoteReplaced: an object that changes between its end and the rest is
// no mixture of two, and no broken file either.
func TestRemoteReplaced(t *testing.T) {
	store := objstore.NewMemory()
	a, b := bytes.Repeat([]byte("a"), 3*tailBytes), bytes.Repeat([]byte("b"), 3*tailBytes)
	put := func(data []byte) {
		if _, err := objstore.PutBytes(t.Context(), store, "key", data, objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put(a)
	remote, err := OpenRemote(t.Context(), store, "key")
	if err != nil {
		t.Fatal(err)
	}
	put(b)
	if _, err := remote.ReadAt(make([]byte, 10), 0); !errors.Is(err, objstore.ErrPrecondition) {
		t.Errorf("error %v", err)
	}
}

// TestReadErrorIsNoFormatError: a file that cannot be read says nothing about
// its form.
func TestReadErrorIsNoFormatError(t *testing.T) {
	object := encode(t, many(4000, 20, 300))
	failing := &failingReader{r: bytes.NewReader(object)}
	r, err := NewReader("x", failing, int64(len(object)))
	if err != nil {
		t.Fatal(err)
	}
	failing.fail = true
	for _, err = range r.Records() {
		if err != nil {
			break
		}
	}
	if !errors.Is(err, errDisk) || errors.Is(err, ErrFormat) {
		t.Errorf("error %v", err)
	}
}

var errDisk = errors.New("disk is gone")

type failingReader struct {
	r    io.ReaderAt
	fail bool
}

func (f *failingReader) ReadAt(p []byte, off int64) (int, error) {
	if f.fail {
		return 0, errDisk
	}
	return f.r.ReadAt(p, off)
}

// TestPageIndex: pages of every column can be found by row, and those of
// columns with statistics by value.
func TestPageIndex(t *testing.T) {
	object := encode(t, many(5000, 50, 1000))
	r, err := file.NewParquetReader(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	index, err := r.GetPageIndexReader().RowGroup(0)
	if err != nil || index == nil {
		t.Fatalf("page index: %v, %v", index, err)
	}
	for c := range columns {
		offsets, err := index.GetOffsetIndex(c)
		if err != nil || offsets == nil || len(offsets.GetPageLocations()) == 0 {
			t.Errorf("column %s has no offset index: %v", columns[c].name, err)
			continue
		}
		if c == colBody && len(offsets.GetPageLocations()) < 4 {
			t.Errorf("5 MiB of bodies are %d pages", len(offsets.GetPageLocations()))
		}
		values, err := index.GetColumnIndex(c)
		if err != nil || (values != nil) != (c != colBody) {
			t.Errorf("column %s: column index %v, %v", columns[c].name, values != nil, err)
		}
	}
}

// TestPagesOfOtherCells: within a row group, pages that hold none of the cell
// by the page index are not read, in any column, and what is read are the
// cell's records.
func TestPagesOfOtherCells(t *testing.T) {
	records := many(60000, 12, 60)
	slices.SortStableFunc(records, func(a, b envelope.Encoded) int { return strings.Compare(a.Stream.Cell, b.Stream.Cell) })
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range records {
		records[i].Stream.Facet = []string{"", "a", "b"}[i%3] // optional columns count their values otherwise
		random := make([]byte, 40)
		for j := range random {
			random[j] = byte(rng.Uint64())
		}
		records[i].Body = fmt.Appendf(nil, `{"kind":"rows","n":%d,"text":"%x"}`, i, random)
	}
	object := encode(t, records)
	counted := &countingReader{r: bytes.NewReader(object)}
	r, err := NewReader("counted", counted, int64(len(object)))
	if err != nil {
		t.Fatal(err)
	}
	counted.n = 0
	for _, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
	}
	all, skipped, pieces := counted.n, 0, 0
	for i := range 12 {
		cell := cellName(i)
		var want []envelope.Encoded
		for _, rec := range records {
			if rec.Stream.Cell == cell {
				want = append(want, rec)
			}
		}
		inGroups, inSpans := int64(0), int64(0)
		for g := range r.file.NumRowGroups() {
			may, err := r.mayHold(g, cell)
			if err != nil {
				t.Fatal(err)
			}
			list, err := r.spans(g, cell)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range list {
				if s.from > 0 {
					pieces++
				}
				if may {
					inSpans += s.to - s.from
				}
			}
			if may {
				inGroups += r.file.MetaData().RowGroup(g).NumRows()
			}
		}
		counted.n = 0
		if got := collect(t, r, cell); !reflect.DeepEqual(want, got) {
			t.Errorf("cell %s: %d records, want %d, or others", cell, len(got), len(want))
		}
		share := float64(inSpans) / float64(len(records))
		if inSpans < inGroups {
			skipped++
			if most := int(float64(all) * (share + 0.15)); counted.n > most {
				t.Errorf("cell %s: %d of %d bytes are read for %d of %d rows", cell, counted.n, all, inSpans, len(records))
			}
		}
		t.Logf("cell %s: %d of %d bytes read, %d of %d rows of the row groups that may hold it", cell, counted.n, all, inSpans, inGroups)
	}
	if skipped < 6 || pieces == 0 {
		t.Errorf("pages are passed over for %d cells of 12, %d spans begin within a row group", skipped, pieces)
	}
}

// TestSpansOfCellsAtRandom: whatever lies where, what is read for a cell is
// what a reader of everything finds of it.
func TestSpansOfCellsAtRandom(t *testing.T) {
	several := 0
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var records []envelope.Encoded
		for len(records) < 30000 {
			cell, n := rng.IntN(5), 1+rng.IntN(9000)
			for range n {
				e := sample(rng.IntN(4))
				e.Stream.Cell = strings.Repeat(cellName(cell), 4)
				e.Position.TXID = uint64(len(records))
				records = append(records, e)
			}
		}
		r := open(t, encode(t, records))
		for cell := range 6 {
			name := strings.Repeat(cellName(cell), 4)
			var want []envelope.Encoded
			for _, rec := range records {
				if rec.Stream.Cell == name {
					want = append(want, rec)
				}
			}
			for g := range r.file.NumRowGroups() {
				list, err := r.spans(g, name)
				if err != nil {
					t.Fatal(err)
				}
				if len(list) > 1 {
					several++
				}
			}
			if got := collect(t, r, name); !reflect.DeepEqual(want, got) {
				t.Errorf("seed %d, cell %d: %d records, want %d, or others", seed, cell, len(got), len(want))
			}
		}
	}
	if several < 2 {
		t.Errorf("%d cells lie in several spans: the test needs some", several)
	}
}

// TestForeignObjectsWithoutFilter: an object without statistics or filters is
// read in full.
func TestForeignObjectsWithoutFilter(t *testing.T) {
	object := encodePlain(t, many(100, 4, 10))
	r := open(t, object)
	if may, err := r.MayHold("Cart:nobody"); err != nil || !may {
		t.Errorf("may hold: %v, %v", may, err)
	}
	if got := collect(t, r, cellName(2)); len(got) != 25 {
		t.Errorf("%d records", len(got))
	}
}

func encodePlain(t *testing.T, records []envelope.Encoded) []byte {
	t.Helper()
	root, err := newSchema()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, root, file.WithWriterProps(parquet.NewWriterProperties(parquet.WithStats(false))))
	var g group
	for i := range records {
		g.add(&records[i])
	}
	rows := w.AppendRowGroup()
	for c := range columns {
		if err := g.write(rows, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(rows.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
