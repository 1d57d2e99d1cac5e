package bucket

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"celldexport/envelope"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
)

// ErrFormat is wrapped when an object is not one of the bucket sink: no
// Parquet file, other columns, or records that contradict themselves.
var ErrFormat = errors.New("not an export object")

// Reader reads the records of an object, whoever wrote it. Columns are found
// by name, so their order and further ones do not matter.
type Reader struct {
	name    string
	source  *source
	file    *file.Reader
	columns [columnCount]int
	meta    map[string]string
	// props are the library's settings, which it looks at for each row group.
	props *parquet.ReaderProperties
}

// NewReader opens an object of size bytes; name is what errors call it. It
// checks the columns.
func NewReader(name string, r io.ReaderAt, size int64) (*Reader, error) {
	out := &Reader{name: name, source: &source{r: r}, props: parquet.NewReaderProperties(nil)}
	err := out.guard(func() (err error) {
		if out.file, err = file.NewParquetReader(io.NewSectionReader(out.source, 0, size), file.WithReadProps(out.props)); err != nil {
			return err
		}
		return out.inspect()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Rows is the number of records, fragments counted one by one.
func (r *Reader) Rows() int64 { return r.file.NumRows() }

// Metadata is the object's key/value metadata.
func (r *Reader) Metadata() map[string]string { return r.meta }

// guard turns what the Parquet library says, or panics with, about a broken
// file into an error that names it. A file that cannot be read is none of the
// library's.
func (r *Reader) guard(fn func() error) (err error) {
	defer func() {
		p := recover()
		switch {
		case (p != nil || err != nil) && r.source.err != nil:
			err = fmt.Errorf("%s: %w", r.name, r.source.err)
		case p != nil:
			err = fmt.Errorf("%s: %w: %v", r.name, ErrFormat, p)
		case err != nil:
			err = fmt.Errorf("%s: %w: %w", r.name, ErrFormat, err)
		}
	}()
	return fn()
}

// source remembers why reading failed.
type source struct {
	r   io.ReaderAt
	err error
}

func (s *source) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.r.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) && s.err == nil {
		s.err = err
	}
	return n, err
}

// inspect finds the columns and reads the metadata.
func (r *Reader) inspect() error {
	sc := r.file.MetaData().Schema
	for i, want := range columns {
		at := sc.ColumnIndexByName(want.name)
		if at < 0 {
			return fmt.Errorf("no column %s", want.name)
		}
		got := sc.Column(at)
		typ, _ := want.kind.physical()
		if got.PhysicalType() != typ || got.MaxRepetitionLevel() > 0 || got.MaxDefinitionLevel() > 1 {
			return fmt.Errorf("column %s is %v (levels %d, %d), want %v",
				want.name, got.PhysicalType(), got.MaxDefinitionLevel(), got.MaxRepetitionLevel(), typ)
		}
		r.columns[i] = at
	}
	r.meta = map[string]string{}
	for _, kv := range r.file.MetaData().KeyValueMetadata() {
		r.meta[kv.GetKey()] = kv.GetValue()
	}
	return nil
}

// Records yields the records in the order they were written. Each has its own
// memory. The sequence ends after an error, which names the object.
func (r *Reader) Records() iter.Seq2[envelope.Encoded, error] {
	return func(yield func(envelope.Encoded, error) bool) {
		for g := range r.file.NumRowGroups() {
			if !r.group(g, nil, yield) {
				return
			}
		}
	}
}

// group yields the records of a row group, of some of its rows or, with nil,
// of all. It reports whether to go on.
func (r *Reader) group(g int, some []span, yield func(envelope.Encoded, error) bool) bool {
	rows := &rowReader{reader: r}
	if err := r.guard(func() error { return rows.open(g, some) }); err != nil {
		yield(envelope.Encoded{}, err)
		return false
	}
	if some == nil {
		some = []span{{0, rows.total}}
	}
	for _, s := range some {
		if err := r.guard(func() error { return rows.seek(s) }); err != nil {
			yield(envelope.Encoded{}, err)
			return false
		}
		if !r.rows(g, rows, s, yield) {
			return false
		}
	}
	return true
}

// rows yields the records of a span. It reports whether to go on.
func (r *Reader) rows(g int, rows *rowReader, s span, yield func(envelope.Encoded, error) bool) bool {
	for rows.left = s.to - s.from; rows.left > 0; {
		if err := r.guard(rows.fill); err != nil {
			yield(envelope.Encoded{}, err)
			return false
		}
		for i := range rows.count {
			rec, err := rows.record(i)
			if err != nil {
				err = fmt.Errorf("%s: row %d of row group %d: %w: %w", r.name, rows.next-int64(rows.count-i), g, ErrFormat, err)
			}
			if !yield(rec, err) || err != nil {
				return false
			}
		}
	}
	return true
}

// readRows is how many rows are read at once.
const readRows = 64

// rowReader reads one row group.
type rowReader struct {
	reader *Reader
	chunks [columnCount]file.ColumnChunkReader
	// total is the number of rows, next the one that is read next, and left
	// how many of a span are not read.
	total, next, left int64

	count int
	texts [columnCount][readRows]parquet.ByteArray
	null  [columnCount][readRows]bool
	wide  [columnCount][readRows]int64
	slim  [columnCount][readRows]int32
}

// open opens the columns of a row group. All rows of a column are read from
// the file at once; of some rows, page by page.
func (r *rowReader) open(group int, some []span) error {
	rg := r.reader.file.RowGroup(group)
	r.total = rg.NumRows()
	r.reader.props.BufferedStreamEnabled = some != nil && (len(some) != 1 || some[0] != span{0, r.total})
	for c := range columns {
		chunk, err := rg.Column(r.reader.columns[c])
		if err != nil {
			return fmt.Errorf("column %s: %w", columns[c].name, err)
		}
		r.chunks[c] = chunk
	}
	return nil
}

// fill reads the next rows.
func (r *rowReader) fill() error {
	n := min(r.left, readRows)
	for c := range columns {
		if err := r.column(c, n); err != nil {
			return fmt.Errorf("column %s: %w", columns[c].name, err)
		}
	}
	r.count = int(n)
	r.left -= n
	r.next += n
	return nil
}

// column reads n rows of a column and spreads them, so that row i is at i.
func (r *rowReader) column(c int, n int64) error {
	var levels [readRows]int16
	var total int64
	var values int
	var err error
	switch chunk := r.chunks[c].(type) {
	case *file.ByteArrayColumnChunkReader:
		total, values, err = chunk.ReadBatch(n, r.texts[c][:], levels[:], nil)
	case *file.Int64ColumnChunkReader:
		total, values, err = chunk.ReadBatch(n, r.wide[c][:], levels[:], nil)
	case *file.Int32ColumnChunkReader:
		total, values, err = chunk.ReadBatch(n, r.slim[c][:], levels[:], nil)
	default:
		err = fmt.Errorf("unexpected reader %T", chunk)
	}
	if err != nil {
		return err
	}
	if total != n {
		return fmt.Errorf("%d rows of %d", total, n)
	}
	optional := r.chunks[c].Descriptor().MaxDefinitionLevel() > 0
	for i := int(n) - 1; i >= 0; i-- {
		r.null[c][i] = optional && levels[i] == 0
		if r.null[c][i] {
			continue
		}
		if values--; values < 0 {
			return errors.New("fewer values than rows")
		}
		r.texts[c][i], r.wide[c][i], r.slim[c][i] = r.texts[c][values], r.wide[c][values], r.slim[c][values]
	}
	return nil
}

// record puts row i together.
func (r *rowReader) record(i int) (envelope.Encoded, error) {
	for c, col := range columns {
		if r.null[c][i] && !col.optional {
			return envelope.Encoded{}, fmt.Errorf("column %s is null", col.name)
		}
	}
	rec := envelope.Encoded{
		Envelope: envelope.Envelope{
			Stream: envelope.Stream{
				Script: string(r.texts[colScript][i]), Class: string(r.texts[colClass][i]), Cell: string(r.texts[colCell][i]),
				Incarnation: uint64(r.wide[colIncarnation][i]),
			},
			Position: envelope.Position{
				Epoch: uint64(r.wide[colEpoch][i]), TXID: uint64(r.wide[colTXID][i]), Commit: uint64(r.wide[colCommit][i]),
			},
			CommittedAt: r.wide[colCommittedAt][i],
			Node:        string(r.texts[colNode][i]),
			Origin:      envelope.Origin(r.texts[colOrigin][i]),
			Fragment:    uint32(r.slim[colFragment][i]),
			Fragments:   uint32(r.slim[colFragments][i]),
		},
		Kind: envelope.Kind(r.texts[colKind][i]),
		Body: r.texts[colBody][i],
	}
	if !r.null[colFacet][i] {
		rec.Stream.Facet = string(r.texts[colFacet][i])
	}
	if !r.null[colCellName][i] {
		name := string(r.texts[colCellName][i])
		rec.CellName = &name
	}
	return rec, checkBody(&rec)
}

// checkBody holds the kind column against the body's.
func checkBody(rec *envelope.Encoded) error {
	const start = `{"kind":"`
	if rest, ok := bytes.CutPrefix(rec.Body, []byte(start)); ok && bytes.HasPrefix(rest, []byte(rec.Kind)) && bytes.HasPrefix(rest[len(rec.Kind):], []byte(`"`)) {
		return nil
	}
	var body struct {
		Kind *envelope.Kind `json:"kind"`
	}
	if err := json.Unmarshal(rec.Body, &body); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	if body.Kind == nil {
		return errors.New("body has no kind")
	}
	if *body.Kind != rec.Kind {
		return fmt.Errorf("the kind column says %q, the body %q", rec.Kind, *body.Kind)
	}
	return nil
}
