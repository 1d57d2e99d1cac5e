package sinktest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
	"celldexport/sinks/delivery"
)

// watch notes what a sink is handed and what it says of it, over all its
// runs on one spool.
type watch struct {
	t testing.TB

	mu    sync.Mutex
	given map[uint64]*given
	// acked is the highest entry acknowledged, held the size of the records
	// taken in this run and not acknowledged.
	acked uint64
	held  int64
}

// given is an entry as it was handed out.
type given struct {
	stream envelope.Stream
	lines  []string
	size   int64
	// taken is set while the entry counts as held, refused are the numbers of
	// records that the place will never take.
	taken   bool
	refused []int64
}

func newWatch(t testing.TB) *watch { return &watch{t: t, given: map[uint64]*given{}} }

// take notes an entry. One that was handed out before has to be the same.
func (w *watch) take(e sinks.Entry) error {
	g := &given{stream: e.Stream(), size: e.Bytes(), taken: true}
	for rec, err := range e.Records() {
		if err != nil {
			return err
		}
		g.lines = append(g.lines, string(rec.AppendJSON(nil)))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.given[e.Seq()]
	if old != nil && !slices.Equal(old.lines, g.lines) {
		w.t.Errorf("entry %d is handed out again with other records", e.Seq())
	}
	if e.Seq() <= w.acked {
		w.t.Errorf("entry %d is handed out again, acknowledged is %d", e.Seq(), w.acked)
	}
	w.given[e.Seq()] = g
	w.held += g.size
	return nil
}

// ack notes an acknowledgement; it is said and counts, whatever comes of it.
func (w *watch) ack(seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := w.acked + 1; n <= seq; n++ {
		if g := w.given[n]; g != nil && g.taken {
			g.taken = false
			w.held -= g.size
		}
	}
	w.acked = max(w.acked, seq)
}

func (w *watch) refuse(seq uint64, record int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.given[seq]; g != nil {
		g.refused = append(g.refused, record)
	}
}

// begin is that of a run: what was taken before and not acknowledged is
// forgotten by the sink.
func (w *watch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = 0
	for seq, g := range w.given {
		g.taken = false
		if seq > w.acked {
			g.refused = nil
		}
	}
}

// upTo are the entries handed out up to seq, in their order.
func (w *watch) upTo(seq uint64) []*given {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*given
	for _, n := range slices.Sorted(maps.Keys(w.given)) {
		if n <= seq {
			list = append(list, w.given[n])
		}
	}
	return list
}

// counts are the highest entries taken and acknowledged and the size of what
// is held.
func (w *watch) counts() (taken, acked uint64, held int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := range w.given {
		taken = max(taken, n)
	}
	return taken, w.acked, w.held
}

// watched is a sink that is watched. It tells of itself what the sink does.
type watched struct {
	sinks.Sink
	watch *watch
}

var (
	_ delivery.Reporter = watched{}
	_ delivery.Locator  = watched{}
)

func (s watched) Run(ctx context.Context, queue sinks.Queue) error {
	s.watch.begin()
	return s.Sink.Run(ctx, &watchedQueue{queue, s.watch})
}

func (s watched) Report() (state, lastError string) {
	if r, ok := s.Sink.(delivery.Reporter); ok {
		return r.Report()
	}
	return "", ""
}

func (s watched) Located() (first, last int64) {
	if l, ok := s.Sink.(delivery.Locator); ok {
		return l.Located()
	}
	return 0, 0
}

type watchedQueue struct {
	sinks.Queue
	watch *watch
}

func (q *watchedQueue) Next(ctx context.Context, deadline time.Time) (sinks.Entry, error) {
	e, err := q.Queue.Next(ctx, deadline)
	if e == nil || err != nil {
		return nil, err
	}
	if err := q.watch.take(e); err != nil {
		return nil, err
	}
	return e, nil
}

func (q *watchedQueue) Ack(seq uint64) error {
	q.watch.ack(seq)
	return q.Queue.Ack(seq)
}

func (q *watchedQueue) Refuse(seq uint64, refusal sinks.Refusal) error {
	q.watch.refuse(seq, refusal.Record)
	return q.Queue.Refuse(seq, refusal)
}
