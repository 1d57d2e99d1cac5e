package diffpage

import (
	"celldexport/diffpage/btree"
	"celldexport/diffpage/schema"
)

// cursor reads the rows of one side, page by page.
type cursor struct {
	view *view
	name string
	left pairReader
	at   span // what is left of the page it is on
	page btree.Page
	pgno uint32
	buf  []byte
	cell btree.Cell
	last int64
	any  bool
	row  row
	// Cells of settled pages are in the excerpts, where these have them.
	excerpts *excerpts
	settled  *pageSet
}

// begin starts over, at a side of a table.
func (c *cursor) begin(v *view, t *schema.Table, side *pairs) error {
	left, err := side.read()
	if err != nil {
		return err
	}
	r := &c.row
	*c = cursor{view: v, name: t.Name, left: left, buf: c.buf, row: row{
		view: v, table: t, fields: r.fields[:0], payload: r.payload, pageBuf: r.pageBuf,
	}}
	return nil
}

// end keeps the buffers only.
func (c *cursor) end() {
	r := &c.row
	*c = cursor{buf: c.buf, row: row{fields: r.fields[:0], payload: r.payload, pageBuf: r.pageBuf}}
}

// take makes the current cell the row that is shown.
func (c *cursor) take() { c.row.at(c.pgno, &c.cell) }

// next moves to the next row of a side sorted by rowid; false at its end.
func (c *cursor) next() (bool, error) {
	for c.at.lo == c.at.hi {
		p, ok, err := c.left.next()
		if err != nil || !ok {
			return false, err
		}
		c.at = spanOf(p)
		if err := c.load(c.at.pgno); err != nil {
			return false, err
		}
	}
	if err := c.page.Cell(int(c.at.lo), &c.cell); err != nil {
		return false, blame(c.name, c.pgno, err)
	}
	c.at.lo++
	if c.any && c.cell.Rowid <= c.last {
		return false, corrupt(c.name, c.pgno, "rowid %d is there, and %d on a page before it", c.cell.Rowid, c.last)
	}
	c.any, c.last = true, c.cell.Rowid
	return true, nil
}

func (c *cursor) load(pgno uint32) error {
	if c.pgno == pgno {
		return nil
	}
	c.pgno = 0
	if c.excerpts != nil && c.settled.has(pgno) {
		if x := c.excerpts.find(pgno); x != nil && x.kept {
			c.excerpts.load(x, &c.page, c.view.usable)
			c.pgno = pgno
			return nil
		}
	}
	if err := c.view.parse(pgno, &c.page, &c.buf); err != nil {
		return blame(c.name, pgno, err)
	}
	c.pgno = pgno
	return nil
}

// byRowid merges the two sides of a rowid table. Only cells are compared;
// records are looked at where two cells of one rowid are not equal.
func (j *join) byRowid() error {
	old, err := j.old.next()
	if err != nil {
		return err
	}
	fresh, err := j.new.next()
	for err == nil && (old || fresh) {
		switch {
		case !fresh || old && j.old.cell.Rowid < j.new.cell.Rowid:
			if err = j.deleted(); err == nil {
				old, err = j.old.next()
			}
		case !old || j.new.cell.Rowid < j.old.cell.Rowid:
			if err = j.inserted(); err == nil {
				fresh, err = j.new.next()
			}
		default:
			if err = j.pair(); err != nil {
				break
			}
			if old, err = j.old.next(); err == nil {
				fresh, err = j.new.next()
			}
		}
	}
	return err
}
