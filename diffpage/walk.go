package diffpage

import (
	"celldexport/diffpage/btree"
	"celldexport/diffpage/schema"
)

// walker shows every row of one tree in the order of its keys.
type walker struct {
	view   *view
	name   string
	index  bool
	frames []frame
	depth  int
}

// frame is a page on the way down. Its position counts children and, where
// cells are rows, the cells between them.
type frame struct {
	pgno uint32
	page btree.Page
	buf  []byte
	pos  int
}

func newWalker(v *view, name string, t tree) (*walker, error) {
	w := &walker{view: v, name: name, index: t.index}
	if t.root == 0 {
		return w, nil
	}
	return w, w.down(t.root)
}

func (w *walker) down(pgno uint32) error {
	if w.depth == btree.MaxDepth {
		return corrupt(w.name, pgno, "the tree is deeper than %d pages", btree.MaxDepth)
	}
	if w.depth == len(w.frames) {
		w.frames = append(w.frames, frame{})
	}
	f := &w.frames[w.depth]
	f.pgno, f.pos = pgno, 0
	if err := w.view.parse(pgno, &f.page, &f.buf); err != nil {
		return blame(w.name, pgno, err)
	}
	if f.page.Type.Index() != w.index {
		return corrupt(w.name, pgno, "page type %d is not one of its tree", f.page.Type)
	}
	w.depth++
	return nil
}

// next moves to the next row and reads its cell; false at the end.
func (w *walker) next(c *btree.Cell) (pgno uint32, ok bool, err error) {
	for w.depth > 0 {
		f := &w.frames[w.depth-1]
		pos := f.pos
		f.pos++
		child, cell := f.step(pos)
		switch {
		case child >= 0:
			pgno, err := f.page.Child(child)
			if err != nil {
				return 0, false, blame(w.name, f.pgno, err)
			}
			if err := w.down(pgno); err != nil {
				return 0, false, err
			}
		case cell >= 0:
			if err := f.page.Cell(cell, c); err != nil {
				return 0, false, blame(w.name, f.pgno, err)
			}
			return f.pgno, true, nil
		default:
			w.depth--
		}
	}
	return 0, false, nil
}

// step says what is at a position of the page: a child, a row, or -1 twice
// behind the end.
func (f *frame) step(pos int) (child, cell int) {
	n := f.page.Len()
	switch f.page.Type {
	case btree.InteriorTable:
		if pos <= n {
			return pos, -1
		}
	case btree.InteriorIndex:
		if pos <= 2*n && pos%2 == 0 {
			return pos / 2, -1
		}
		if pos < 2*n {
			return -1, pos / 2
		}
	default:
		if pos < n {
			return -1, pos
		}
	}
	return -1, -1
}

// scan shows every row of a table as Insert.
func scan(v *view, t *schema.Table, tr tree, op Op, visit Visitor) error {
	if tr.root == 0 {
		return nil
	}
	if err := readable(t); err != nil {
		return err
	}
	w, err := newWalker(v, t.Name, tr)
	if err != nil {
		return err
	}
	r := &row{view: v, table: t}
	var c btree.Cell
	last, any := int64(0), false
	for {
		pgno, ok, err := w.next(&c)
		if err != nil || !ok {
			return err
		}
		if !t.WithoutRowid {
			if any && c.Rowid <= last {
				return corrupt(t.Name, pgno, "rowid %d is there, and %d on a page before it", c.Rowid, last)
			}
			last, any = c.Rowid, true
		}
		r.at(pgno, &c)
		if op == Delete {
			err = visit(op, r, nil)
		} else {
			err = visit(op, nil, r)
		}
		if err != nil {
			return err
		}
	}
}
