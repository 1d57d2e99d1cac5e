package diffpage

import (
	"errors"

	"celldexport/diffpage/btree"
	"celldexport/diffpage/schema"
)

// join shows the differences of the rows on the two sides of a table.
type join struct {
	d        *differ
	t        *tableDiff
	old, new cursor
	cmp      comparer
	visit    Visitor
}

// beginJoin is a join that end ends. Its memory is used again.
func beginJoin(d *differ, t *tableDiff, was, is *schema.Table, visit Visitor) (*join, error) {
	j := d.join
	if d.join = nil; j == nil {
		j = new(join)
	}
	j.d, j.t, j.visit = d, t, visit
	if err := errors.Join(j.old.begin(&d.old, was, &t.oldSide), j.new.begin(&d.new, is, &t.newSide)); err != nil {
		return nil, err
	}
	j.old.excerpts, j.old.settled = &d.excerpts, &t.settled
	j.cmp.begin(&j.old.row, &j.new.row)
	return j, nil
}

func (j *join) end() {
	j.t, j.visit = nil, nil
	j.old.end()
	j.new.end()
	j.d.join = j
}

// unchanged tells without decoding that two cells of one key are the same
// row: equal bytes, and overflow pages that did not change.
func (j *join) unchanged(a, b *btree.Cell) bool {
	return j.cmp.alike && a.Same(b) && (a.Overflow == 0 || !j.t.isDirty(a.Overflow))
}

// pair shows two rows of one key if they differ.
func (j *join) pair() error {
	if j.unchanged(&j.old.cell, &j.new.cell) {
		return nil
	}
	j.old.take()
	j.new.take()
	differ, err := j.cmp.differ()
	if err != nil || !differ {
		return err
	}
	return j.visit(Update, &j.old.row, &j.new.row)
}

func (j *join) deleted() error {
	j.old.take()
	return j.visit(Delete, &j.old.row, nil)
}

func (j *join) inserted() error {
	j.new.take()
	return j.visit(Insert, nil, &j.new.row)
}
