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
	// groupBytes is the size of records at which a row group is closed. An
	// object of the usual size is one; under a backlog each is a part that a
	// reader looking for one cell can pass over.
	groupBytes = 16 << 20
	// zstdLevel is the fastest: objects are read often and written all day.
	zstdLevel = 1
	// batchRows is how many rows the library takes in one go, and so all of a
	// row group's: pages of texts end where the pieces handed over do, and
	// those of numbers hold more rows than a row group.
	batchRows = groupBytes / recordBytes
	// maxBody is the largest body that fits a Parquet page.
	maxBody = math.MaxInt32 - 1<<20
	// falsePositives is how often the bloom filter does not exclude a cell
	// that a row group does not hold.
	falsePositives = 0.01
)

// encoder writes records to one Parquet object. The same records give the
// same bytes. Records are collected until a row group is full, because the
// size of its bloom filter has to be told before it begins and follows from
// the number of cells in it.
type encoder struct {
	out    bytes.Buffer
	props  *parquet.WriterProperties
	codec  compress.Compression
	writer *file.Writer
	group  *group
	rows   int64
}

// created marks our objects; it has no version in it, so that an object is
// the same bytes after an upgrade.
const created = "celldexport"

// properties say how columns are stored. cells is the number of cells in the
// next row group. body has no statistics: they would repeat whole records.
func properties(codec compress.Compression, cells int) *parquet.WriterProperties {
	cell := columns[colCell].name
	props := []parquet.WriterProperty{
		parquet.WithCompression(codec), parquet.WithCompressionLevel(zstdLevel),
		parquet.WithCreatedBy(created), parquet.WithDataPageVersion(parquet.DataPageV1),
		parquet.WithVersion(parquet.V2_LATEST), parquet.WithBatchSize(batchRows),
		parquet.WithStatsFor(columns[colBody].name, false),
		parquet.WithPageIndexEnabled(true),
		parquet.WithBloomFilterEnabledFor(cell, true), parquet.WithBloomFilterFPPFor(cell, falsePositives),
		parquet.WithBloomFilterNDVFor(cell, int64(max(1, cells))),
	}
	for _, c := range columns {
		props = append(props, parquet.WithDictionaryFor(c.name, c.dictionary))
	}
	return parquet.NewWriterProperties(props...)
}

// newEncoder begins an object whose metadata tells the retention. It collects
// records in g, which is free again once the object is finished.
func newEncoder(retention string, codec compress.Compression, g *group) (*encoder, error) {
	g.clear()
	e := &encoder{codec: codec, props: properties(codec, 0), group: g}
	root, err := newSchema()
	if err != nil {
		return nil, err
	}
	meta := metadata.NewKeyValueMetadata()
	if err := errors.Join(meta.Append(MetaSchema, SchemaVersion), meta.Append(MetaRetention, retention)); err != nil {
		return nil, fmt.Errorf("parquet metadata: %w", err)
	}
	e.writer, err = file.NewParquetWriterWithError(&e.out, root, file.WithWriterProps(e.props), file.WithWriteMetadata(meta))
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
	e.group.add(r)
	e.rows++
	if e.group.bytes >= groupBytes {
		return e.endGroup()
	}
	return nil
}

// endGroup writes the records collected as a row group.
func (e *encoder) endGroup() error {
	if e.group.rows == 0 {
		return nil
	}
	before := e.out.Len()
	e.out.Grow(e.group.packs())
	// The library reads the number of cells when the row group begins.
	*e.props = *properties(e.codec, e.group.cells())
	rows, err := e.writer.AppendRowGroupChecked()
	if err != nil {
		return fmt.Errorf("begin parquet row group: %w", err)
	}
	for c := range columns {
		if err := e.group.write(rows, c); err != nil {
			return fmt.Errorf("write parquet column %s: %w", columns[c].name, err)
		}
	}
	if err := rows.Close(); err != nil {
		return fmt.Errorf("end parquet row group: %w", err)
	}
	e.group.packed(e.out.Len() - before)
	e.group.clear()
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
