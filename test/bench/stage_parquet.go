package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"celldexport/envelope"
	"celldexport/internal/objstore"
	"celldexport/sinks/bucket"
)

// parquetRecords is how many records one operation of the Parquet stage stores.
const parquetRecords = 100_000

// parquetStage has the bucket sink write records to a store in memory; the
// floor hands arrow-go the columns of the same objects, made beforehand, with
// the properties that those objects show: compression, dictionaries,
// statistics, page index and bloom filter. The floor hands every column over
// as values, the sink those with a dictionary as codes.
func parquetStage(ctx context.Context, b *bench) ([]Line, error) {
	records, raw := someRecords(parquetRecords)
	store := objstore.NewMemory()
	sink, err := newBucket(store)
	if err != nil {
		return nil, err
	}
	first := startFeed(ctx, sink, records)
	if err := errors.Join(first.lap(), first.close()); err != nil {
		return nil, err
	}
	floors, stored, err := floorsOf(ctx, store)
	if err != nil {
		return nil, err
	}
	c := sinkContest{
		stage: "parquet", floor: "arrow-go writer", ours: "bucket sink to memory", records: records, goal: 1.15, bytes: raw,
		on: fmt.Sprintf("%d records of one row, %s, %d objects of %s, page index and bloom filter on both sides", parquetRecords, size(int64(raw)), len(floors), size(stored)),
		bare: func() error {
			for _, f := range floors {
				if err := f.write(io.Discard); err != nil {
					return err
				}
			}
			return nil
		},
		after: func() error { return empty(ctx, store) },
	}
	if c.sink, err = newBucket(store); err != nil {
		return nil, err
	}
	return c.run(ctx, b.effort)
}

func newBucket(store objstore.Store) (*bucket.Sink, error) {
	return bucket.New(bucket.Config{Store: store, Node: "node-a", FlushInterval: time.Hour})
}

// empty deletes what the store holds.
func empty(ctx context.Context, store objstore.Store) error {
	for o, err := range store.List(ctx, bucket.Prefix, "") {
		if err != nil {
			return err
		}
		if err := store.Delete(ctx, o.Key); err != nil {
			return err
		}
	}
	return nil
}

// someRecords are one-row records of fifty cells in turn.
func someRecords(n int) (records []envelope.Encoded, raw int) {
	for i := range n {
		env := someEnvelope()
		env.Stream.Cell = fmt.Sprintf("Cart:%016x", i%50*7919)
		env.Position = envelope.Position{Epoch: 3, TXID: uint64(i/50 + 2), Commit: uint64(i/50 + 2)}
		env.CommittedAt += int64(i) * 3
		body := fmt.Appendf(nil, `{"kind":"rows","table":"items","generation":1,"columns":["id","sku","qty","price","note"],"key_columns":["id"],"rows":[["U",[%d],[%d,"A-%06d",%d,%d.25,"note of the row %d, which says no more"]]]}`, i, i, i*7919%1e6, i%99, i%1000, i)
		records = append(records, envelope.Encoded{Envelope: env, Kind: envelope.KindRows, Body: body})
		raw += len(body)
	}
	return records, raw
}

// object is the columns of one object, as arrow-go takes them.
type object struct {
	root   *schema.GroupNode
	props  *parquet.WriterProperties
	texts  [][]parquet.ByteArray
	wide   [][]int64
	slim   [][]int32
	levels [][]int16
}

// floorsOf reads back every object of the store.
func floorsOf(ctx context.Context, store objstore.Store) (objects []*object, bytes int64, err error) {
	for o, err := range store.List(ctx, bucket.Prefix, "") {
		if err != nil {
			return nil, 0, err
		}
		b, _, err := objstore.ReadAll(ctx, store, o.Key, bucket.MaxObject)
		if err != nil {
			return nil, 0, err
		}
		obj, err := readObject(b)
		if err != nil {
			return nil, 0, fmt.Errorf("read %s: %w", o.Key, err)
		}
		objects, bytes = append(objects, obj), bytes+int64(len(b))
	}
	return objects, bytes, nil
}

func readObject(b []byte) (*object, error) {
	r, err := file.NewParquetReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	root := r.MetaData().Schema
	n := root.NumColumns()
	o := &object{
		root: root.Root(), texts: make([][]parquet.ByteArray, n), wide: make([][]int64, n), slim: make([][]int32, n), levels: make([][]int16, n),
	}
	if o.props, err = propertiesOf(r); err != nil {
		return nil, err
	}
	for g := range r.NumRowGroups() {
		for c := range n {
			if err := o.column(r.RowGroup(g), c); err != nil {
				return nil, err
			}
		}
	}
	return o, nil
}

// propertiesOf are the writer's settings that an object tells of itself.
func propertiesOf(r *file.Reader) (*parquet.WriterProperties, error) {
	props := []parquet.WriterProperty{
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(1),
		parquet.WithDataPageVersion(parquet.DataPageV1), parquet.WithVersion(parquet.V2_LATEST),
	}
	group := r.MetaData().RowGroup(0)
	for c := range r.MetaData().Schema.NumColumns() {
		chunk, err := group.ColumnChunk(c)
		if err != nil {
			return nil, err
		}
		name := r.MetaData().Schema.Column(c).Name()
		stats, err := chunk.StatsSet()
		if err != nil {
			return nil, err
		}
		props = append(props, parquet.WithDictionaryFor(name, chunk.HasDictionaryPage()), parquet.WithStatsFor(name, stats))
		if chunk.BloomFilterOffset() > 0 {
			props = append(props, parquet.WithBloomFilterEnabledFor(name, true), parquet.WithBloomFilterFPPFor(name, 0.01),
				parquet.WithBloomFilterNDVFor(name, 50))
		}
		if chunk.GetOffsetIndexLocation() != nil {
			props = append(props, parquet.WithPageIndexEnabledFor(name, true))
		}
	}
	return parquet.NewWriterProperties(props...), nil
}

// column reads a column whole.
func (o *object) column(g *file.RowGroupReader, c int) error {
	col, err := g.Column(c)
	if err != nil {
		return err
	}
	n := g.NumRows()
	levels := make([]int16, n)
	switch col := col.(type) {
	case *file.ByteArrayColumnChunkReader:
		v := make([]parquet.ByteArray, n)
		_, got, err := col.ReadBatch(n, v, levels, nil)
		if err != nil {
			return err
		}
		for i := range got {
			v[i] = bytes.Clone(v[i])
		}
		o.texts[c] = append(o.texts[c], v[:got]...)
	case *file.Int64ColumnChunkReader:
		v := make([]int64, n)
		_, got, err := col.ReadBatch(n, v, levels, nil)
		if err != nil {
			return err
		}
		o.wide[c] = append(o.wide[c], v[:got]...)
	case *file.Int32ColumnChunkReader:
		v := make([]int32, n)
		_, got, err := col.ReadBatch(n, v, levels, nil)
		if err != nil {
			return err
		}
		o.slim[c] = append(o.slim[c], v[:got]...)
	default:
		return fmt.Errorf("column %d has reader %T", c, col)
	}
	if col.Descriptor().MaxDefinitionLevel() > 0 {
		o.levels[c] = append(o.levels[c], levels...)
	}
	return nil
}

// write is the floor: the library with nothing around it.
func (o *object) write(w io.Writer) error {
	out, err := file.NewParquetWriterWithError(w, o.root, file.WithWriterProps(o.props))
	if err != nil {
		return err
	}
	group := out.AppendRowGroup()
	for c := range o.texts {
		col, err := group.NextColumn()
		if err != nil {
			return err
		}
		switch col := col.(type) {
		case *file.ByteArrayColumnChunkWriter:
			_, err = col.WriteBatch(o.texts[c], o.levels[c], nil)
		case *file.Int64ColumnChunkWriter:
			_, err = col.WriteBatch(o.wide[c], o.levels[c], nil)
		case *file.Int32ColumnChunkWriter:
			_, err = col.WriteBatch(o.slim[c], o.levels[c], nil)
		}
		if err != nil {
			return err
		}
		if err := col.Close(); err != nil {
			return err
		}
	}
	if err := group.Close(); err != nil {
		return err
	}
	return out.Close()
}
