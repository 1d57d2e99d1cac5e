package diffpage

import (
	"sort"

	"celldexport/diffpage/btree"
)

// excerpt is what matters of two images of a leaf: the rows that they do not
// share.
type excerpt struct {
	// old is a span of the page, or of the cells that are kept of it.
	old span
	// lo and hi bound the cells of the new image.
	lo, hi uint16
	typ    btree.PageType
	kept   bool
	at     int // where the kept cells are
	heads  [2]int
}

// excerpts are those of a unit, found while its pages are compared and both
// images are at hand, so that most old pages are read once and forgotten.
type excerpts struct {
	list  []excerpt // by page number, ascending
	cells []byte
	heads []head
	hint  int // what was found last
}

// add takes the rows that an old leaf and its new image do not share, and the
// cells of the old ones if they are few and fit the room, in bytes. It reports
// whether it could: what is wrong with a page is left for those to say who
// know that it matters.
//
// Cells that overflow never count as shared, since it is not known yet which
// chains have changed: at worst a row that did not change is looked at.
func (e *excerpts) add(was, is *btree.Page, pgno uint32, room int64) bool {
	if was.Type != is.Type || was.Type.Interior() {
		return false
	}
	head, tail, err := btree.Common(was, is, noChain)
	if err != nil {
		return false
	}
	x := excerpt{typ: was.Type, at: len(e.cells), heads: [2]int{len(e.heads), len(e.heads)}}
	x.lo, x.hi = uint16(head), uint16(is.Len()-tail)
	x.old = span{pgno: pgno, lo: uint16(head), hi: uint16(was.Len() - tail)}
	if x.old.lo < x.old.hi {
		if x.old.first, e.heads, err = scanCells(was, x.old, e.heads); err != nil {
			e.heads = e.heads[:x.heads[0]]
			return false
		}
	}
	x.heads[1] = len(e.heads)
	if room -= int64(x.heads[1]-x.heads[0]) * headSize; room < 0 {
		e.heads = e.heads[:x.heads[0]]
		return false
	}
	if n := int(x.old.hi - x.old.lo); n <= was.Len()/2 {
		cells, err := was.AppendExcerpt(e.cells, int(x.old.lo), int(x.old.hi))
		if err != nil {
			e.heads = e.heads[:x.heads[0]]
			return false
		}
		if int64(len(cells)-len(e.cells)) <= room {
			e.cells, x.kept = cells, true
			x.old.lo, x.old.hi = 0, uint16(n)
		}
	}
	e.list = append(e.list, x)
	return true
}

// noChain takes every overflow chain for one that may have changed.
func noChain(uint32) bool { return false }

// find is the excerpt of a page, nil when there is none.
func (e *excerpts) find(pgno uint32) *excerpt {
	if len(e.list) == 0 {
		return nil
	}
	// Pages are mostly asked for one after the other, this way or that.
	for _, i := range [...]int{e.hint - 1, e.hint + 1} {
		if uint(i) < uint(len(e.list)) && e.list[i].old.pgno == pgno {
			e.hint = i
			return &e.list[i]
		}
	}
	i := sort.Search(len(e.list), func(i int) bool { return e.list[i].old.pgno >= pgno })
	if i == len(e.list) || e.list[i].old.pgno != pgno {
		return nil
	}
	e.hint = i
	return &e.list[i]
}

// load makes p the kept cells of an excerpt.
func (e *excerpts) load(x *excerpt, p *btree.Page, usable int) {
	p.ParseExcerpt(btree.Excerpt{Type: x.typ, Usable: usable, Cells: int(x.old.hi), Data: e.cells[x.at:]})
}

// clear empties the set and keeps its memory.
func (e *excerpts) clear() {
	e.list, e.cells, e.heads = e.list[:0], e.cells[:0], e.heads[:0]
}
