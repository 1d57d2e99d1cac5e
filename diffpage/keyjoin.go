package diffpage

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math"
)

// spot is where a row is: 32 bits page, 16 bits cell.
type spot uint64

func newSpot(pgno uint32, cell uint16) spot { return spot(pgno)<<16 | spot(cell) }

func (s spot) pgno() uint32 { return uint32(s >> 16) }
func (s spot) cell() uint16 { return uint16(s) }

// onNew marks a row of the new side; it is above all spots.
const onNew = 1 << 63

// maxGroup is how many rows of one side may share a hash. Different keys
// hardly ever do, and rows of one key are not many in a table whose primary
// key it is.
const maxGroup = 1 << 12

// keyJoin joins the two sides of a WITHOUT ROWID table. Their order depends on
// collations that only the writer may have, so rows meet by the hash of their
// key. What it keeps of a row is 16 bytes, in sorters of bounded memory: first
// the rows of both sides by hash, then what is to be shown by its spot, so
// that pages are read in ascending order as far as possible.
type keyJoin struct {
	*join
	hash func(key []byte) uint64
	rows pairs // hash, and spot with side
	// found has {spot, 0} for a row that is gone and {onNew + spot, mate} for
	// one that is there, with 0 or the spot of the old row + 1.
	found pairs
	// gone and fresh are the rows of the two sides that have hash at.
	at          uint64
	gone, fresh []spot
}

// byKey runs the join within memory bytes; what is more goes to files in dir.
func (j *join) byKey(memory int64, dir string) error {
	seed := maphash.MakeSeed()
	k := &keyJoin{
		join: j, hash: func(key []byte) uint64 { return maphash.Bytes(seed, key) },
		rows:  pairs{limit: memory / 2, file: &spillFile{dir: dir}},
		found: pairs{limit: memory / 2, file: &spillFile{dir: dir}},
	}
	return k.run()
}

func (k *keyJoin) run() (err error) {
	defer func() {
		for _, s := range []*pairs{&k.rows, &k.found} {
			if cerr := s.file.close(); err == nil {
				err = cerr
			}
		}
	}()
	if err := k.read(&k.old, 0); err != nil {
		return err
	}
	if err := k.read(&k.new, onNew); err != nil {
		return err
	}
	if err := k.rows.each(k.take); err != nil {
		return err
	}
	if err := k.match(); err != nil {
		return err
	}
	k.rows.held = nil
	if err := k.rows.file.close(); err != nil {
		return err
	}
	return k.found.each(k.show)
}

// seek moves to a cell of a page.
func (c *cursor) seek(at spot) error {
	if err := c.load(at.pgno()); err != nil {
		return err
	}
	return blame(c.name, c.pgno, c.page.Cell(int(at.cell()), &c.cell))
}

// read hashes the keys of a side.
func (k *keyJoin) read(c *cursor, mark uint64) error {
	var key []byte
	for {
		p, ok, err := c.left.next()
		if err != nil || !ok {
			return err
		}
		s := spanOf(p)
		for i := s.lo; i < s.hi; i++ {
			at := newSpot(s.pgno, i)
			if err := c.seek(at); err != nil {
				return err
			}
			c.take()
			var err error
			if key, err = c.row.appendKey(key[:0]); err != nil {
				return err
			}
			if err := k.rows.add(k.hash(key), mark|uint64(at)); err != nil {
				return err
			}
		}
	}
}

// take gathers the rows of one hash, those of the old side first.
func (k *keyJoin) take(p pair) error {
	if p.a != k.at {
		if err := k.match(); err != nil {
			return err
		}
		k.at = p.a
	}
	side, at := &k.gone, spot(p.b&^onNew)
	if p.b&onNew != 0 {
		side = &k.fresh
	}
	if len(*side) == maxGroup {
		return corrupt(k.old.name, at.pgno(), "more than %d rows have the key of a row on it", maxGroup)
	}
	*side = append(*side, at)
	return nil
}

// match settles the rows of one hash. One row of each side is taken at the
// hash's word for now, so that pages need not be read out of order; show looks
// at the keys. Where more rows share a hash, keys are compared at once.
func (k *keyJoin) match() error {
	alone := len(k.gone) == 1 && len(k.fresh) == 1
	for _, n := range k.fresh {
		mate := uint64(0)
		for i, o := range k.gone {
			same := alone
			if !same {
				var err error
				if same, err = k.meet(o, n); err != nil {
					return err
				}
			}
			if same {
				mate = uint64(o) + 1
				k.gone[i] = k.gone[len(k.gone)-1]
				k.gone = k.gone[:len(k.gone)-1]
				break
			}
		}
		if err := k.found.add(onNew|uint64(n), mate); err != nil {
			return err
		}
	}
	for _, o := range k.gone {
		if err := k.found.add(uint64(o), 0); err != nil {
			return err
		}
	}
	k.gone, k.fresh = k.gone[:0], k.fresh[:0]
	return nil
}

// meet moves both sides to a row and compares the keys.
func (k *keyJoin) meet(o, n spot) (bool, error) {
	if err := k.old.seek(o); err != nil {
		return false, err
	}
	if err := k.new.seek(n); err != nil {
		return false, err
	}
	return k.sameKey()
}

// sameKey compares the keys of the rows the two sides are on.
func (j *join) sameKey() (bool, error) {
	if j.unchanged(&j.old.cell, &j.new.cell) {
		return true, nil
	}
	j.old.take()
	j.new.take()
	var err error
	if j.cmp.old, err = j.old.row.appendKey(j.cmp.old[:0]); err != nil {
		return false, err
	}
	if j.cmp.new, err = j.new.row.appendKey(j.cmp.new[:0]); err != nil {
		return false, err
	}
	return bytes.Equal(j.cmp.old, j.cmp.new), nil
}

// show visits what was found, the rows that are gone first. Two rows of one
// hash are a pair if their keys are the same too.
func (k *keyJoin) show(p pair) error {
	at := spot(p.a &^ onNew)
	if p.a&onNew == 0 {
		if err := k.old.seek(at); err != nil {
			return err
		}
		return k.deleted()
	}
	if p.b == 0 {
		if err := k.new.seek(at); err != nil {
			return err
		}
		return k.inserted()
	}
	same, err := k.meet(spot(p.b-1), at)
	if err != nil {
		return err
	}
	if same {
		return k.pair()
	}
	if err := k.deleted(); err != nil {
		return err
	}
	return k.inserted()
}

// appendKey appends the primary key of a WITHOUT ROWID row in a form in which
// two keys are equal exactly when SQLite takes them for the same value, apart
// from collations: 1 and 1.0 are.
func (r *row) appendKey(dst []byte) ([]byte, error) {
	if err := r.decode(); err != nil {
		return dst, err
	}
	if len(r.fields) < r.table.KeyFields {
		return dst, corrupt(r.table.Name, r.pgno, "a row has %d of the %d fields of its key", len(r.fields), r.table.KeyFields)
	}
	for i := range r.table.KeyFields {
		v := value(r.fields[i], r.table.Columns[r.table.Stored[i]].Affinity)
		if v.Class == Real && v.Real >= -1<<63 && v.Real < 1<<63 && v.Real == math.Trunc(v.Real) {
			v = Cell{Class: Integer, Int: int64(v.Real)}
		}
		dst = append(dst, byte(v.Class))
		switch v.Class {
		case Integer:
			dst = binary.BigEndian.AppendUint64(dst, uint64(v.Int))
		case Real:
			dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(v.Real))
		case Text, Blob:
			dst = binary.AppendUvarint(dst, uint64(len(v.Bytes)))
			dst = append(dst, v.Bytes...)
		}
	}
	return dst, nil
}
