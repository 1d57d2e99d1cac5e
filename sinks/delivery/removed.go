package delivery

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// removed are sinks that the settings no longer name. What one of them was
// handed and did not acknowledge may have been stored all the same. It stays
// in the spool, while there is room, so that the sink can resolve it when it
// is named again, as one that was detached does: then its certificates are
// true. All other entries go by it.
type removed struct {
	e *Engine

	mu   sync.Mutex
	kept map[string]keptFor
}

// keptFor is what is kept for a sink.
type keptFor struct {
	id   int64
	span span
}

// RemovedSink is a sink that the settings no longer name, for which entries
// are kept. Its JSON is part of /state.
type RemovedSink struct {
	Name string `json:"name"`
	// Entries were handed to it and not acknowledged.
	Entries uint64 `json:"entries_kept"`
}

// find looks what the sinks that are gone were handed.
func (r *removed) find() error {
	known, err := r.e.journal.sinks()
	if err != nil {
		return err
	}
	r.kept = map[string]keptFor{}
	for name, row := range known {
		if r.e.outlet(name) != nil {
			continue
		}
		handed, err := r.handed(row)
		if err != nil {
			return err
		}
		if row.cursor >= handed || lacks(r.e.spool.files, span{row.cursor + 1, handed}) {
			continue // nothing is open, or it is too late for it
		}
		err = r.e.journal.change(context.Background(), func(tx *tx) error {
			_, err := tx.Exec("INSERT OR IGNORE INTO detached VALUES (?, ?, ?)", row.id, int64(handed), int64(handed))
			return err
		})
		if err != nil {
			return fmt.Errorf("keep what sink %s was handed: %w", name, err)
		}
		r.kept[name] = keptFor{row.id, span{row.cursor + 1, handed}}
		r.e.cfg.Logger.Warn("a sink that the settings no longer name was handed records that it has not acknowledged; they are kept for it until the spool is full",
			"sink", name, "entries", handed-row.cursor)
	}
	return nil
}

// handed is the last entry that a sink which is gone may have been handed.
func (r *removed) handed(row sinkRow) (uint64, error) {
	away, err := r.e.journal.absent(row.id)
	if err != nil {
		return 0, err
	}
	if away != nil {
		return away.handed, nil
	}
	offered, noted, err := r.e.journal.offered(row.id)
	if err != nil {
		return 0, err
	}
	if !noted { // it was the only one
		offered = r.e.spool.Last()
	}
	return max(offered, row.cursor), nil
}

// keeps are the entries that stay.
func (r *removed) keeps() []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []span
	for _, k := range r.kept {
		list = append(list, k.span)
	}
	return list
}

// giveUp lets what is kept leave the spool. It reports whether there was
// anything.
func (r *removed) giveUp(ctx context.Context) (bool, error) {
	r.mu.Lock()
	kept := r.kept
	r.kept = nil
	r.mu.Unlock()
	if len(kept) == 0 {
		return false, nil
	}
	err := r.e.journal.change(ctx, func(tx *tx) error {
		for _, k := range kept {
			if _, err := tx.Exec("DELETE FROM detached WHERE sink = ?", k.id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("give up what is kept for removed sinks: %w", err)
	}
	r.e.cfg.Logger.Error("the spool is full: what was kept for sinks that the settings no longer name is given up; named again, they get every stream anew, and epochs that they had begun may stay uncertified",
		"sinks", slices.Sorted(maps.Keys(kept)))
	return true, r.e.release()
}

// Removed are the sinks that the settings no longer name, for which something
// is kept, by name.
func (e *Engine) Removed() []RemovedSink {
	e.removed.mu.Lock()
	defer e.removed.mu.Unlock()
	var list []RemovedSink
	for name, k := range e.removed.kept {
		list = append(list, RemovedSink{name, k.span.last - k.span.first + 1})
	}
	slices.SortFunc(list, func(a, b RemovedSink) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// lacks reports whether entries of a span left the spool.
func lacks(s *segments, want span) bool { return want.first < s.first() || s.holes.meet(want) }

// meet reports whether entries of a span left by a hole.
func (h *holes) meet(want span) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.list, want.meets)
}
