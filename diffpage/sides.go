package diffpage

import "celldexport/diffpage/btree"

// span is a run of cells of one page that holds rows of one side.
type span struct {
	pgno   uint32
	lo, hi uint16 // cells lo to hi-1
	first  int64  // rowid of cell lo, in a rowid tree
}

// pair is the span as a pair: they are in order of rowids, and of pages where
// there are none.
func (s span) pair() pair {
	return pair{uint64(s.first) ^ 1<<63, uint64(s.pgno)<<32 | uint64(s.lo)<<16 | uint64(s.hi)}
}

func spanOf(p pair) span {
	return span{pgno: uint32(p.b >> 32), lo: uint16(p.b >> 16), hi: uint16(p.b), first: int64(p.a ^ 1<<63)}
}

// sides are the rows of a table that may differ between both states, as spans.
type sides struct{ oldSide, newSide pairs }

// sideShare is how much of a diff's memory one list may hold before it goes to
// a file: those of two sides and of their chains are filled at a time.
const sideShare = 4

func (s *sides) use(file *spillFile, memory int64) {
	for _, p := range [...]*pairs{&s.oldSide, &s.newSide} {
		p.file, p.limit = file, memory/sideShare
	}
}

// bound has the sides leave memory when they and those before, which hold so
// many bytes, have more than fits.
func (s *sides) bound(held *int64, memory int64) error {
	if size := int64(cap(s.oldSide.held)+cap(s.newSide.held)) * pairSize; *held+size <= memory {
		*held += size
		return nil
	}
	for _, p := range [...]*pairs{&s.oldSide, &s.newSide} {
		if err := p.spill(); err != nil {
			return err
		}
		p.held = nil
	}
	return nil
}

// head is an overflow chain of a row on a page of one side.
type head struct {
	pgno    uint32 // first page of the chain
	row     uint32 // page of the row
	payload uint32 // bytes of the row
	local   uint16 // bytes of it on its page
}

// headSize is what a head takes in memory, in bytes.
const headSize = 16

func (h head) pair() pair {
	return pair{uint64(h.pgno)<<32 | uint64(h.row), uint64(h.payload)<<16 | uint64(h.local)}
}

func headOf(p pair) head {
	return head{pgno: uint32(p.a >> 32), row: uint32(p.a), payload: uint32(p.b >> 16), local: uint16(p.b)}
}

// headOn is the chain of a cell on page row.
func headOn(row uint32, c *btree.Cell) head {
	return head{c.Overflow, row, uint32(c.Payload), uint16(len(c.Local))}
}

// heads are the chains of the rows on both sides of a table.
type heads struct {
	old, new pairs
	page     []head // those of one page
}

func (h *heads) use(file *spillFile, memory int64) {
	for _, p := range [...]*pairs{&h.old, &h.new} {
		*p = pairs{file: file, limit: memory / sideShare, held: p.held[:0], runs: p.runs[:0]}
	}
}

// take takes a span to a side, if there is one to take it to, and its chains
// to those of the side.
func (h *heads) take(p *btree.Page, s span, chains, side *pairs) (err error) {
	if s.lo >= s.hi {
		return nil
	}
	if s.first, h.page, err = scanCells(p, s, h.page[:0]); err != nil {
		return err
	}
	for _, x := range h.page {
		if err := chains.addPair(x.pair()); err != nil {
			return err
		}
	}
	if side == nil {
		return nil
	}
	return side.addPair(s.pair())
}
