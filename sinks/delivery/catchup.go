package delivery

import (
	"sync"

	"celldexport/envelope"
)

// rebases are the snapshots of whole streams that are spooled for one sink
// and not yet acknowledged.
type rebases struct {
	mu sync.Mutex
	by map[envelope.Stream]uint64
}

func (r *rebases) set(s envelope.Stream, seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[envelope.Stream]uint64{}
	}
	r.by[s] = max(r.by[s], seq)
}

func (r *rebases) has(s envelope.Stream) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.by[s]
	return ok
}

func (r *rebases) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.by)
}

func (r *rebases) done(s envelope.Stream, seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by[s] <= seq {
		delete(r.by, s)
	}
}

// rebased notes that an entry is not under way any more.
func (a *attachment) rebased(h *head) {
	if h.snapshot {
		a.rebases.done(h.unit.Stream, h.seq)
	}
}

// lags reports whether streams may be behind in the sink, and the number of
// the last time that some fell.
func (a *attachment) lags() (bool, uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fell != a.cleared, a.fell
}

// Lagging are the sinks that are attached and have streams behind, each with
// the number of snapshots that are under way to it.
func (e *Engine) Lagging() (map[string]int, error) {
	var list map[string]int
	for _, o := range e.outlets {
		lags, fell := o.place.lags()
		if !lags || o.place.absence() != nil {
			continue
		}
		still, err := e.journal.anyBehind(o.id)
		if err != nil {
			return nil, err
		}
		if !still {
			o.place.mu.Lock()
			o.place.cleared = fell
			o.place.mu.Unlock()
			continue
		}
		if list == nil {
			list = map[string]int{}
		}
		list[o.sink.Name()] = o.place.rebases.len()
	}
	return list, nil
}

// Behind reports whether a sink needs a snapshot of a whole stream and none is
// under way: the caller spools one, for that sink only, and calls Rebasing.
func (e *Engine) Behind(sink string, s envelope.Stream) (bool, error) {
	o := e.outlet(sink)
	if o == nil || o.place.absence() != nil || o.place.rebases.has(s) {
		return false, nil
	}
	_, is, err := behind(e.journal.db, o.id, keyOf(s), ^uint64(0)>>1)
	return is, err
}

// Rebasing notes that entry seq is a snapshot of the whole stream for a sink.
func (e *Engine) Rebasing(sink string, s envelope.Stream, seq uint64) {
	o := e.outlet(sink)
	if o == nil {
		return
	}
	o.place.rebases.set(s, seq)
	if acked, _ := o.cursor(); acked >= seq { // before it was noted
		o.place.rebases.done(s, seq)
	}
}

// passed reports whether an entry that all sinks get is passed over in this
// one, because its stream is behind there.
func (a *attachment) passed(q querier, entry *Stored) (bool, error) {
	h := &entry.head
	if lags, _ := a.lags(); !lags || h.unit.Sink != "" || h.snapshot {
		return false, nil
	}
	_, is, err := behind(q, a.o.id, keyOf(h.unit.Stream), h.seq)
	return is, err
}
