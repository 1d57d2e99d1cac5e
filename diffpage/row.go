package diffpage

import (
	"bytes"
	"fmt"
	"math"

	"celldexport/diffpage/btree"
	"celldexport/diffpage/schema"
)

// row is a row on one side of a change, decoded as far as it was asked for.
// It is used again for the next row, so that a walk allocates nothing.
type row struct {
	view  *view
	table *schema.Table
	pgno  uint32
	cell  *btree.Cell // on loan

	record  []byte
	fields  []btree.Field
	decoded bool
	payload []byte // where records with overflow are put together
	pageBuf []byte
}

// at makes the row the given cell, for as long as that stays what it is.
func (r *row) at(pgno uint32, c *btree.Cell) {
	r.pgno, r.cell = pgno, c
	r.record, r.decoded = nil, false
}

// Rowid implements Row.
func (r *row) Rowid() int64 { return r.cell.Rowid }

// Cell implements Row.
func (r *row) Cell(i int) (Cell, error) {
	if err := r.decode(); err != nil {
		return Cell{}, err
	}
	if uint(i) >= uint(len(r.table.Columns)) {
		return Cell{}, fmt.Errorf("column %d of table %q asked for, it has %d", i, r.table.Name, len(r.table.Columns))
	}
	if i == r.table.Alias {
		return Cell{Class: Integer, Int: r.cell.Rowid}, nil
	}
	c := &r.table.Columns[i]
	return value(r.field(c), c.Affinity), nil
}

// load puts the record together.
func (r *row) load() error {
	if r.record != nil {
		return nil
	}
	record, err := r.view.payload(r.cell, &r.payload, &r.pageBuf)
	if err != nil {
		return blame(r.table.Name, r.pgno, err)
	}
	r.record = record
	return nil
}

func (r *row) decode() error {
	if r.decoded {
		return nil
	}
	if err := r.load(); err != nil {
		return err
	}
	fields, err := btree.Fields(r.record, r.fields[:0])
	// What follows the last column is nobody's: a declaration that lost its
	// last columns (by writable_schema) leaves such fields, and SELECT stops
	// before them.
	if n := len(r.table.Stored); n > 0 && len(fields) >= n {
		fields, err = fields[:n], nil
	}
	r.fields = fields
	if err != nil {
		return blame(r.table.Name, r.pgno, err)
	}
	r.decoded = true
	return nil
}

// field is the stored value of a column: of the record, or where that is too
// short the default the column was added with. A virtual generated column is
// stored nowhere.
func (r *row) field(c *schema.Column) btree.Field {
	switch {
	case c.Field < 0:
		return btree.Field{}
	case c.Field < len(r.fields):
		return r.fields[c.Field]
	}
	return btree.Field{Serial: c.Default.Serial, Body: c.Default.Body}
}

// value reads a stored value the way SQLite does: a whole number in a REAL
// column is stored as an integer but is a real.
func value(f btree.Field, a schema.Affinity) Cell {
	switch {
	case f.Serial == 0:
		return Cell{}
	case f.Serial == 7:
		return real(f.Real())
	case f.Serial < 10 && a == schema.RealAffinity:
		return Cell{Class: Real, Real: float64(f.Int())}
	case f.Serial < 10:
		return Cell{Class: Integer, Int: f.Int()}
	case f.Serial%2 == 1:
		return Cell{Class: Text, Bytes: f.Body}
	}
	return Cell{Class: Blob, Bytes: f.Body}
}

// real turns a stored NaN, which only a broken writer leaves, into the NULL
// that SQLite reads.
func real(v float64) Cell {
	if math.IsNaN(v) {
		return Cell{}
	}
	return Cell{Class: Real, Real: v}
}

// same compares two values exactly: class and value, reals by their bits.
func (c *Cell) same(o *Cell) bool {
	return c.Class == o.Class && c.Int == o.Int &&
		math.Float64bits(c.Real) == math.Float64bits(o.Real) && bytes.Equal(c.Bytes, o.Bytes)
}

// comparer tells whether two rows of one key differ in any value.
type comparer struct {
	before, after *row
	// pairs are the columns both tables have, by name, once they are needed.
	pairs []columnPair
	// alike says that both tables store the same columns the same way, so
	// that equal records are equal rows.
	alike bool
	// texts says that the two sides store text differently.
	texts bool
	// stored is how many fields of a record are read, alias the one of them
	// that is not, because the rowid stands for it, or -1.
	stored, alias int
	old, new      []byte
}

type columnPair struct{ before, after *schema.Column }

// begin starts over, with two sides of a table.
func (c *comparer) begin(before, after *row) {
	*c = comparer{before: before, after: after, texts: before.view.enc != after.view.enc, pairs: c.pairs[:0], old: c.old, new: c.new}
	c.alike = !c.texts && (before.table == after.table || before.table.SQL == after.table.SQL)
	c.stored, c.alias = len(after.table.Stored), -1
	if a := after.table.Alias; a >= 0 {
		c.alias = after.table.Columns[a].Field
	}
}

// whole reports that a record holds no bytes that SELECT passes over: no field
// behind the last column, and NULL where the rowid stands for the value.
// Only writable_schema leaves others. The header has one byte of length.
func (c *comparer) whole(record []byte) bool {
	field, length := 0, 0
	for _, b := range record[1:record[0]] {
		if field == c.alias && b != 0 {
			return false
		}
		if length++; b < 0x80 || length == 9 {
			field, length = field+1, 0
		}
	}
	return field <= c.stored
}

// match pairs the columns.
func (c *comparer) match() {
	before, after := c.before, c.after
	for i := range after.table.Columns {
		a := &after.table.Columns[i]
		for j := range before.table.Columns {
			b := &before.table.Columns[j]
			if b.Name != a.Name {
				continue
			}
			if a.Field >= 0 && b.Field >= 0 && (i != after.table.Alias || j != before.table.Alias) {
				c.pairs = append(c.pairs, columnPair{b, a})
			}
			break
		}
	}
}

// differ compares what is stored; the key is known to be equal.
func (c *comparer) differ() (bool, error) {
	if err := c.before.load(); err != nil {
		return false, err
	}
	if err := c.after.load(); err != nil {
		return false, err
	}
	if c.alike && bytes.Equal(c.before.record, c.after.record) {
		return false, nil
	}
	if c.alike && btree.Differ(c.before.record, c.after.record) && c.whole(c.after.record) {
		return true, nil
	}
	if err := c.before.decode(); err != nil {
		return false, err
	}
	if err := c.after.decode(); err != nil {
		return false, err
	}
	if len(c.pairs) == 0 {
		c.match()
	}
	for _, p := range c.pairs {
		b, a := c.before.field(p.before), c.after.field(p.after)
		if !c.texts && b.Serial == a.Serial && p.before.Affinity == p.after.Affinity && bytes.Equal(b.Body, a.Body) {
			continue
		}
		bv, av := value(b, p.before.Affinity), value(a, p.after.Affinity)
		if !bv.same(&av) && !c.sameText(&bv, &av) {
			return true, nil
		}
	}
	return false, nil
}

// sameText compares texts of two encodings.
func (c *comparer) sameText(b, a *Cell) bool {
	if !c.texts || b.Class != Text || a.Class != Text {
		return false
	}
	var ok, okNew bool
	c.old, ok = c.before.view.enc.AppendUTF8(c.old[:0], b.Bytes)
	c.new, okNew = c.after.view.enc.AppendUTF8(c.new[:0], a.Bytes)
	return ok && okNew && bytes.Equal(c.old, c.new)
}
