package bucket

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"celldexport/envelope"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
)

// benchRecords are live records of about 300 bytes from many cells.
func benchRecords(n int) []envelope.Encoded {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]envelope.Encoded, n)
	for i := range out {
		e := sample(0)
		e.Stream.Cell = fmt.Sprintf("Cart:%032x", rng.IntN(500))
		e.Position = envelope.Position{Epoch: 3, TXID: uint64(i/500 + 1), Commit: uint64(i/500 + 1)}
		e.CommittedAt += int64(i / 10)
		e.Body = fmt.Appendf(nil, `{"kind":"rows","table":"items","generation":1,"columns":["id","sku","qty","price","note"],"key_columns":["id"],"rows":[["U",[%d],[%d,"A-%06d",%d,%.2f,"note of the row %d"]]]}`,
			i, i, rng.IntN(1e6), rng.IntN(99), rng.Float64()*100, i)
		out[i] = e
	}
	return out
}

// BenchmarkEncode against BenchmarkFloor is what we add to the library.
func BenchmarkEncode(b *testing.B) {
	records := benchRecords(20000)
	var g group
	b.ReportAllocs()
	for b.Loop() {
		e, err := newEncoder("none", compress.Codecs.Zstd, &g)
		if err != nil {
			b.Fatal(err)
		}
		for i := range records {
			if err := e.add(&records[i]); err != nil {
				b.Fatal(err)
			}
		}
		object, err := e.finish()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(object)), "object-bytes")
	}
	b.ReportMetric(float64(len(records)*b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkFloor hands the library the same columns, made beforehand.
func BenchmarkFloor(b *testing.B) {
	records := benchRecords(20000)
	var texts [columnCount][]parquet.ByteArray
	var def [columnCount][]int16
	var wide [columnCount][]int64
	var slim [columnCount][]int32
	for _, r := range records {
		for c, s := range map[int]string{
			colKind: string(r.Kind), colScript: r.Stream.Script, colClass: r.Stream.Class, colCell: r.Stream.Cell,
			colNode: r.Node, colOrigin: string(r.Origin), colBody: string(r.Body),
		} {
			texts[c] = append(texts[c], parquet.ByteArray(s))
		}
		for c, v := range map[int]uint64{
			colIncarnation: r.Stream.Incarnation, colEpoch: r.Position.Epoch, colTXID: r.Position.TXID,
			colCommit: r.Position.Commit, colCommittedAt: uint64(r.CommittedAt),
		} {
			wide[c] = append(wide[c], int64(v))
		}
		for _, c := range []int{colCellName, colFacet} {
			def[c] = append(def[c], 0)
		}
		for _, c := range []int{colFragment, colFragments} {
			slim[c] = append(slim[c], 1)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		root, err := newSchema()
		if err != nil {
			b.Fatal(err)
		}
		var out bytes.Buffer
		w := file.NewParquetWriter(&out, root, file.WithWriterProps(properties(compress.Codecs.Zstd, 500)), file.WithWriteMetadata(metadata.NewKeyValueMetadata()))
		group := w.AppendRowGroup()
		for c := range columns {
			col, err := group.NextColumn()
			if err != nil {
				b.Fatal(err)
			}
			switch col := col.(type) {
			case *file.ByteArrayColumnChunkWriter:
				_, err = col.WriteBatch(texts[c], def[c], nil)
			case *file.Int64ColumnChunkWriter:
				_, err = col.WriteBatch(wide[c], nil, nil)
			case *file.Int32ColumnChunkWriter:
				_, err = col.WriteBatch(slim[c], nil, nil)
			}
			if err == nil {
				err = col.Close()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		if err := group.Close(); err != nil {
			b.Fatal(err)
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(out.Len()), "object-bytes")
	}
	b.ReportMetric(float64(len(records)*b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkRead is reading such an object.
func BenchmarkRead(b *testing.B) {
	records := benchRecords(20000)
	object := encode(b, records)
	b.ReportAllocs()
	for b.Loop() {
		r, err := NewReader("bench", bytes.NewReader(object), int64(len(object)))
		if err != nil {
			b.Fatal(err)
		}
		for _, err := range r.Records() {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(len(records)*b.N)/b.Elapsed().Seconds(), "records/s")
}
