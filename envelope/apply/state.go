// Package apply is the reference consumer: it says what state a set of change
// records stands for, which of it is certified and where it has holes.
//
// A [State] is a function of the set of records added to it. Order of arrival,
// repetition and the cutting of records into fragments make no difference,
// since delivery promises none of them. Everything is computed from the held
// records when asked for; a State keeps them all and is meant for one cell, or
// a few, at a time.
//
// The rules, in short: per key the newest change wins; a complete snapshot
// replaces everything in its scope at or below its position; generations of a
// table never merge and a later one closes the earlier; deletions remove
// streams; watermarks certify what was counted.
package apply

import (
	"bytes"
	"fmt"

	"celldexport/envelope"
)

// State is what a set of records says about some cells. It is not safe for
// concurrent use.
type State struct {
	cells      map[cellID]*cell
	fragments  envelope.Reassembler
	tombstones map[tombstoneID]Tombstone
}

// cellID is what streams must share to bear on each other.
type cellID struct{ class, cell string }

func cellOf(s envelope.Stream) cellID { return cellID{s.Class, s.Cell} }

// cell holds the whole records of all streams of a cell, in all scripts.
type cell struct {
	records map[envelope.Key]*envelope.Record
	// view is what they mean, nil until it is asked for.
	view *view
}

// New is a State without records.
func New() *State {
	return &State{cells: map[cellID]*cell{}, tombstones: map[tombstoneID]Tombstone{}}
}

// Add takes a record or a fragment of one, and keeps it: the caller must not
// change it afterwards. A copy of a record already held is ignored. An error
// means that the record contradicts the fragments held; it is not taken.
func (s *State) Add(r *envelope.Record) error {
	if r.Body == nil {
		return fmt.Errorf("apply: record of %s at %s has no body", r.Stream, r.Position)
	}
	whole, err := s.fragments.Add(r)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if whole == nil {
		return nil
	}
	c := s.cell(cellOf(r.Stream))
	key := whole.Key()
	if old := c.records[key]; old != nil {
		if whole, err = choose(old, whole); err != nil {
			return fmt.Errorf("apply: %w", err)
		}
		if whole == old {
			return nil
		}
	}
	c.records[key] = whole
	c.view = nil
	return nil
}

// choose picks one of two records of the same key. Copies are equal as a
// rule; when they are not, the choice must not hang on which came first.
func choose(a, b *envelope.Record) (*envelope.Record, error) {
	x, err := a.Append(nil)
	if err != nil {
		return nil, err
	}
	y, err := b.Append(nil)
	if err != nil {
		return nil, err
	}
	if bytes.Compare(y, x) < 0 {
		return b, nil
	}
	return a, nil
}

// Pending is how many records wait for fragments.
func (s *State) Pending() int { return s.fragments.Pending() }

func (s *State) cell(id cellID) *cell {
	c := s.cells[id]
	if c == nil {
		c = &cell{records: map[envelope.Key]*envelope.Record{}}
		s.cells[id] = c
	}
	return c
}

// look is the view of a cell, nil when nothing is held of it.
func (s *State) look(id cellID) *view {
	c := s.cells[id]
	if c == nil {
		return nil
	}
	if c.view == nil {
		c.view = newView(c.records, s.erased)
	}
	return c.view
}

// stream is what is known of a visible stream, nil when there is none.
func (s *State) stream(id envelope.Stream) *stream {
	if v := s.look(cellOf(id)); v != nil {
		return v.streams[id]
	}
	return nil
}
