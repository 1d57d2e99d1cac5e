package btree

import "encoding/binary"

// Excerpt is some cells of a leaf page without the rest of it.
type Excerpt struct {
	Type   PageType
	Usable int // usable bytes of the page the cells were on
	Cells  int
	// Data is a cell pointer array as a page has, counted from the start of
	// Data, and the cells. AppendExcerpt makes it.
	Data []byte
}

// AppendExcerpt appends cells lo to hi-1 of a leaf to dst in the form of an
// Excerpt's Data. It takes no more bytes than the page has as long as the
// cells do not overlap, which the caller has to have checked.
func (p *Page) AppendExcerpt(dst []byte, lo, hi int) ([]byte, error) {
	start, n := len(dst), hi-lo
	for range n {
		dst = append(dst, 0, 0)
	}
	var c Cell
	for i := range n {
		if err := p.Cell(lo+i, &c); err != nil {
			return dst[:start], err
		}
		binary.BigEndian.PutUint16(dst[start+2*i:], uint16(len(dst)-start))
		dst = append(dst, c.Raw...)
	}
	return dst, nil
}

// ParseExcerpt makes the page one that has the excerpt's cells only. Bytes
// behind them do not matter.
func (p *Page) ParseExcerpt(e Excerpt) {
	*p = Page{Type: e.Type, data: e.Data, n: e.Cells, usable: e.Usable}
}
