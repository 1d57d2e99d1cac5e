package diffpage

import (
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
	var todo []place
	if t.stays {
		for _, pgno := range t.touched {
			if pgno > d.new.commit {
				continue
			}
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
			d.park(t, pgno, path[:n])
			// An old root that is unchanged may live on further down.
			if !d.hasChanged(up) {
				d.park(t, pgno, []uint32{up})
			}
			return false
		}
		path[n] = up
		n++
	}
	return t.stays
}

func (d *differ) park(t *tableDiff, pgno uint32, under []uint32) {
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
	if err := d.claim(t, at.pgno, newOwner(roleTree, t.slot, at.parent)); err != nil {
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
		var err error
		if t.newSide, t.newHeads, err = scanPage(&p, at.pgno, t.newSide, t.newHeads); err != nil {
			return todo, blame(t.name, at.pgno, err)
		}
	}
	for i := range p.Children() {
		child, err := p.Child(i)
		if err != nil {
			return todo, blame(t.name, at.pgno, err)
		}
		if !d.staysInTree(t, child) {
			todo = append(todo, place{child, at.pgno, at.depth + 1})
			continue
		}
		if !t.attached.add(child) {
			return todo, corrupt(t.name, child, "it has two parents")
		}
		if err := d.claim(t, child, newOwner(roleTree, t.slot, at.pgno)); err != nil {
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

// claim gives a page of the new state its owner, once.
func (d *differ) claim(t *tableDiff, pgno uint32, o owner) error {
	if !d.claimed.add(pgno) {
		return corrupt(t.name, pgno, "it is referred to twice")
	}
	d.claims = append(d.claims, claim{pgno, o})
	return nil
}

// scanPage takes the rows of a page to a side and notes the overflow chains.
// It also checks what joining by key relies on: rowids that ascend.
func scanPage(p *btree.Page, pgno uint32, side []span, heads []head) ([]span, []head, error) {
	n := p.Len()
	if n == 0 {
		return side, heads, nil
	}
	var c btree.Cell
	var first, last int64
	for i := range n {
		if err := p.Cell(i, &c); err != nil {
			return side, heads, err
		}
		if c.Overflow != 0 {
			heads = append(heads, head{pgno: c.Overflow, payload: c.Payload, local: len(c.Local), row: pgno})
		}
		switch {
		case i == 0:
			first = c.Rowid
		case p.Type == btree.LeafTable && c.Rowid <= last:
			return side, heads, corrupt("", pgno, "rowid %d comes after %d", c.Rowid, last)
		}
		last = c.Rowid
	}
	return append(side, span{pgno: pgno, hi: uint16(n), first: first}), heads, nil
}
