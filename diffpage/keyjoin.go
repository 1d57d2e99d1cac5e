package diffpage

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
)

// rowRef is a row of a WITHOUT ROWID table, found by the hash of its key.
type rowRef struct {
	hash uint64
	pgno uint32
	cell uint16
	used bool  // old side: a row of the new side has the key
	mate int32 // new side: index of the old row, -1 for none
}

const rowRefSize = 24

// byKey joins the two sides of a WITHOUT ROWID table. Their order depends on
// collations that only the writer may have, so rows meet by the hash of their
// key. When the references of all rows do not fit the memory, the join is
// done in several rounds over the same pages, each for one share of the
// hashes.
func (j *join) byKey(memory int64) error {
	rows := 0
	for _, s := range [][]span{j.t.oldSide, j.t.newSide} {
		for _, e := range s {
			rows += int(e.hi - e.lo)
		}
	}
	rounds := uint64(1 + int64(rows)*rowRefSize/max(memory, 1<<16))
	seed := maphash.MakeSeed()
	for round := range rounds {
		mine := func(hash uint64) bool { return hash%rounds == round }
		old, err := j.old.refs(j.t.oldSide, seed, mine)
		if err != nil {
			return err
		}
		new, err := j.new.refs(j.t.newSide, seed, mine)
		if err != nil {
			return err
		}
		if err := j.match(old, new); err != nil {
			return err
		}
		if err := j.show(old, new); err != nil {
			return err
		}
	}
	return nil
}

// seek moves to a cell of a page.
func (c *cursor) seek(pgno uint32, cell uint16) error {
	if err := c.load(pgno); err != nil {
		return err
	}
	return blame(c.name, pgno, c.page.Cell(int(cell), &c.cell))
}

// refs hashes the keys of a side and keeps those that are asked for.
func (c *cursor) refs(side []span, seed maphash.Seed, mine func(uint64) bool) ([]rowRef, error) {
	var refs []rowRef
	var key []byte
	for _, s := range side {
		for i := s.lo; i < s.hi; i++ {
			if err := c.seek(s.pgno, i); err != nil {
				return nil, err
			}
			c.take()
			var err error
			if key, err = c.row.appendKey(key[:0]); err != nil {
				return nil, err
			}
			if hash := maphash.Bytes(seed, key); mine(hash) {
				refs = append(refs, rowRef{hash: hash, pgno: s.pgno, cell: i, mate: -1})
			}
		}
	}
	slices.SortFunc(refs, func(a, b rowRef) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.pgno, b.pgno), cmp.Compare(a.cell, b.cell))
	})
	return refs, nil
}

// match finds the old row for every new one. A hash that one row of each side
// has is taken at its word for now, so that pages need not be read out of
// order; show looks at the keys. Where more rows share a hash, keys are
// compared at once.
func (j *join) match(old, new []rowRef) error {
	for i, k := 0, 0; i < len(new) && k < len(old); {
		switch hash := new[i].hash; {
		case old[k].hash < hash:
			k++
		case old[k].hash > hash:
			i++
		default:
			endNew, endOld := i+1, k+1
			for endNew < len(new) && new[endNew].hash == hash {
				endNew++
			}
			for endOld < len(old) && old[endOld].hash == hash {
				endOld++
			}
			if endNew == i+1 && endOld == k+1 {
				old[k].used, new[i].mate = true, int32(k)
			} else if err := j.matchGroup(old, k, endOld, new[i:endNew]); err != nil {
				return err
			}
			i, k = endNew, endOld
		}
	}
	return nil
}

// matchGroup matches the rows of one hash by their keys.
func (j *join) matchGroup(old []rowRef, from, to int, new []rowRef) error {
	for i := range new {
		for k := from; k < to && new[i].mate < 0; k++ {
			if old[k].used {
				continue
			}
			if err := j.seek(&old[k], &new[i]); err != nil {
				return err
			}
			same, err := j.sameKey()
			if err != nil {
				return err
			}
			if same {
				old[k].used, new[i].mate = true, int32(k)
			}
		}
	}
	return nil
}

// seek moves both sides to a row.
func (j *join) seek(o, n *rowRef) error {
	if err := j.old.seek(o.pgno, o.cell); err != nil {
		return err
	}
	return j.new.seek(n.pgno, n.cell)
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

// show visits the rows without a mate, the old ones first, and the pairs that
// differ. Pages are read in ascending order as far as possible.
func (j *join) show(old, new []rowRef) error {
	byPlace := func(a, b rowRef) int { return cmp.Or(cmp.Compare(a.pgno, b.pgno), cmp.Compare(a.cell, b.cell)) }
	var gone []rowRef
	for _, o := range old {
		if !o.used {
			gone = append(gone, o)
		}
	}
	slices.SortFunc(gone, byPlace)
	for _, o := range gone {
		if err := j.old.seek(o.pgno, o.cell); err != nil {
			return err
		}
		if err := j.deleted(); err != nil {
			return err
		}
	}
	slices.SortFunc(new, byPlace)
	for _, n := range new {
		if err := j.new.seek(n.pgno, n.cell); err != nil {
			return err
		}
		if n.mate < 0 {
			if err := j.inserted(); err != nil {
				return err
			}
			continue
		}
		if err := j.old.seek(old[n.mate].pgno, old[n.mate].cell); err != nil {
			return err
		}
		if err := j.showPair(); err != nil {
			return err
		}
	}
	return nil
}

// showPair shows two rows of one hash: as a pair if their keys are the same
// too.
func (j *join) showPair() error {
	same, err := j.sameKey()
	if err != nil {
		return err
	}
	if same {
		return j.pair()
	}
	if err := j.deleted(); err != nil {
		return err
	}
	return j.inserted()
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
