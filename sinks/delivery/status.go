package delivery

import (
	"fmt"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// Reporter is implemented by sinks that can tell more of themselves.
type Reporter interface {
	// Report is the sink's state in a few words, and the last error while it
	// is being retried ("" when there is none).
	Report() (state, lastError string)
}

// SinkStatus is how a sink fares. Its JSON is part of /state.
type SinkStatus struct {
	Name string `json:"name"`
	// Cursor is the last entry acknowledged.
	Cursor uint64 `json:"cursor"`
	// Since is the entry after which the sink was attached, 0 when it has
	// been from the first one on.
	Since uint64 `json:"since,omitempty"`
	// Detached says that the spool was full and only this sink held it up.
	Detached bool `json:"detached,omitempty"`
	// Behind is how many streams wait to be sent to it as a whole.
	Behind int64 `json:"behind,omitempty"`
	// BacklogEntries and BacklogBytes are spooled and not yet acknowledged;
	// bytes are of records as JSON, about.
	BacklogEntries uint64 `json:"backlog_entries"`
	BacklogBytes   int64  `json:"backlog_bytes"`
	// Oldest is when the first entry not yet acknowledged was spooled; zero
	// when there is none.
	Oldest time.Time `json:"oldest,omitzero"`
	// Records and Watermarks were acknowledged since delivery.db was made.
	Records    int64 `json:"records"`
	Watermarks int64 `json:"watermarks"`
	// Dropped were refused by the sink's place for good, since delivery.db
	// was made.
	Dropped int64 `json:"dropped_records"`
	// Running is false while the sink waits to be started again.
	Running  bool `json:"running"`
	Restarts int  `json:"restarts"`
	// LastError is why the sink stopped last, or what it is retrying.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	State       string    `json:"state,omitempty"`
}

// Status is how every sink fares, in the order of Config.Sinks.
func (e *Engine) Status() ([]SinkStatus, error) {
	out := make([]SinkStatus, 0, len(e.outlets))
	for _, o := range e.outlets {
		st, err := o.status()
		if err != nil {
			return nil, fmt.Errorf("status of sink %s: %w", o.sink.Name(), err)
		}
		out = append(out, st)
	}
	return out, nil
}

func (o *outlet) status() (SinkStatus, error) {
	e := o.e
	last, total := e.spool.Last(), e.spool.files.seen()
	o.mu.Lock()
	st := SinkStatus{
		Name: o.sink.Name(), Cursor: o.acked, Since: o.since,
		BacklogEntries: last - min(last, o.acked), BacklogBytes: max(0, total-o.done),
		Records: o.sent.records, Watermarks: o.sent.watermarks, Running: o.running, Restarts: o.restarts,
		LastError: o.lastErr.text, LastErrorAt: o.lastErr.at,
	}
	o.mu.Unlock()
	st.Detached = o.place.absence() != nil
	lags, _ := o.place.lags()
	if r, ok := o.sink.(Reporter); ok {
		state, lastErr := r.Report()
		st.State = state
		if lastErr != "" {
			st.LastError = lastErr
		}
	}
	var err error
	if lags {
		if st.Behind, err = e.journal.behindCount(o.id); err != nil {
			return st, err
		}
	}
	if st.Dropped, err = e.journal.dropped(o.id); err != nil {
		return st, err
	}
	if st.BacklogEntries > 0 {
		if st.Oldest, err = o.oldest(st.Cursor); err != nil {
			return st, err
		}
	}
	return st, nil
}

// oldest is when the first entry above acked was spooled.
func (o *outlet) oldest(acked uint64) (time.Time, error) {
	o.posting.Lock()
	c := o.e.spool.cursor(acked)
	if o.trail != nil {
		c = &cursor{s: o.e.spool, seq: o.trail.seq, seg: o.trail.seg, off: o.trail.off}
	}
	o.posting.Unlock()
	c.leaps = true
	for {
		entry, err := c.next()
		if entry == nil || err != nil {
			return time.Time{}, err
		}
		if entry.head.seq > acked {
			return time.UnixMilli(entry.head.spooledAt), nil
		}
	}
}

// Delivery is what one sink has of one epoch of a stream.
type Delivery struct {
	// Certified is the end of the last acknowledged watermark, nil before the
	// first.
	Certified *envelope.Position
	// Through is the position delivered last; Positions and Records were
	// delivered since Certified.
	Through            envelope.Position
	Positions, Records uint64
	// Pending is the entry of a watermark under way, 0 when there is none.
	Pending uint64
	// Uncertified says that the epoch gets no watermarks: its chain was lost
	// with the state, or records came below a certified position.
	Uncertified bool
	// First and Last are the first and the last place that hold records of
	// the epoch, as the sink numbers them; 0 when it does not tell.
	First, Last int64
}

// Delivered tells what a sink has of an epoch of a stream; false when it has
// nothing, or it was long ago.
func (e *Engine) Delivered(s envelope.Stream, epoch uint64, sink string) (Delivery, bool, error) {
	o := e.outlet(sink)
	if o == nil {
		return Delivery{}, false, fmt.Errorf("no sink %q is attached", sink)
	}
	a, err := e.journal.account(o.id, s, epoch)
	if err != nil || a == nil {
		return Delivery{}, false, err
	}
	d := Delivery{
		Certified: a.mark, Through: a.through, Positions: a.counter.Positions, Records: a.counter.Records,
		Uncertified: a.hold&(holdLost|holdOrder) != 0,
		First:       a.place.first, Last: a.place.last,
	}
	if a.pending != nil {
		d.Pending = a.pending.seq
	}
	return d, true, nil
}

// SinkState is what a sink saved for itself; nil when it saved nothing.
func (e *Engine) SinkState(sink string) ([]byte, error) {
	o := e.outlet(sink)
	if o == nil {
		return nil, fmt.Errorf("no sink %q is attached", sink)
	}
	return e.journal.load(o.id)
}

var _ sinks.Entry = (*Stored)(nil)
