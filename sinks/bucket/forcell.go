package bucket

import (
	"bytes"
	"fmt"
	"iter"

	"celldexport/envelope"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/metadata"
)

// ForCell yields the records of one cell and its facets in the order they
// were written. Row groups that hold none of them, as far as their statistics
// and bloom filters tell, are not read, and of others no page whose rows are
// none of the cell's by the page index; MayHold tells when no row group is.
func (r *Reader) ForCell(cell string) iter.Seq2[envelope.Encoded, error] {
	return func(yield func(envelope.Encoded, error) bool) {
		mine := func(rec envelope.Encoded, err error) bool {
			return err == nil && rec.Stream.Cell != cell || yield(rec, err)
		}
		for g := range r.file.NumRowGroups() {
			may, err := r.mayHold(g, cell)
			var some []span
			if err == nil && may {
				some, err = r.spans(g, cell)
			}
			if err != nil {
				yield(envelope.Encoded{}, err)
				return
			}
			if len(some) > 0 && !r.group(g, some, mine) {
				return
			}
		}
	}
}

// MayHold reports whether records of a cell or its facets may be in the
// object. false is certain; true is wrong for about one absent cell in a
// hundred, and for every cell in an object without statistics and filters.
func (r *Reader) MayHold(cell string) (bool, error) {
	for g := range r.file.NumRowGroups() {
		if may, err := r.mayHold(g, cell); may || err != nil {
			return may, err
		}
	}
	return false, nil
}

// mayHold is MayHold for a row group.
func (r *Reader) mayHold(g int, cell string) (may bool, err error) {
	err = r.guard(func() error {
		chunk, err := r.file.MetaData().RowGroup(g).ColumnChunk(r.columns[colCell])
		if err != nil {
			return fmt.Errorf("column cell of row group %d: %w", g, err)
		}
		if may, err = r.between(chunk, cell); err != nil || !may {
			return err
		}
		may, err = r.filtered(g, cell)
		return err
	})
	return may, err
}

// between holds a cell against the least and the greatest one.
func (r *Reader) between(chunk *metadata.ColumnChunkMetaData, cell string) (bool, error) {
	stats, err := chunk.Statistics()
	if err != nil {
		return false, fmt.Errorf("statistics of column cell: %w", err)
	}
	cells, ok := stats.(*metadata.ByteArrayStatistics)
	if !ok || cells == nil || !cells.HasMinMax() {
		return true, nil
	}
	return bytes.Compare([]byte(cell), cells.Min()) >= 0 && bytes.Compare([]byte(cell), cells.Max()) <= 0, nil
}

// filtered asks the bloom filter.
func (r *Reader) filtered(g int, cell string) (bool, error) {
	group, err := r.file.GetBloomFilterReader().RowGroup(g)
	if err != nil {
		return false, fmt.Errorf("bloom filters of row group %d: %w", g, err)
	}
	filter, err := group.GetColumnBloomFilter(r.columns[colCell])
	if err != nil {
		return false, fmt.Errorf("bloom filter of column cell: %w", err)
	}
	if filter == nil {
		return true, nil
	}
	typed := metadata.TypedBloomFilter[parquet.ByteArray]{BloomFilter: filter}
	return typed.Check(parquet.ByteArray(cell)), nil
}
