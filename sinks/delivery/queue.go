package delivery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// signal wakes everybody who waits.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// queue is one run of a sink: it begins at the first entry that the sink has
// not acknowledged.
type queue struct {
	e    *Engine
	o    *outlet
	next *cursor
	// taken is the last entry the sink got, told the one that it was last
	// asked to flush up to, in which flush.
	taken, told, toldFlush uint64
	// whole are the snapshots of whole streams that the sink got and did not
	// acknowledge: from there on the streams are not behind.
	whole map[envelope.Stream]uint64
}

var _ sinks.Queue = (*queue)(nil)

func newQueue(e *Engine, o *outlet) *queue {
	acked, _ := o.cursor()
	return &queue{e: e, o: o, next: e.spool.cursor(acked), taken: acked}
}

// Next waits for the next entry; see [sinks.Queue].
func (q *queue) Next(ctx context.Context, deadline time.Time) (sinks.Entry, error) {
	var timeout <-chan time.Time
	if !deadline.IsZero() {
		left := deadline.Sub(q.e.cfg.Now())
		if left <= 0 {
			return nil, ctx.Err()
		}
		timer := time.NewTimer(left)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		changed, flush := q.e.spool.files.changes(), q.e.flush.asked.wait()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		entry, err := q.take()
		if err != nil {
			q.e.cfg.Failed(err)
			return nil, err
		}
		if entry != nil {
			return entry, nil
		}
		if q.asked() {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timeout:
			return nil, nil
		case <-changed:
		case <-flush:
		}
	}
}

// take is the next entry that is for this sink, nil when there is none yet.
func (q *queue) take() (*Stored, error) {
	for {
		away := q.o.place.absence()
		if away != nil && q.next.seq >= away.handed {
			if err := q.keep(); err != nil {
				return nil, err
			}
			if acked, _ := q.o.cursor(); acked < away.handed {
				return nil, nil // it is to resolve what it has first
			}
			last, err := q.o.place.attach()
			if err != nil {
				return nil, err
			}
			q.next = q.e.spool.cursor(last)
			continue
		}
		e, err := q.next.next()
		if err != nil {
			return nil, err
		}
		if e == nil {
			return nil, q.keep()
		}
		mine, err := q.mine(e)
		if err != nil {
			return nil, err
		}
		if !mine {
			if acked, _ := q.o.cursor(); acked >= q.taken {
				q.o.pass(e)
			}
			continue
		}
		got, err := q.o.place.offer(e)
		if err != nil {
			return nil, err
		}
		if got {
			q.got(e)
			return e, nil
		}
		// Detached just now.
		q.next = q.e.spool.cursor(max(q.taken, q.o.place.absence().handed))
	}
}

// got notes an entry that the sink gets.
func (q *queue) got(e *Stored) {
	q.taken = e.head.seq
	if e.head.snapshot {
		if q.whole == nil {
			q.whole = map[envelope.Stream]uint64{}
		}
		q.whole[e.head.unit.Stream] = e.head.seq
	}
}

// mine reports whether an entry is for this sink and not passed over.
func (q *queue) mine(e *Stored) (bool, error) {
	if !q.o.mine(e) {
		return false, nil
	}
	lags, _ := q.o.place.lags()
	if !lags || e.head.unit.Sink != "" || e.head.snapshot {
		return true, nil
	}
	s := e.head.unit.Stream
	since, is, err := behind(q.e.journal.db, q.o.id, keyOf(s), e.head.seq)
	return !is || q.whole[s] > since, err
}

// keep makes it durable that entries at the end are not for this sink, so
// that they may leave the spool.
func (q *queue) keep() error {
	if acked, saved := q.o.cursor(); acked > saved {
		return q.o.post(acked)
	}
	return nil
}

// asked reports, once per flush and entry, that what the sink took is to be
// sent now.
func (q *queue) asked() bool {
	flush := q.e.flush.current()
	acked, _ := q.o.cursor()
	if flush == 0 || acked >= q.taken || (q.toldFlush == flush && q.told == q.taken) {
		return false
	}
	q.toldFlush, q.told = flush, q.taken
	return true
}

// Flush reports whether everything held back is to be sent at once.
func (q *queue) Flush() bool { return q.e.flush.current() != 0 }

// Ack takes the acknowledgement of all entries up to seq. It is durable on
// return.
func (q *queue) Ack(seq uint64) error {
	if seq > q.taken {
		return fmt.Errorf("sink %s acknowledged entry %d, it got no more than %d", q.o.sink.Name(), seq, q.taken)
	}
	if acked, _ := q.o.cursor(); seq <= acked {
		return nil
	}
	if seq == q.taken {
		// What was passed over since then is not for this sink.
		seq = q.next.seq
	}
	if err := q.o.post(seq); err != nil {
		return err
	}
	for s, at := range q.whole {
		if at <= seq {
			delete(q.whole, s)
		}
	}
	return nil
}

// Load returns what was saved last, nil when nothing was.
func (q *queue) Load() ([]byte, error) { return q.e.journal.load(q.o.id) }

// Save keeps a few bytes of the sink's own, durable on return.
func (q *queue) Save(state []byte) error { return q.e.journal.save(q.o.id, state) }
