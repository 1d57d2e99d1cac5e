package rowset

import (
	"bytes"
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

// rows is how many rows the record has.
func (t *tally) rows() int64 { return t.inserts + t.updates + t.deletes }

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
	*encoder
	// before and after are the text encodings of the base and of the state
	// after the unit.
	before, after schema.Encoding
	sort          *sorter
	out           *collected
	// prev is the sort key of the other side of an update.
	prev []byte
	// last is the rowid visited last, once any was.
	last int64
	any  bool
}

// changes collects the row changes of a table.
func (c *collector) changes(src Source) error {
	return c.walk(func() error { return src.Rows(c.out.stored, c.visit) })
}

// all collects every row of a table.
func (c *collector) all(img Image) error {
	return c.walk(func() error { return img.Scan(c.out.stored, c.visit) })
}

// walk runs a walk over rows to its end. A table that cannot be exported as
// rows ends it early and is bulk; every other error ends the unit.
func (c *collector) walk(rows func() error) error {
	if err := c.sort.reset(); err != nil {
		return err
	}
	if c.reason != "" && c.out.show {
		c.out.bulk = c.reason
		return nil
	}
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
	row, letter, enc := after, byte('I'), c.after
	switch op {
	case diffpage.Update:
		letter = 'U'
	case diffpage.Delete:
		row, letter, enc = before, 'D', c.before
	}
	id := row.Rowid()
	if c.any && id <= c.last {
		return fmt.Errorf("row %d was visited after row %d", id, c.last)
	}
	c.any, c.last = true, id
	c.encoding = enc
	if _, err := c.encode(row); err != nil {
		return err
	}
	return c.write(letter)
}

// keyed hands the sides of a change to the sorter: the diff joined them by
// rowid or under a collation, the record joins them by exact key. An update
// that leaves the key alone needs only its row after the change.
func (c *collector) keyed(before, after diffpage.Row) error {
	old, err := c.oldKey(before)
	if err != nil {
		return err
	}
	if after != nil {
		c.encoding = c.after
		v, err := c.encode(after)
		if err != nil {
			return err
		}
		if v == take && old == take && bytes.Equal(c.prev, c.key) {
			return c.sort.add(c.key, 'U', c.tail())
		}
		if err := c.push(v, 'I'); err != nil {
			return err
		}
	}
	if old == take {
		c.encoding = c.before
		if old, err = c.encode(before); err != nil {
			return err
		}
	}
	return c.push(old, 'D')
}

// oldKey puts the sort key of a row of the base in prev. No row is like one
// that is not exported.
func (c *collector) oldKey(before diffpage.Row) (verdict, error) {
	if before == nil {
		return foreign, nil
	}
	c.encoding = c.before
	v, err := c.encodeKey(before)
	c.prev, c.key = c.key, c.prev
	return v, err
}

// push gives the sorter the row that was encoded last.
func (c *collector) push(v verdict, op byte) error {
	switch v {
	case take:
		return c.sort.add(c.key, op, c.tail())
	case nullKey:
		c.out.n.nullKeys++
	}
	return nil
}

// sorted writes what the sorter holds, netted by exact key.
func (c *collector) sorted() error {
	net := netting{emit: func(op byte, tail []byte) error {
		c.line = append(append(c.line[:0], opening...), tail...)
		return c.write(op)
	}}
	if err := c.sort.each(net.take); err != nil {
		return err
	}
	return net.flush()
}

// write adds the encoded row to the record.
func (c *collector) write(op byte) error {
	c.out.n.count(op)
	c.line[opAt] = op
	return c.out.rows.Add(c.line)
}
