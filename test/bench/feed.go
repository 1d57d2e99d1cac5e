package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// feed keeps a sink running and hands it the same records again and again,
// one an entry, so that what is measured is a sink at work and not one that
// begins.
type feed struct {
	entries []entry
	// next is how many were handed out, limit how many are to be.
	next, limit uint64
	flushed     bool
	state       []byte

	more, done chan struct{}
	ended      chan error
	stop       context.CancelFunc
}

// entry is a record as a spool entry.
type entry struct {
	seq uint64
	rec *envelope.Encoded
	all iter.Seq2[envelope.Encoded, error]
}

func (e *entry) Seq() uint64                                 { return e.seq }
func (e *entry) Stream() envelope.Stream                     { return e.rec.Stream }
func (e *entry) Position() envelope.Position                 { return e.rec.Position }
func (e *entry) Bytes() int64                                { return int64(len(e.rec.Body)) }
func (e *entry) Records() iter.Seq2[envelope.Encoded, error] { return e.all }

// startFeed runs a sink that waits for its first lap.
func startFeed(ctx context.Context, sink sinks.Sink, records []envelope.Encoded) *feed {
	f := &feed{
		entries: make([]entry, len(records)), flushed: true,
		more: make(chan struct{}), done: make(chan struct{}, 1), ended: make(chan error, 1),
	}
	for i := range records {
		rec := &records[i]
		f.entries[i] = entry{rec: rec, all: func(yield func(envelope.Encoded, error) bool) { yield(*rec, nil) }}
	}
	ctx, f.stop = context.WithCancel(ctx)
	go func() { f.ended <- sink.Run(ctx, f) }()
	return f
}

// lap hands out every record and returns when all are acknowledged.
func (f *feed) lap() error {
	select {
	case f.more <- struct{}{}:
	case err := <-f.ended:
		return f.failed(err)
	}
	select {
	case <-f.done:
		return nil
	case err := <-f.ended:
		return f.failed(err)
	}
}

func (f *feed) failed(err error) error {
	f.ended <- err // for close
	return errors.Join(errors.New("the sink ended before the records did"), err)
}

// close ends the sink.
func (f *feed) close() error {
	f.stop()
	return <-f.ended
}

// Next hands out what a lap asks for, and then asks for a flush.
func (f *feed) Next(ctx context.Context, deadline time.Time) (sinks.Entry, error) {
	if f.next == f.limit {
		if !f.flushed {
			f.flushed = true
			return nil, nil
		}
		if more, err := f.wait(ctx, deadline); !more {
			return nil, err
		}
	}
	e := &f.entries[f.next%uint64(len(f.entries))]
	f.next++
	e.seq = f.next
	return e, nil
}

// wait waits for the next lap.
func (f *feed) wait(ctx context.Context, deadline time.Time) (more bool, err error) {
	var passed <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-f.more:
		f.limit += uint64(len(f.entries))
		f.flushed = false
		return true, nil
	case <-passed:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Flush holds from the end of a lap to the next.
func (f *feed) Flush() bool { return f.flushed }

// Ack ends the lap with its last record.
func (f *feed) Ack(seq uint64) error {
	if seq == f.limit {
		f.done <- struct{}{}
	}
	return nil
}

// Refuse fails the measurement.
func (f *feed) Refuse(seq uint64, r sinks.Refusal) error {
	return fmt.Errorf("record of entry %d refused: %v", seq, r)
}

// Load and Save keep the sink's state in memory.
func (f *feed) Load() ([]byte, error) { return f.state, nil }

func (f *feed) Save(b []byte) error {
	f.state = b
	return nil
}
