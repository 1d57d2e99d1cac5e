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
	d.starts, d.parked = d.starts.empty(), d.parked.empty()
	parked := false
	for pgno, ok := t.touched.from(0); ok; pgno, ok = t.touched.from(pgno + 1) {
		switch w := t.climb(d, pgno); {
		case w.sure:
			d.starts.add(pgno)
		case w.parked:
			d.parked.add(pgno)
			parked = true
		}
	}
	if !t.stays && t.new.root != 0 {
		if err := d.visitFrom(t, t.new.root, 0); err != nil {
			return err
		}
	}
	for pgno, ok := d.starts.from(0); ok; pgno, ok = d.starts.from(pgno + 1) {
		if err := d.visitFrom(t, pgno, d.owners.of(pgno).parent()); err != nil {
			return err
		}
	}
	if !parked {
		return nil
	}
	return d.visitParked(t)
}

// visitFrom visits a page and whatever has to be visited below it.
func (d *differ) visitFrom(t *tableDiff, pgno, parent uint32) error {
	todo := append(d.places[:0], place{pgno: pgno, parent: parent})
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

// visitParked visits the parked pages that an attached page has brought along,
// which may attach others in turn. Looking at all of them again each time
// takes no memory, and what is below them is no deeper than a tree.
func (d *differ) visitParked(t *tableDiff) error {
	d.brought = d.brought.empty()
	for again := true; again; {
		again = false
		for pgno, ok := d.parked.from(0); ok; pgno, ok = d.parked.from(pgno + 1) {
			if d.brought.has(pgno) || t.climb(d, pgno).attached == 0 {
				continue
			}
			d.brought.add(pgno)
			again = true
			if err := d.visitFrom(t, pgno, d.owners.of(pgno).parent()); err != nil {
				return err
			}
		}
	}
	for pgno, ok := d.parked.from(0); ok; pgno, ok = d.parked.from(pgno + 1) {
		if t.climb(d, pgno).attached > 1 {
			return corrupt(t.name, pgno, "it is referred to twice")
		}
	}
	return nil
}

// way is what the old parents of a changed page say about it.
type way struct {
	// sure says that the page is in the new tree: the way up to the root is
	// unchanged and the root stayed.
	sure bool
	// parked says that there are unchanged pages above it, below one that
	// changed or is root no longer. Whichever of them gets a place in the new
	// tree brings the page along: attached is how many have.
	parked   bool
	attached int
}

// climb follows the old parents of a changed page. A page right below a break
// of the way is not parked: it is visited from its parent, or not at all.
func (t *tableDiff) climb(d *differ, pgno uint32) way {
	w := way{}
	n := 0
	for up := d.owners.of(pgno).parent(); up != 0 && n < btree.MaxDepth; up = d.owners.of(up).parent() {
		if d.hasChanged(up) {
			return w
		}
		// An old root that is unchanged may live on further down.
		w.parked = true
		if t.attached.has(up) {
			w.attached++
		}
		if up == t.old.root && !t.stays {
			return w
		}
		n++
	}
	return way{sure: t.stays}
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
		if !t.keeps(d, child) {
			todo = append(todo, place{child, at.pgno, at.depth + 1})
			continue
		}
		if !t.attached.add(child) {
			return todo, corrupt(t.name, child, "it has two parents")
		}
		if err := d.claim(t.name, child, newOwner(roleTree, t.slot, at.pgno)); err != nil {
			return todo, err
		}
	}
	return todo, nil
}

// keeps reports whether a child in the new tree is unchanged and was in
// the old tree of the same table, so that everything below it is too.
func (t *tableDiff) keeps(d *differ, pgno uint32) bool {
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
		if !t.dirty.any {
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
			if err = d.chains.take(&was, old, &d.chains.old, &t.oldSide); err != nil {
				return err
			}
		}
	}
	side := &t.newSide
	if d.scratch != nil {
		side = nil
	}
	return d.chains.take(p, new, &d.chains.new, side)
}

// takeExcerpt is takeRows for a page both images of which were looked at
// already.
func (d *differ) takeExcerpt(t *tableDiff, p *btree.Page, x *excerpt) error {
	t.paired.add(x.old.pgno)
	t.settled.add(x.old.pgno)
	if x.old.lo < x.old.hi {
		if err := t.oldSide.addPair(x.old.pair()); err != nil {
			return err
		}
		for _, h := range d.excerpts.heads[x.heads[0]:x.heads[1]] {
			if err := d.chains.old.addPair(h.pair()); err != nil {
				return err
			}
		}
	}
	return d.chains.take(p, span{pgno: x.old.pgno, lo: x.lo, hi: x.hi}, &d.chains.new, &t.newSide)
}

// errOverlap is found in the cells that are scanned; those two images of a
// page have in common do not count.
var errOverlap = fmt.Errorf("its cells overlap: %w", ErrCorrupt)

// scanCells adds the overflow chains of the rows of a span, which is not empty,
// and returns its first rowid. It also checks what joining by key relies on,
// rowids that ascend, up to and including the neighbours of the span, and that
// no byte counts twice, or a page could hold more rows than a database.
func scanCells(p *btree.Page, s span, heads []head) (first int64, out []head, err error) {
	var c btree.Cell
	last, any, room := int64(0), false, p.Room()
	for i := max(0, int(s.lo)-1); i < min(p.Len(), int(s.hi)+1); i++ {
		if err := p.Cell(i, &c); err != nil {
			return 0, heads, err
		}
		if room -= len(c.Raw); room < 0 {
			return 0, heads, &CorruptError{Page: s.pgno, Err: errOverlap}
		}
		if p.Type == btree.LeafTable && any && c.Rowid <= last {
			return 0, heads, corrupt("", s.pgno, "rowid %d comes after %d", c.Rowid, last)
		}
		last, any = c.Rowid, true
		if i < int(s.lo) || i >= int(s.hi) {
			continue
		}
		if i == int(s.lo) {
			first = c.Rowid
		}
		if c.Overflow != 0 {
			heads = append(heads, headOn(s.pgno, &c))
		}
	}
	return first, heads, nil
}
