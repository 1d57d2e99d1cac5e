package diffpage

import (
	"slices"

	"celldexport/diffpage/btree"
)

// walkOld finds the pages that were in the old tree and are not in the new
// one, and takes those with rows to the old side: the pages that changed or
// are gone, and below them whole subtrees that the unit never wrote but that have no
// parent any more. SQLite frees pages without touching them, so this is the
// only place where rows of unchanged pages come up.
func (d *differ) walkOld(t *tableDiff) error {
	todo := append(d.path[:0], t.touched...)
	if !t.stays && t.old.root != 0 && !d.hasChanged(t.old.root) && !t.attached.has(t.old.root) {
		todo = append(todo, t.old.root)
	}
	var p btree.Page
	for len(todo) > 0 {
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
			var err error
			all := span{pgno: pgno, hi: uint16(p.Len())}
			if t.oldSide, t.oldHeads, err = scanCells(&p, all, t.oldSide, t.oldHeads); err != nil {
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
	d.path = todo
	return nil
}

// keepChains settles the overflow chains of both sides. A chain none of whose
// pages changed, of a row of the same length, is the same chain in the same
// pages: only the page of the row may be another one. All other chains of the
// old side are given up and those of the new side claimed page by page.
func (d *differ) keepChains(t *tableDiff) error {
	slices.SortFunc(t.oldHeads, func(a, b head) int { return int(int64(a.pgno) - int64(b.pgno)) })
	for _, h := range t.newHeads {
		i, ok := slices.BinarySearchFunc(t.oldHeads, h.pgno, func(e head, pgno uint32) int {
			return int(int64(e.pgno) - int64(pgno))
		})
		if ok && !t.oldHeads[i].kept && t.oldHeads[i].payload == h.payload && !t.isDirty(h.pgno) && t.old.index == t.new.index {
			t.oldHeads[i].kept = true
			if err := d.claim(t.name, h.pgno, newOwner(roleHead, t.slot, h.row)); err != nil {
				return err
			}
			continue
		}
		if err := d.claimChain(t, h); err != nil {
			return err
		}
	}
	t.newHeads = nil
	for _, h := range t.oldHeads {
		if h.kept {
			continue
		}
		if err := d.releaseChain(t, h); err != nil {
			return err
		}
	}
	t.oldHeads = nil
	return nil
}

// overflowOnly finds rows that changed in their overflow pages alone: the page
// of the row did not change and is in the new tree still. Such a row is taken
// to both sides without the rest of its page.
func (d *differ) overflowOnly(t *tableDiff) error {
	var p btree.Page
	for _, first := range t.dirty.list {
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
		t.oldSide, t.newSide = append(t.oldSide, one), append(t.newSide, one)
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
			return i, head{pgno: first, payload: c.Payload, local: len(c.Local), row: pgno}, c.Rowid, nil
		}
	}
	return 0, head{}, 0, corrupt("", pgno, "it has no row that overflows to page %d", first)
}

func (d *differ) claimChain(t *tableDiff, h head) error {
	pages := btree.ChainLen(h.payload-h.local, d.new.usable)
	err := d.new.chain(h.pgno, pages, &d.bufs[0], func(pgno uint32) error {
		if pgno == h.pgno {
			return d.claim(t.name, pgno, newOwner(roleHead, t.slot, h.row))
		}
		return d.claim(t.name, pgno, newOwner(roleRest, t.slot, h.pgno))
	})
	return blame(t.name, h.row, err)
}

func (d *differ) releaseChain(t *tableDiff, h head) error {
	pages := btree.ChainLen(h.payload-h.local, d.old.usable)
	err := d.old.chain(h.pgno, pages, &d.bufs[1], func(pgno uint32) error {
		d.released.add(pgno)
		return nil
	})
	return blame(t.name, h.row, err)
}
