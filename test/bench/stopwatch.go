package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"celldexport/envelope"
	"celldexport/internal/objstore"
	"celldexport/sinks"
	"celldexport/sinks/bucket"
)

// txKey names one capture of one cell.
type txKey struct {
	cell string
	txid uint64
}

// stopwatch knows when transactions were committed and notes how long each
// took to be acknowledged by a sink's place.
type stopwatch struct {
	mu        sync.Mutex
	committed map[txKey]time.Time
	took      []float64 // nanoseconds
	err       error
}

func newStopwatch() *stopwatch { return &stopwatch{committed: make(map[txKey]time.Time)} }

// commit says that a transaction is committed now.
func (s *stopwatch) commit(k txKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed[k] = time.Now()
}

// arrived says when a transaction was acknowledged; the first time counts.
func (s *stopwatch) arrived(k txKey, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began, ok := s.committed[k]; ok {
		s.took = append(s.took, float64(at.Sub(began)))
		delete(s.committed, k)
	}
}

func (s *stopwatch) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = errors.Join(s.err, err)
}

// left is how many commits are not acknowledged yet.
func (s *stopwatch) left() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.committed), s.err
}

// timedStore is an export bucket whose objects are looked into.
type timedStore struct {
	objstore.Store
	watch *stopwatch
}

// Put stores the object and looks up whose records are in it.
func (t *timedStore) Put(ctx context.Context, key string, body io.ReaderAt, size int64, o objstore.PutOptions) (objstore.Object, error) {
	obj, err := t.Store.Put(ctx, key, body, size, o)
	now := time.Now()
	if err != nil || !strings.HasPrefix(key, bucket.Prefix) {
		return obj, err
	}
	if err := t.note(key, body, size, now); err != nil {
		t.watch.fail(err)
	}
	return obj, nil
}

func (t *timedStore) note(key string, body io.ReaderAt, size int64, now time.Time) error {
	r, err := bucket.NewReader(key, body, size)
	if err != nil {
		return err
	}
	for rec, err := range r.Records() {
		if err != nil {
			return err
		}
		if rec.Kind == envelope.KindRows {
			t.watch.arrived(txKey{rec.Stream.Cell, rec.Position.TXID}, now)
		}
	}
	return nil
}

// timedSink is a sink whose acknowledgements are noted.
type timedSink struct {
	sinks.Sink
	watch *stopwatch
}

// Run runs the sink on a queue that is listened to.
func (t *timedSink) Run(ctx context.Context, queue sinks.Queue) error {
	return t.Sink.Run(ctx, &timedQueue{Queue: queue, watch: t.watch})
}

// timedQueue notes when units that the sink took are acknowledged.
type timedQueue struct {
	sinks.Queue
	watch *stopwatch
	taken []takenUnit
}

type takenUnit struct {
	seq uint64
	key txKey
}

// Next gives the sink an entry.
func (q *timedQueue) Next(ctx context.Context, deadline time.Time) (sinks.Entry, error) {
	e, err := q.Queue.Next(ctx, deadline)
	if err == nil && e != nil && e.Position().Commit == e.Position().TXID { // a unit, no link
		q.taken = append(q.taken, takenUnit{e.Seq(), txKey{e.Stream().Cell, e.Position().TXID}})
	}
	return e, err
}

// Ack passes on what is stored, which is when a commit has arrived.
func (q *timedQueue) Ack(seq uint64) error {
	if err := q.Queue.Ack(seq); err != nil {
		return err
	}
	now := time.Now()
	for len(q.taken) > 0 && q.taken[0].seq <= seq {
		q.watch.arrived(q.taken[0].key, now)
		q.taken = q.taken[1:]
	}
	return nil
}
