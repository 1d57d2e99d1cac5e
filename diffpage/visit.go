package diffpage

import (
	"fmt"

	"celldexport/diffpage/btree"
)

// place is a page of the new tree that is still to be looked at.
type place struct {
	pgno, parent uint32
	depth        int
}

// visitNew finds the pages that are in the new tree and changed, or are new in
// it, and takes those with rows to the new side. Starting points are changed
// pages with an unchanged way up to a root that stayed, and the root itself
// when it is new or moved.
func (d *differ) visitNew(t *tableDiff) error {
	todo := d.places[:0]
	if t.stays {
		for _, pgno := range t.touched {
			if d.climb(t, pgno) {
				todo = append(todo, place{pgno: pgno, parent: d.owners.of(pgno).parent()})
			}
		}
	} else {
		for _, pgno := range t.touched {
			d.climb(t, pgno)
		}
		if t.new.root != 0 {
			todo = append(todo, place{pgno: t.new.root})
		}
	}
	for len(todo) > 0 {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		var err error
		if todo, err = d.visit(t, next, todo); err != nil {
			return err
		}
	}
	d.places = todo
	return nil
}

// climb follows the old parents of a changed page. It reports whether the way
// up to the root is unchanged and the root stayed, so that the page surely is
// in the new tree. Where the way is broken further up, the page is parked
// under every unchanged page before the break: whichever of them gets a place
// in the new tree brings it along. A page right below the break is visited
// from its parent, or not at all.
func (d *differ) climb(t *tableDiff, pgno uint32) bool {
	var path [btree.MaxDepth]uint32
	n := 0
	for up := d.owners.of(pgno).parent(); up != 0 && n < len(path); up = d.owners.of(up).parent() {
		if d.hasChanged(up) || up == t.old.root && !t.stays {
			t.park(pgno, path[:n])
			// An old root that is unchanged may live on further down.
			if !d.hasChanged(up) {
				t.park(pgno, []uint32{up})
			}
			return false
		}
		path[n] = up
		n++
	}
	return t.stays
}

// park notes a changed page under unchanged ones.
func (t *tableDiff) park(pgno uint32, under []uint32) {
	if len(under) > 0 && t.parked == nil {
		t.parked = make(map[uint32][]uint32)
	}
	for _, up := range under {
		t.parked[up] = append(t.parked[up], pgno)
	}
}

// visit claims a page for the new tree and puts the children that have to be
// visited on the list.
func (d *differ) visit(t *tableDiff, at place, todo []place) ([]place, error) {
	if at.depth >= btree.MaxDepth {
		return todo, corrupt(t.name, at.pgno, "the tree is deeper than %d pages", btree.MaxDepth)
	}
	if !d.new.has(at.pgno) {
		return todo, corrupt(t.name, at.pgno, "it is referred to, but the database has no such page")
	}
	if err := d.claim(t.name, at.pgno, newOwner(roleTree, t.slot, at.parent)); err != nil {
		return todo, err
	}
	var p btree.Page
	if err := d.new.parse(at.pgno, &p, &d.bufs[0]); err != nil {
		return todo, blame(t.name, at.pgno, err)
	}
	if p.Type.Index() != t.new.index {
		return todo, corrupt(t.name, at.pgno, "page type %d is not one of its tree", p.Type)
	}
	if p.Type.Rows() {
		if err := d.takeRows(t, at.pgno, &p); err != nil {
			return todo, blame(t.name, at.pgno, err)
		}
	}
	for i := range p.Children() {
		child, err := p.Child(i)
		if err != nil {
			return todo, blame(t.name, at.pgno, err)
		}
		if !d.new.has(child) {
			return todo, corrupt(t.name, at.pgno, "its child is page %d, which the database does not have", child)
		}
		if !d.staysInTree(t, child) {
			todo = append(todo, place{child, at.pgno, at.depth + 1})
			continue
		}
		if !t.attached.add(child) {
			return todo, corrupt(t.name, child, "it has two parents")
		}
		if err := d.claim(t.name, child, newOwner(roleTree, t.slot, at.pgno)); err != nil {
			return todo, err
		}
		for _, pgno := range t.parked[child] {
			todo = append(todo, place{pgno, d.owners.of(pgno).parent(), at.depth + 1})
		}
	}
	return todo, nil
}

// staysInTree reports whether a child in the new tree is unchanged and was in
// the old tree of the same table, so that everything below it is too.
func (d *differ) staysInTree(t *tableDiff, pgno uint32) bool {
	o := d.owners.of(pgno)
	return !d.hasChanged(pgno) && o.role() == roleTree && o.slot() == t.slot && t.old.index == t.new.index
}

// takeRows takes the rows of a page of the new tree to the new side. If it was
// in the old tree as well, its rows of then go to the old side at once, and
// the rows that both have in common at either end go nowhere: with them, their
// overflow chains stay as they are.
func (d *differ) takeRows(t *tableDiff, pgno uint32, p *btree.Page) (err error) {
	new := span{pgno: pgno, hi: uint16(p.Len())}
	if o := d.owners.of(pgno); t.alike && t.old.index == t.new.index && pgno <= d.old.commit && o.role() == roleTree && o.slot() == t.slot && d.hasChanged(pgno) {
		if x := d.excerpts.find(pgno); x != nil {
			return d.takeExcerpt(t, p, x)
		}
		var was btree.Page
		if err := d.old.parse(pgno, &was, &d.bufs[1]); err != nil {
			return err
		}
		intact := func(overflow uint32) bool { return !t.isDirty(overflow) }
		if len(t.dirty.list) == 0 {
			intact = nil
		}
		head, tail, err := btree.Common(&was, p, intact)
		if err != nil {
			return err
		}
		old := span{pgno: pgno, lo: uint16(head), hi: uint16(was.Len() - tail)}
		new.lo, new.hi = uint16(head), uint16(p.Len()-tail)
		t.paired.add(pgno)
		if !was.Type.Interior() {
			t.settled.add(pgno)
		}
		if was.Type.Rows() {
			if t.oldSide, t.oldHeads, err = scanCells(&was, old, t.oldSide, t.oldHeads); err != nil {
				return err
			}
		}
	}
	t.newSide, t.newHeads, err = scanCells(p, new, t.newSide, t.newHeads)
	if d.scratch != nil {
		t.newSide = t.newSide[:0]
	}
	return err
}

// takeExcerpt is takeRows for a page both images of which were looked at
// already.
func (d *differ) takeExcerpt(t *tableDiff, p *btree.Page, x *excerpt) (err error) {
	t.paired.add(x.old.pgno)
	t.settled.add(x.old.pgno)
	if x.old.lo < x.old.hi {
		t.oldSide = append(t.oldSide, x.old)
		t.oldHeads = append(t.oldHeads, d.excerpts.heads[x.heads[0]:x.heads[1]]...)
	}
	new := span{pgno: x.old.pgno, lo: x.lo, hi: x.hi}
	t.newSide, t.newHeads, err = scanCells(p, new, t.newSide, t.newHeads)
	return err
}

// errOverlap is found in the cells that are scanned; those two images of a
// page have in common do not count.
var errOverlap = fmt.Errorf("its cells overlap: %w", ErrCorrupt)

// scanCells takes the rows of a span to a side and notes their overflow
// chains. It also checks what joining by key relies on, rowids that ascend, up
// to and including the neighbours of the span, and that no byte counts twice,
// or a page could hold more rows than a database.
func scanCells(p *btree.Page, s span, side []span, heads []head) ([]span, []head, error) {
	if s.lo >= s.hi {
		return side, heads, nil
	}
	var c btree.Cell
	last, any, room := int64(0), false, p.Room()
	for i := max(0, int(s.lo)-1); i < min(p.Len(), int(s.hi)+1); i++ {
		if err := p.Cell(i, &c); err != nil {
			return side, heads, err
		}
		if room -= len(c.Raw); room < 0 {
			return side, heads, &CorruptError{Page: s.pgno, Err: errOverlap}
		}
		if p.Type == btree.LeafTable && any && c.Rowid <= last {
			return side, heads, corrupt("", s.pgno, "rowid %d comes after %d", c.Rowid, last)
		}
		last, any = c.Rowid, true
		if i < int(s.lo) || i >= int(s.hi) {
			continue
		}
		if i == int(s.lo) {
			s.first = c.Rowid
		}
		if c.Overflow != 0 {
			heads = append(heads, head{pgno: c.Overflow, payload: c.Payload, local: len(c.Local), row: s.pgno})
		}
	}
	return append(side, s), heads, nil
}
