package bucket

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// oneColumn is a file with the column cell alone, as write hands it over.
func oneColumn(t *testing.T, g *group, write func(*file.ByteArrayColumnChunkWriter) error) []byte {
	t.Helper()
	root, err := newSchema()
	if err != nil {
		t.Fatal(err)
	}
	root, err = schema.NewGroupNode("schema", parquet.Repetitions.Required, schema.FieldList{root.Field(colCell)}, -1)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, root, file.WithWriterProps(properties(compress.Codecs.Zstd, g.cells())))
	rows := w.AppendRowGroup()
	col, err := rows.NextColumn()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return write(col.(*file.ByteArrayColumnChunkWriter)) }, rows.Close, w.Close,
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// outline is the pages of a column: where each begins, its least and its
// greatest value, and those of the column; then all values.
func outline(t *testing.T, object []byte) (pages, values []string) {
	t.Helper()
	r, err := file.NewParquetReader(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	index, err := r.GetPageIndexReader().RowGroup(0)
	if err != nil {
		t.Fatal(err)
	}
	offsets, err := index.GetOffsetIndex(0)
	if err != nil {
		t.Fatal(err)
	}
	bounds, err := index.GetColumnIndex(0)
	if err != nil {
		t.Fatal(err)
	}
	for i, at := range offsets.GetPageLocations() {
		page := fmt.Sprint(at.FirstRowIndex)
		if bounds != nil { // they are left out when they are long
			page += fmt.Sprintf(" %s %s", bounds.GetMinValues()[i], bounds.GetMaxValues()[i])
		}
		pages = append(pages, page)
	}
	chunk, err := r.MetaData().RowGroup(0).ColumnChunk(0)
	if err != nil {
		t.Fatal(err)
	}
	stats, err := chunk.Statistics()
	if err != nil {
		t.Fatal(err)
	}
	if stats != nil {
		pages = append(pages, fmt.Sprintf("%s %s %d", stats.EncodeMin(), stats.EncodeMax(), stats.NumValues()))
	}
	col, err := r.RowGroup(0).Column(0)
	if err != nil {
		t.Fatal(err)
	}
	read := make([]parquet.ByteArray, r.NumRows())
	if _, n, err := col.(*file.ByteArrayColumnChunkReader).ReadBatch(r.NumRows(), read, nil, nil); err != nil || n != len(read) {
		t.Fatalf("%d of %d values, %v", n, len(read), err)
	}
	for _, v := range read {
		values = append(values, string(v))
	}
	return pages, values
}

// TestCodesAreWhatTheLibraryMakesOfValues: a column handed over as dictionary
// and codes is the column that the library makes of the values itself, byte
// by byte, unless the dictionary grows after the first page: then only the
// codes may be wider.
func TestCodesAreWhatTheLibraryMakesOfValues(t *testing.T) {
	long := strings.Repeat("x", 400)
	for name, c := range map[string]struct {
		rows  int
		text  func(i int) string
		grows bool
	}{
		"one row":               {1, func(int) string { return "Cart:1" }, false},
		"an empty text":         {3, func(i int) string { return strings.Repeat("a", i%2) }, false},
		"one text":              {60_000, func(int) string { return "Cart:1" }, false},
		"two texts":             {pageRows + 1, func(i int) string { return fmt.Sprint(i % 2) }, false},
		"fifty texts in turn":   {60_000, func(i int) string { return cellName(i % 50) }, false},
		"descending":            {2000, func(i int) string { return fmt.Sprintf("%05d", 2000-i) }, false},
		"long texts":            {20_000, func(i int) string { return fmt.Sprint(long, i%257) }, false},
		"texts above a piece":   {40, func(i int) string { return fmt.Sprint(strings.Repeat(long, 400), i%3) }, false},
		"another text at last":  {60_000, func(i int) string { return cellName(i / 59_999) }, false},
		"more texts after page": {60_000, func(i int) string { return cellName(i / 300) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var g group
			want := make([]string, c.rows)
			for i := range want {
				want[i] = c.text(i)
				g.put(colCell, want[i])
				g.rows++
			}
			texts := &g.texts[colCell]
			codes := oneColumn(t, &g, texts.writeCodes)
			values := oneColumn(t, &g, func(w *file.ByteArrayColumnChunkWriter) error { return g.writePlain(w, texts, nil) })
			if same := bytes.Equal(codes, values); same == c.grows {
				t.Errorf("bytes are the same: %v, want %v", same, !c.grows)
			}
			pages, got := outline(t, codes)
			wantPages, _ := outline(t, values)
			if !slices.Equal(pages, wantPages) {
				t.Errorf("pages are\n%s\nwant\n%s", strings.Join(pages, "\n"), strings.Join(wantPages, "\n"))
			}
			if !slices.Equal(got, want) {
				t.Error("the values are others")
			}
		})
	}
}

// TestManyTexts: texts that exceed what a dictionary page may hold are left to
// the library, which gives the dictionary up.
func TestManyTexts(t *testing.T) {
	records := many(50_000, 50_000, 10)
	object := encode(t, records)
	r, err := file.NewParquetReader(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	chunk, err := r.MetaData().RowGroup(0).ColumnChunk(colCell)
	if err != nil {
		t.Fatal(err)
	}
	if size := chunk.TotalUncompressedSize(); size < 50_000*37 {
		t.Errorf("50,000 cells are %d bytes", size)
	}
	for i, got := range decode(t, object) {
		if want := records[i]; got.Envelope != want.Envelope || !bytes.Equal(got.Body, want.Body) {
			t.Fatalf("record %d is %+v, want %+v", i, got, want)
		}
	}
}
