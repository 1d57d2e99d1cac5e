package diffpage

import "celldexport/diffpage/btree"

// walkOld finds the pages that were in the old tree and are not in the new
// one, and takes those with rows to the old side: the pages that changed or
// are gone, and below them whole subtrees that the unit never wrote but that have no
// parent any more. SQLite frees pages without touching them, so this is the
// only place where rows of unchanged pages come up.
func (d *differ) walkOld(t *tableDiff) error {
	root := uint32(0) // that is to be walked after the touched pages
	if !t.stays && !d.hasChanged(t.old.root) && !t.attached.has(t.old.root) {
		root = t.old.root
	}
	todo := d.path[:0]
	var p btree.Page
	for next, more := t.touched.from(0); ; {
		switch {
		case len(todo) > 0:
		case more:
			todo = append(todo, next)
			next, more = t.touched.from(next + 1)
		case root != 0:
			todo, root = append(todo, root), 0
		default:
			d.path = todo
			return nil
		}
		pgno := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !d.released.add(pgno) {
			return corrupt(t.name, pgno, "it was in two places")
		}
		if t.settled.has(pgno) {
			continue
		}
		if err := d.old.parse(pgno, &p, &d.bufs[1]); err != nil {
			return blame(t.name, pgno, err)
		}
		if p.Type.Rows() && !t.paired.has(pgno) {
			all := span{pgno: pgno, hi: uint16(p.Len())}
			if err := d.chains.take(&p, all, &d.chains.old, &t.oldSide); err != nil {
				return blame(t.name, pgno, err)
			}
		}
		for i := range p.Children() {
			child, err := p.Child(i)
			if err != nil {
				return blame(t.name, pgno, err)
			}
			if !d.hasChanged(child) && !t.attached.has(child) {
				todo = append(todo, child)
			}
		}
	}
}

// keepChains settles the overflow chains of both sides. A chain none of whose
// pages changed, of a row of the same length, is the same chain in the same
// pages: only the page of the row may be another one. All other chains of the
// old side are given up and those of the new side claimed page by page.
func (d *differ) keepChains(t *tableDiff) error {
	if !d.chains.old.any() && !d.chains.new.any() {
		return nil
	}
	olds, err := d.chains.old.read()
	if err != nil {
		return err
	}
	news, err := d.chains.new.read()
	if err != nil {
		return err
	}
	o, isOld, err := olds.next()
	if err != nil {
		return err
	}
	for {
		p, isNew, err := news.next()
		if err != nil {
			return err
		}
		n := headOf(p)
		for isOld && (!isNew || headOf(o).pgno < n.pgno) {
			if err := d.releaseChain(t, headOf(o)); err != nil {
				return err
			}
			if o, isOld, err = olds.next(); err != nil {
				return err
			}
		}
		if !isNew {
			return nil
		}
		if h := headOf(o); isOld && h.pgno == n.pgno && h.payload == n.payload && !t.isDirty(n.pgno) && t.old.index == t.new.index {
			if err := d.claim(t.name, n.pgno, newOwner(roleHead, t.slot, n.row)); err != nil {
				return err
			}
			if o, isOld, err = olds.next(); err != nil {
				return err
			}
			continue
		}
		if err := d.claimChain(t, n); err != nil {
			return err
		}
	}
}

// overflowOnly finds rows that changed in their overflow pages alone: the page
// of the row did not change and is in the new tree still. Such a row is taken
// to both sides without the rest of its page.
func (d *differ) overflowOnly(t *tableDiff) error {
	var p btree.Page
	for first, ok := t.dirty.set.from(0); ok; first, ok = t.dirty.set.from(first + 1) {
		pgno := d.owners.of(first).parent()
		if d.hasChanged(pgno) || d.released.has(pgno) {
			continue
		}
		if err := d.old.parse(pgno, &p, &d.bufs[1]); err != nil {
			return blame(t.name, pgno, err)
		}
		i, h, rowid, err := findHead(&p, pgno, first)
		if err != nil {
			return blame(t.name, pgno, err)
		}
		one := span{pgno: pgno, lo: uint16(i), hi: uint16(i + 1), first: rowid}
		for _, side := range [...]*pairs{&t.oldSide, &t.newSide} {
			if err := side.addPair(one.pair()); err != nil {
				return err
			}
		}
		if err := d.claimChain(t, h); err != nil {
			return err
		}
		if err := d.releaseChain(t, h); err != nil {
			return err
		}
	}
	return nil
}

// findHead is the cell of a page whose overflow chain starts at first.
func findHead(p *btree.Page, pgno, first uint32) (int, head, int64, error) {
	var c btree.Cell
	for i := range p.Len() {
		if err := p.Cell(i, &c); err != nil {
			return 0, head{}, 0, err
		}
		if c.Overflow == first {
			return i, headOn(pgno, &c), c.Rowid, nil
		}
	}
	return 0, head{}, 0, corrupt("", pgno, "it has no row that overflows to page %d", first)
}

func (d *differ) claimChain(t *tableDiff, h head) error {
	pages := btree.ChainLen(int(h.payload)-int(h.local), d.new.usable)
	err := d.new.chain(h.pgno, pages, &d.bufs[0], func(pgno uint32) error {
		if pgno == h.pgno {
			return d.claim(t.name, pgno, newOwner(roleHead, t.slot, h.row))
		}
		return d.claim(t.name, pgno, newOwner(roleRest, t.slot, h.pgno))
	})
	return blame(t.name, h.row, err)
}

func (d *differ) releaseChain(t *tableDiff, h head) error {
	pages := btree.ChainLen(int(h.payload)-int(h.local), d.old.usable)
	err := d.old.chain(h.pgno, pages, &d.bufs[1], func(pgno uint32) error {
		d.released.add(pgno)
		return nil
	})
	return blame(t.name, h.row, err)
}
