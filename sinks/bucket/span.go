package bucket

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/metadata"
)

// span is rows of a row group: from up to, not including, to.
type span struct{ from, to int64 }

// spans are the rows of a row group that may be of a cell: those of the pages
// of the cell column whose least and greatest value let it. Without a page
// index, or with one that does not fit the row group, these are all rows.
func (r *Reader) spans(g int, cell string) (list []span, err error) {
	err = r.guard(func() error {
		list, err = r.findSpans(g, []byte(cell))
		return err
	})
	return list, err
}

func (r *Reader) findSpans(g int, cell []byte) ([]span, error) {
	rows := r.file.MetaData().RowGroup(g).NumRows()
	all := []span{{0, rows}}
	index, err := r.file.GetPageIndexReader().RowGroup(g)
	if err != nil {
		return nil, fmt.Errorf("page index of row group %d: %w", g, err)
	}
	if index == nil {
		return all, nil
	}
	offsets, err := index.GetOffsetIndex(r.columns[colCell])
	if err != nil {
		return nil, fmt.Errorf("offset index of column cell: %w", err)
	}
	values, err := index.GetColumnIndex(r.columns[colCell])
	if err != nil {
		return nil, fmt.Errorf("column index of column cell: %w", err)
	}
	cells, ok := values.(*metadata.TypedColumnIndex[parquet.ByteArray])
	if !ok || offsets == nil {
		return all, nil
	}
	pages, least, greatest := offsets.GetPageLocations(), cells.MinValues(), cells.MaxValues()
	if len(pages) == 0 || pages[0].FirstRowIndex != 0 || len(least) != len(pages) || len(greatest) != len(pages) {
		return all, nil
	}
	var list []span
	for i, page := range pages {
		s := span{from: page.FirstRowIndex, to: rows}
		if i+1 < len(pages) {
			s.to = pages[i+1].FirstRowIndex
		}
		if s.from >= s.to {
			return all, nil
		}
		switch last := len(list) - 1; {
		case bytes.Compare(cell, least[i]) < 0 || bytes.Compare(cell, greatest[i]) > 0:
		case last >= 0 && list[last].to == s.from:
			list[last].to = s.to
		default:
			list = append(list, s)
		}
	}
	return list, nil
}

// seek goes to the rows of a span, in every column by its own pages. What it
// passes over is neither read nor unpacked.
func (r *rowReader) seek(s span) error {
	if s.from == r.next {
		return nil
	}
	for c, chunk := range r.chunks {
		if err := chunk.SeekToRow(s.from); err != nil {
			return fmt.Errorf("column %s: go to row %d: %w", columns[c].name, s.from, err)
		}
	}
	r.next = s.from
	return nil
}
