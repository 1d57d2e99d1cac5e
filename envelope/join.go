package envelope

import (
	"errors"
	"fmt"
	"slices"
)

// ErrFragments is wrapped by the errors of joining fragments that do not
// belong together.
var ErrFragments = errors.New("fragments do not fit")

// Reassembler joins fragments, in any order and with any repetition, to whole
// records. The zero value is ready.
type Reassembler struct {
	open map[Key]*partial
	done map[Key]bool
}

// partial is a record of which fragments are missing.
type partial struct {
	parts map[uint32]*Record
}

// Add takes a record and returns the whole record when it is one or completes
// one: then as 1 of 1, with the rows of its fragments in order. It returns nil
// for a fragment whose siblings are missing and for one seen before. A record
// that contradicts the fragments held is refused with an error wrapping
// [ErrFragments] and changes nothing.
func (a *Reassembler) Add(r *Record) (*Record, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("record of %s at %s: %w: %w", r.Stream, r.Position, ErrFragments, err)
	}
	key := r.Key()
	p := a.open[key]
	if p == nil && r.Fragments == 1 {
		return r, nil
	}
	if rowsOf(r) == nil {
		return nil, fmt.Errorf("%s record of %s at %s: %w: this kind is not splittable", key.kind, r.Stream, r.Position, ErrFragments)
	}
	if a.done[key] {
		return nil, nil
	}
	if p == nil {
		p = &partial{parts: map[uint32]*Record{}}
		if a.open == nil {
			a.open, a.done = map[Key]*partial{}, map[Key]bool{}
		}
		a.open[key] = p
	}
	for _, sibling := range p.parts {
		if !siblings(sibling, r) {
			return nil, fmt.Errorf("%s record of %s at %s: %w: fragment %d of %d is inconsistent with fragment %d of %d",
				key.kind, r.Stream, r.Position, ErrFragments, r.Fragment, r.Fragments, sibling.Fragment, sibling.Fragments)
		}
		break // all held are siblings of each other
	}
	if p.parts[r.Fragment] == nil {
		p.parts[r.Fragment] = r
	}
	if uint64(len(p.parts)) < uint64(r.Fragments) {
		return nil, nil
	}
	delete(a.open, key)
	a.done[key] = true
	return p.join(), nil
}

// Pending is how many records wait for fragments.
func (a *Reassembler) Pending() int { return len(a.open) }

// Join joins the fragments of one record, or returns a whole one.
func Join(fragments ...*Record) (*Record, error) {
	if len(fragments) == 0 {
		return nil, fmt.Errorf("%w: there are none", ErrFragments)
	}
	var a Reassembler
	var whole *Record
	key := fragments[0].Key()
	for _, r := range fragments {
		if r.Key() != key {
			return nil, fmt.Errorf("%w: they are of different records", ErrFragments)
		}
		got, err := a.Add(r)
		if err != nil {
			return nil, err
		}
		if got != nil {
			whole = got
		}
	}
	if whole == nil {
		return nil, fmt.Errorf("%s record of %s at %s: %w: not all are there", key.kind, key.stream, key.position, ErrFragments)
	}
	return whole, nil
}

// join makes the whole record of all its parts.
func (p *partial) join() *Record {
	n := 0
	for _, r := range p.parts {
		n += len(rowsOf(r).Changes)
	}
	changes := make([]RowChange, 0, n)
	for i := range uint32(len(p.parts)) {
		changes = append(changes, rowsOf(p.parts[i+1]).Changes...)
	}
	first := p.parts[1]
	whole := &Record{Envelope: first.Envelope}
	whole.Fragment, whole.Fragments = 1, 1
	rows := *rowsOf(first)
	rows.Changes = changes
	if snap, ok := first.Body.(*SnapshotRows); ok {
		whole.Body = &SnapshotRows{SnapshotID: snap.SnapshotID, Rows: rows}
	} else {
		whole.Body = &rows
	}
	return whole
}

// rowsOf is the rows part of a record, nil for kinds that have none.
func rowsOf(r *Record) *Rows {
	switch b := r.Body.(type) {
	case *Rows:
		return b
	case *SnapshotRows:
		return &b.Rows
	default:
		return nil
	}
}

// siblings reports whether two records of one key differ in nothing but
// fragment number and rows.
func siblings(a, b *Record) bool {
	x, y := a.Envelope, b.Envelope
	sameName := x.CellName == y.CellName || x.CellName != nil && y.CellName != nil && *x.CellName == *y.CellName
	x.CellName, y.CellName = nil, nil
	x.Fragment, y.Fragment = 0, 0
	p, q := rowsOf(a), rowsOf(b)
	return sameName && x == y && slices.Equal(p.Columns, q.Columns) && slices.Equal(p.KeyColumns, q.KeyColumns)
}
