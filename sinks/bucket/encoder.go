package bucket

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"celldexport/envelope"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
)

const (
	// chunkRows and chunkBytes bound what is collected before it is handed to
	// the column writers: a page is closed between two chunks only.
	chunkRows  = 512
	chunkBytes = 1 << 20
	// groupBytes is the size of records at which a row group is closed.
	groupBytes = 128 << 20
	// zstdLevel is the fastest: objects are read often and written all day.
	zstdLevel = 1
	// maxBody is the largest body that fits a Parquet page.
	maxBody = math.MaxInt32 - 1<<20
)

// encoder writes records to one Parquet object. The same records give the
// same bytes.
type encoder struct {
	out    bytes.Buffer
	writer *file.Writer
	group  file.BufferedRowGroupWriter
	inside int64 // size of the records in the group
	rows   int64

	texts [columnCount][]parquet.ByteArray // of text columns
	def   [columnCount][]int16             // of optional columns
	wide  [columnCount][]int64
	slim  [columnCount][]int32
	count int
	arena []byte // what texts point into; never grows

	last    envelope.Envelope // of the record before
	hasLast bool
}

// created marks our objects; it has no version in it, so that an object is
// the same bytes after an upgrade.
const created = "celldexport"

func properties(codec compress.Compression) *parquet.WriterProperties {
	props := []parquet.WriterProperty{
		parquet.WithCompression(codec), parquet.WithCompressionLevel(zstdLevel),
		parquet.WithCreatedBy(created), parquet.WithDataPageVersion(parquet.DataPageV1),
		parquet.WithVersion(parquet.V2_LATEST), parquet.WithStatsFor("body", false),
	}
	for _, c := range columns {
		props = append(props, parquet.WithDictionaryFor(c.name, !c.plain))
	}
	return parquet.NewWriterProperties(props...)
}

// newEncoder begins an object whose metadata tells the retention.
func newEncoder(retention string, codec compress.Compression) (*encoder, error) {
	e := &encoder{arena: make([]byte, 0, chunkBytes)}
	root, err := newSchema()
	if err != nil {
		return nil, err
	}
	meta := metadata.NewKeyValueMetadata()
	if err := errors.Join(meta.Append(MetaSchema, SchemaVersion), meta.Append(MetaRetention, retention)); err != nil {
		return nil, fmt.Errorf("parquet metadata: %w", err)
	}
	e.writer, err = file.NewParquetWriterWithError(&e.out, root, file.WithWriterProps(properties(codec)), file.WithWriteMetadata(meta))
	if err != nil {
		return nil, fmt.Errorf("begin parquet object: %w", err)
	}
	return e, nil
}

// add appends a record; its body is copied.
func (e *encoder) add(r *envelope.Encoded) error {
	if len(r.Body) > maxBody {
		return fmt.Errorf("%s record at %v of %v has a body of %d bytes, a parquet page holds %d",
			r.Kind, r.Position, r.Stream, len(r.Body), maxBody)
	}
	need := len(r.Body) + len(r.Stream.Script) + len(r.Stream.Class) + len(r.Stream.Cell) + len(r.Stream.Facet) +
		len(r.Node) + len(r.Kind) + len(r.Origin)
	if r.CellName != nil {
		need += len(*r.CellName)
	}
	if e.count == chunkRows || len(e.arena)+need > cap(e.arena) {
		if err := e.flush(); err != nil {
			return err
		}
		if need > cap(e.arena) {
			// One record out of the ordinary: it makes a chunk of its own.
			e.arena = make([]byte, 0, need)
		}
	}
	e.names(r)
	e.numbers(r)
	e.put(colKind, string(r.Kind))
	e.put(colOrigin, string(r.Origin))
	at := len(e.arena)
	e.arena = append(e.arena, r.Body...)
	e.texts[colBody] = append(e.texts[colBody], e.arena[at:])
	e.count++
	e.rows++
	e.inside += int64(need)
	if e.inside >= groupBytes {
		return e.endGroup()
	}
	return nil
}

// names sets the columns that name the stream; consecutive records mostly
// share them.
func (e *encoder) names(r *envelope.Encoded) {
	again := e.hasLast && e.count > 0
	if again && e.last.Stream == r.Stream {
		for _, c := range [...]int{colScript, colClass, colCell} {
			e.repeat(c)
		}
		if r.Stream.Facet != "" {
			e.repeat(colFacet)
		}
	} else {
		e.put(colScript, r.Stream.Script)
		e.put(colClass, r.Stream.Class)
		e.put(colCell, r.Stream.Cell)
		if r.Stream.Facet != "" {
			e.put(colFacet, r.Stream.Facet)
		}
	}
	e.define(colFacet, r.Stream.Facet != "")
	if again && e.last.Node == r.Node {
		e.repeat(colNode)
	} else {
		e.put(colNode, r.Node)
	}
	if r.CellName != nil {
		e.put(colCellName, *r.CellName)
	}
	e.define(colCellName, r.CellName != nil)
	e.last, e.hasLast = r.Envelope, true
}

func (e *encoder) numbers(r *envelope.Encoded) {
	e.wide[colIncarnation] = append(e.wide[colIncarnation], int64(r.Stream.Incarnation))
	e.wide[colEpoch] = append(e.wide[colEpoch], int64(r.Position.Epoch))
	e.wide[colTXID] = append(e.wide[colTXID], int64(r.Position.TXID))
	e.wide[colCommit] = append(e.wide[colCommit], int64(r.Position.Commit))
	e.wide[colCommittedAt] = append(e.wide[colCommittedAt], r.CommittedAt)
	e.slim[colFragment] = append(e.slim[colFragment], int32(r.Fragment))
	e.slim[colFragments] = append(e.slim[colFragments], int32(r.Fragments))
}

func (e *encoder) put(c int, s string) {
	at := len(e.arena)
	e.arena = append(e.arena, s...)
	e.texts[c] = append(e.texts[c], e.arena[at:])
}

func (e *encoder) repeat(c int) {
	values := e.texts[c]
	e.texts[c] = append(values, values[len(values)-1])
}

func (e *encoder) define(c int, present bool) {
	level := int16(0)
	if present {
		level = 1
	}
	e.def[c] = append(e.def[c], level)
}

// flush hands what was collected to the column writers.
func (e *encoder) flush() error {
	if e.count == 0 {
		return nil
	}
	if e.group == nil {
		var err error
		if e.group, err = e.writer.AppendBufferedRowGroupChecked(); err != nil {
			return fmt.Errorf("begin parquet row group: %w", err)
		}
	}
	for c := range columns {
		if err := e.write(c); err != nil {
			return fmt.Errorf("write parquet column %s: %w", columns[c].name, err)
		}
	}
	if cap(e.arena) > 2*chunkBytes {
		e.arena = make([]byte, 0, chunkBytes)
	}
	e.arena, e.count = e.arena[:0], 0
	return nil
}

func (e *encoder) write(c int) error {
	w, err := e.group.Column(c)
	if err != nil {
		return err
	}
	switch w := w.(type) {
	case *file.ByteArrayColumnChunkWriter:
		_, err = w.WriteBatch(e.texts[c], e.def[c], nil)
		e.texts[c], e.def[c] = e.texts[c][:0], e.def[c][:0]
	case *file.Int64ColumnChunkWriter:
		_, err = w.WriteBatch(e.wide[c], nil, nil)
		e.wide[c] = e.wide[c][:0]
	case *file.Int32ColumnChunkWriter:
		_, err = w.WriteBatch(e.slim[c], nil, nil)
		e.slim[c] = e.slim[c][:0]
	default:
		err = fmt.Errorf("unexpected writer %T", w)
	}
	return err
}

func (e *encoder) endGroup() error {
	if err := e.flush(); err != nil {
		return err
	}
	if e.group == nil {
		return nil
	}
	if err := e.group.Close(); err != nil {
		return fmt.Errorf("end parquet row group: %w", err)
	}
	e.group, e.inside = nil, 0
	return nil
}

// finish ends the object and returns its bytes.
func (e *encoder) finish() ([]byte, error) {
	if err := e.endGroup(); err != nil {
		return nil, err
	}
	if err := e.writer.Close(); err != nil {
		return nil, fmt.Errorf("end parquet object: %w", err)
	}
	return e.out.Bytes(), nil
}
