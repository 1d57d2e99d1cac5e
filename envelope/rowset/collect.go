package rowset

import (
	"errors"
	"fmt"

	"celldexport/diffpage"
	"celldexport/diffpage/schema"
	"celldexport/envelope"
)

// collected is what a unit has to say of one table: rows, or the reason why
// there are none.
type collected struct {
	*tablePlan
	kind envelope.Kind
	// rows is nil for a table without row records. It holds no row when
	// nothing changed.
	rows *envelope.Splitter
	n    tally
	// bulk is why the generation is unknown from here on, "" when it is not.
	bulk string
}

// tally counts the rows of one table.
type tally struct{ inserts, updates, deletes, nullKeys int64 }

func (t *tally) count(op byte) {
	switch op {
	case 'I':
		t.inserts++
	case 'U':
		t.updates++
	default:
		t.deletes++
	}
}

// collector turns the rows of one table into the rows of its record.
type collector struct {
	encoder
	// before is the encoding of the base.
	before schema.Encoding
	sort   *sorter
	out    *collected
	line   []byte
	last   int64
	any    bool
}

// changes collects the row changes of a table.
func (c *collector) changes(src Source) error {
	if !src.Touched(c.out.stored) {
		return nil
	}
	return c.walk(func() error { return src.Rows(c.out.stored, c.visit) })
}

// all collects every row of a table.
func (c *collector) all(img Image) error {
	return c.walk(func() error { return img.Scan(c.out.stored, c.visit) })
}

// walk runs a walk over rows to its end. A table that cannot be exported as
// rows ends it early and is bulk; every other error ends the unit.
func (c *collector) walk(rows func() error) error {
	err := rows()
	if err == nil && !c.byRowid {
		err = c.sorted()
	}
	var bulk *bulkError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &bulk):
		c.out.bulk = bulk.reason
		return nil
	case errors.Is(err, errDuplicate):
		c.out.bulk = errDuplicate.Error()
		return nil
	}
	return fmt.Errorf("encode rows of table %q: %w", c.out.stored, err)
}

// visit takes one change.
func (c *collector) visit(op diffpage.Op, before, after diffpage.Row) error {
	if c.reason != "" {
		return &bulkError{c.reason}
	}
	if c.byRowid {
		return c.direct(op, before, after)
	}
	return c.keyed(before, after)
}

// direct writes a change of a table whose key is its rowid: changes come one
// per key and in key order.
func (c *collector) direct(op diffpage.Op, before, after diffpage.Row) error {
	row, letter := after, byte('I')
	switch op {
	case diffpage.Update:
		letter = 'U'
	case diffpage.Delete:
		row, letter = before, 'D'
	}
	id := row.Rowid()
	if c.any && id <= c.last {
		return fmt.Errorf("row %d was visited after row %d", id, c.last)
	}
	c.any, c.last = true, id
	if err := c.encodeSide(row, op == diffpage.Delete); err != nil {
		return err
	}
	return c.write(letter, c.tail)
}

// encodeSide encodes a row of the base or of the state after the unit; rows
// keyed by rowid are never left out.
func (c *collector) encodeSide(row diffpage.Row, before bool) error {
	_, err := c.side(row, before)
	return err
}

func (c *collector) side(row diffpage.Row, before bool) (verdict, error) {
	after := c.encoding
	if before {
		c.encoding = c.before
	}
	v, err := c.encode(row)
	c.encoding = after
	if v == nullKey && err == nil {
		c.out.n.nullKeys++
	}
	return v, err
}

// keyed hands both sides of a change to the sorter: the base joined them by
// rowid or under a collation, the record joins them by exact key.
func (c *collector) keyed(before, after diffpage.Row) error {
	if before != nil {
		if err := c.push(before, 'D', true); err != nil {
			return err
		}
	}
	if after != nil {
		return c.push(after, 'I', false)
	}
	return nil
}

func (c *collector) push(row diffpage.Row, op byte, before bool) error {
	v, err := c.side(row, before)
	if err != nil || v != take {
		return err
	}
	return c.sort.add(c.key, op, c.tail)
}

// sorted writes what the sorter holds, netted by exact key.
func (c *collector) sorted() error {
	net := netting{emit: c.write}
	if err := c.sort.each(net.take); err != nil {
		return err
	}
	return net.flush()
}

// write adds a row to the record.
func (c *collector) write(op byte, tail []byte) error {
	c.out.n.count(op)
	c.line = append(c.line[:0], '[', '"', op, '"', ',')
	c.line = append(c.line, tail...)
	return c.out.rows.Add(c.line)
}
