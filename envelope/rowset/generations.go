package rowset

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"celldexport/diffpage/schema"
	"celldexport/internal/ledger"
)

// history is one table name's generations while a unit is planned: first as
// they were when the last unit was carried to the spool, then with this unit's
// decision added.
//
// The ledger is written before the spool, so it may hold what no unit carried:
// this very unit read a second time, or one that was lost with the state. Such
// entries are taken back here and decided anew, which finds the same answer
// for the same unit; one that opened with the same SQL text keeps its number.
type history struct {
	list        []ledger.Generation
	at, carried ledger.Mark
	// open is the index in list of the generation that was open, or -1.
	open int
	// fresh is the index of the generation that this unit opens, or -1.
	fresh int
}

func newHistory(gens []ledger.Generation, at, carried ledger.Mark) *history {
	h := &history{list: slices.Clone(gens), at: at, carried: carried, open: -1, fresh: -1}
	for i := range h.list {
		if h.list[i].Opened.Compare(carried) <= 0 {
			h.open = i
		}
	}
	if h.open >= 0 {
		if c := h.list[h.open].Closed; c != nil && c.Compare(carried) <= 0 {
			h.open = -1
		}
	}
	return h
}

// hash names a SQL text in the ledger; 128 bits tell any two texts of one name
// apart.
func hash(sql string) string {
	sum := sha256.Sum256([]byte(sql))
	return hex.EncodeToString(sum[:16])
}

// fingerprint is what the ledger keeps of a table's definition. That of a
// table that cannot be read is another one, so that a program that can opens
// the next generation and shows its rows.
func fingerprint(t *schema.Table) string {
	if t.Unreadable != "" {
		return "unreadable-" + hash(t.SQL)
	}
	return hash(t.SQL)
}

// current is the generation that was open, and its hash.
func (h *history) current() (gen uint64, sqlHash string, ok bool) {
	if h.open < 0 {
		return 0, "", false
	}
	g := h.list[h.open]
	return g.Generation, g.SQLHash, true
}

// next opens the generation for a SQL text and returns its number: that of an
// entry nobody carried when its text is the same, else one above the last.
func (h *history) next(sqlHash, renamedFrom string) uint64 {
	last := uint64(0)
	for i := len(h.list) - 1; i >= 0; i-- {
		g := &h.list[i]
		last = max(last, g.Generation)
		if h.fresh < 0 && g.Opened.Compare(h.carried) > 0 && g.SQLHash == sqlHash {
			h.fresh = i
			g.RenamedFrom = renamedFrom
			if g.Opened.Compare(h.at) > 0 {
				g.Opened = h.at
			}
		}
	}
	if h.fresh < 0 {
		h.fresh = len(h.list)
		h.list = append(h.list, ledger.Generation{
			Generation: last + 1, Opened: h.at, SQLHash: sqlHash, RenamedFrom: renamedFrom,
		})
	}
	return h.list[h.fresh].Generation
}

// settle closes every entry but the one that stays open: the fresh one, else
// the current one when keep is set. It returns the list and whether it differs
// from gens.
func (h *history) settle(keep bool, gens []ledger.Generation) ([]ledger.Generation, bool) {
	stays := h.fresh
	if stays < 0 && keep {
		stays = h.open
	}
	for i := range h.list {
		g := &h.list[i]
		switch {
		case i == stays:
			g.Closed = nil
		case g.Closed == nil || g.Closed.Compare(h.at) > 0:
			at := h.at
			g.Closed = &at
		}
	}
	return h.list, !slices.EqualFunc(h.list, gens, sameGeneration)
}

func sameGeneration(a, b ledger.Generation) bool {
	if (a.Closed == nil) != (b.Closed == nil) || a.Closed != nil && *a.Closed != *b.Closed {
		return false
	}
	a.Closed, b.Closed = nil, nil
	return a == b
}
