package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Mark is the position of a unit: its epoch and its highest txid.
type Mark struct {
	Epoch uint64 `json:"epoch"`
	TXID  uint64 `json:"txid"`
}

// Compare orders marks as the stream passes them.
func (m Mark) Compare(o Mark) int {
	return cmp.Or(cmp.Compare(m.Epoch, o.Epoch), cmp.Compare(m.TXID, o.TXID))
}

// Generation is one life of a table name.
type Generation struct {
	// Generation numbers the lives of one name from 1.
	Generation uint64 `json:"generation"`
	// Opened is the unit that opened it, and Closed the one that ended it, nil
	// while it is open. A long-closed one has lost Opened.
	Opened Mark  `json:"opened,omitzero"`
	Closed *Mark `json:"closed,omitempty"`
	// SQLHash tells the stored SQL text from that of other generations.
	SQLHash string `json:"sql_hash,omitempty"`
	// RenamedFrom is the name that the table had before.
	RenamedFrom string `json:"renamed_from,omitempty"`
}

// keptClosings is how many units' closed generations are kept in full: far
// more than can be in the ledger and not yet in the spool, and enough to read
// back at a recent position.
const keptClosings = 64

// SetTables replaces the lists of the named tables with what a unit of the
// epoch makes of them. The epoch must be the newest pinned one, and open; the
// numbers of a name never go back.
//
// Closed generations of epochs whose pins are gone, and those beyond the
// newest closings, are dropped; of a table that has no later one its last
// number stays, so that the name goes on from there.
func (s *Stream) SetTables(epoch uint64, tables map[string][]Generation) error {
	newest, any := s.Newest()
	var err error
	switch {
	case !any || newest.Epoch < epoch:
		err = ErrNotPinned
	case newest.Epoch > epoch:
		err = fmt.Errorf("e%d is pinned by %s: %w", newest.Epoch, newest.Writer.Node, ErrFenced)
	case newest.Closed != nil:
		err = fmt.Errorf("at txid %d: %w", *newest.Closed, ErrClosed)
	}
	if err != nil {
		return fmt.Errorf("set tables of %s in e%d: %w", s.Identity, epoch, err)
	}
	for name, list := range tables {
		if err := checkList(list); err != nil {
			return fmt.Errorf("set tables of %s in e%d: table %q: %w", s.Identity, epoch, name, err)
		}
		if !utf8.ValidString(name) {
			return fmt.Errorf("set tables of %s in e%d: table %q: the name is not valid UTF-8, which JSON cannot hold", s.Identity, epoch, name)
		}
		if have := last(s.Tables[name]); last(list) < have {
			return fmt.Errorf("set tables of %s in e%d: table %q: the last generation is %d, the ledger's %d", s.Identity, epoch, name, last(list), have)
		}
	}
	if s.Tables == nil && len(tables) > 0 {
		s.Tables = make(map[string][]Generation, len(tables))
	}
	for name, list := range tables {
		s.Tables[name] = slices.Clone(list)
	}
	s.shrink()
	return nil
}

// last returns the highest generation of a list, 0 for none.
func last(list []Generation) uint64 {
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1].Generation
}

// checkList refuses a list whose numbers do not ascend from 1 or of which more
// than one is open.
func checkList(list []Generation) error {
	if len(list) == 0 {
		return errors.New("no generation")
	}
	open, before := 0, uint64(0)
	for _, g := range list {
		if g.Generation <= before {
			return fmt.Errorf("generation %d after %d", g.Generation, before)
		}
		before = g.Generation
		if g.Closed == nil {
			open++
		}
	}
	if open > 1 {
		return fmt.Errorf("%d generations are open", open)
	}
	return nil
}

// shrink drops what is known of long-closed generations.
func (s *Stream) shrink() {
	if len(s.Epochs) == 0 {
		return
	}
	from := s.keptFrom()
	for name, list := range s.Tables {
		old := func(g Generation) bool { return g.Closed != nil && g.Closed.Compare(from) < 0 }
		if !slices.ContainsFunc(list, old) {
			continue
		}
		end := list[len(list)-1]
		list = slices.DeleteFunc(slices.Clone(list), old)
		if last(list) < end.Generation {
			list = append(list, Generation{Generation: end.Generation, Closed: end.Closed})
		}
		s.Tables[name] = list
	}
}

// keptFrom returns the first closing that is kept in full.
func (s *Stream) keptFrom() Mark {
	from := Mark{Epoch: s.Epochs[0].Epoch}
	var marks []Mark
	for _, list := range s.Tables {
		for _, g := range list {
			if g.Closed != nil && g.Closed.Compare(from) >= 0 {
				marks = append(marks, *g.Closed)
			}
		}
	}
	slices.SortFunc(marks, Mark.Compare)
	marks = slices.Compact(marks)
	if old := len(marks) - keptClosings; old > 0 {
		return marks[old]
	}
	return from
}
