//go:build cgo

package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"celldexport/sinks"
)

// run is one run of the sink: sessions over one queue. It belongs to one
// goroutine.
type run struct {
	sink  *Sink
	queue sinks.Queue
	board *board
	*session
	letter letter
	limits topicLimits
	known  bool // limits were asked for

	acked time.Time // when the queue was told last
	// patience is how long an answer may take in this session.
	patience time.Duration
	// wait ends when the board has something to say.
	wait   context.Context
	awaken context.CancelFunc
}

// mostPatience is how many times as long as Retry an answer may take once
// sessions ended without any: brokers that are slower than that would
// otherwise get the same messages for ever and never be heard out.
const mostPatience = 32

// ackEvery spaces acknowledgements under load: each is a durable write.
const ackEvery = 25 * time.Millisecond

// errRefused ends a session after a record was refused, or is suspected to
// be: the next one goes on at once.
var errRefused = errors.New("the brokers refused a record")

// serve runs one producer until it fails or ctx ends.
func (r *run) serve(ctx context.Context) (err error) {
	if batch := r.board.sift(); batch > 0 {
		r.sink.conf.shrink(batch)
	}
	again := r.board.rewind()
	if r.session, err = openSession(ctx, r.sink, r.board); err != nil {
		return err
	}
	defer func() {
		r.session.close()
		r.board.setAwake(nil)
		if r.awaken != nil {
			r.awaken()
		}
		r.wait = nil
		// What was reported until the very end counts: acknowledgements, and
		// refusals behind a failure that they caused.
		if ackErr := r.ack(); ackErr != nil && ctx.Err() == nil {
			err = ackErr
		} else if r.board.view().refused != nil {
			err = errRefused
		}
	}()
	if err := r.session.prepare(ctx); err != nil {
		return err
	}
	if !r.known {
		r.known = true
		r.limits = r.session.limits(ctx)
		r.session.warn(r.limits)
		if limit := r.limits.maxMessage; limit > 0 && r.sink.conf.shrink(limit-limit/8) {
			return errRefused // not yet, but batches would be: go on with smaller ones
		}
	}
	for _, f := range again {
		if err := r.send(ctx, f); err != nil {
			return err
		}
	}
	for {
		if err := r.next(ctx); err != nil {
			return err
		}
	}
}

// next takes an entry and sends it. It returns without one when something is
// to be acknowledged.
func (r *run) next(ctx context.Context) error {
	if err := r.tend(); err != nil {
		return err
	}
	if r.board.view().entries >= r.sink.cfg.entriesHeld() {
		return r.pause(ctx)
	}
	if r.wait == nil || r.wait.Err() != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.wait, r.awaken = context.WithCancel(ctx)
		r.board.setAwake(r.awaken)
	}
	entry, err := r.queue.Next(r.wait, r.deadline())
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && r.wait.Err() != nil:
		return nil
	case err != nil:
		return &queueError{err}
	case entry == nil:
		return nil // time to tend, or a flush: nothing is held back here
	}
	return r.send(ctx, r.board.add(entry))
}

// deadline is when tend has something to do at the latest.
func (r *run) deadline() time.Time {
	var at time.Time
	if v := r.board.view(); v.open > 0 {
		at = v.moved.Add(r.patience)
	}
	if _, n := r.board.ready(); n > 0 {
		if ack := r.acked.Add(ackEvery); at.IsZero() || ack.Before(at) {
			at = ack
		}
	}
	return at
}

// tend acknowledges what is complete and looks whether the session can go on.
func (r *run) tend() error {
	if r.sink.cfg.Now().Sub(r.acked) >= ackEvery {
		if err := r.ack(); err != nil {
			return err
		}
	}
	v := r.board.view()
	switch {
	case v.refused != nil:
		return errRefused
	case v.failed != nil:
		return r.session.explain(v.failed)
	}
	if v.open > 0 && r.sink.cfg.Now().Sub(v.moved) >= r.patience {
		r.sink.change(func(st *Stats) { st.Stalls++ })
		return r.session.explain(fmt.Errorf("no acknowledgement within %v: what is under way counts as undelivered and is sent again from the spool", r.patience))
	}
	return nil
}

// ack tells the queue of the entries at the front that are complete.
func (r *run) ack() error {
	seq, n := r.board.ready()
	if n == 0 {
		return nil
	}
	if err := r.queue.Ack(seq); err != nil {
		return &queueError{err}
	}
	r.board.remove(n)
	r.acked = r.sink.cfg.Now()
	r.sink.well()
	return nil
}

// pause waits for an answer of the brokers, or for what tend does next.
func (r *run) pause(ctx context.Context) error {
	at := r.deadline()
	wait := time.Second
	if !at.IsZero() {
		wait = min(wait, max(at.Sub(r.sink.cfg.Now()), 0))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	case <-r.board.changed:
	}
	return r.tend()
}

// send hands the records of an entry to the producer, from the first that is
// not acknowledged.
func (r *run) send(ctx context.Context, f *flight) error {
	index, begin := int64(0), f.prefix
	for rec, err := range f.entry.Records() {
		if err != nil {
			return &queueError{err}
		}
		if index++; index <= begin {
			continue
		}
		m := r.letter.write(&rec, r.sink.cfg.Topic)
		if r.board.suspect(f.entry.Seq(), index-1) {
			err = r.alone(ctx, f, index-1, m)
		} else {
			err = r.produce(ctx, f, index-1, m)
		}
		if err != nil {
			return err
		}
	}
	r.board.finish(f)
	return nil
}

// produce hands over one message, when there is room.
func (r *run) produce(ctx context.Context, f *flight, index int64, m *kafka.Message) error {
	size := int64(len(m.Value) + len(m.Key))
	for !r.board.room(size, r.sink.cfg.window()) {
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
	for {
		t := r.board.send(f, index, size)
		m.Opaque = t
		err := r.session.p.Produce(m, nil)
		if err == nil {
			return nil
		}
		r.board.unsend(t)
		var e kafka.Error
		switch {
		case !errors.As(err, &e):
			return fmt.Errorf("hand a message to librdkafka: %w", err)
		case e.Code() == kafka.ErrMsgSizeTooLarge:
			return r.giveUp(f, index, localReason(size, r.sink.conf.limit()))
		case e.Code() == kafka.ErrQueueFull && r.board.view().open == 0:
			return r.giveUp(f, index, fmt.Sprintf("a message of %d bytes does not fit the client's queue; see queue.buffering.max.kbytes in the file of kafka.properties", size))
		case e.Code() != kafka.ErrQueueFull:
			return r.session.explain(fmt.Errorf("hand a message to librdkafka: %w", err))
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}

// alone sends a message that was refused in a batch by itself: refused again,
// it is refused for what it is.
func (r *run) alone(ctx context.Context, f *flight, index int64, m *kafka.Message) error {
	for r.board.view().open > 0 {
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
	size := int64(len(m.Value) + len(m.Key))
	r.board.clear(f, index)
	if err := r.produce(ctx, f, index, m); err != nil {
		return err
	}
	if err := r.answer(ctx); err != nil {
		return err
	}
	if !r.board.suspect(f.entry.Seq(), index) {
		return nil
	}
	reason := refusalReason(r.board.view().refused, size, r.limits, r.sink.cfg.needed())
	if err := r.giveUp(f, index, reason); err != nil {
		return err
	}
	return errRefused
}

// answer waits until nothing is under way, also when the session failed
// meanwhile: its refusal of the last message may come after that.
func (r *run) answer(ctx context.Context) error {
	for r.board.view().open > 0 {
		left := r.board.view().moved.Add(r.patience).Sub(r.sink.cfg.Now())
		if left <= 0 {
			return r.tend()
		}
		timer := time.NewTimer(min(left, time.Second))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		case <-r.board.changed:
			timer.Stop()
		}
	}
	if r.board.view().refused == nil {
		return r.tend()
	}
	return nil
}

// giveUp tells the queue of a record that will never be stored.
func (r *run) giveUp(f *flight, index int64, reason string) error {
	if err := r.queue.Refuse(f.entry.Seq(), sinks.Refusal{Record: index, Reason: reason}); err != nil {
		return &queueError{err}
	}
	r.board.giveUp(f, index)
	r.sink.change(func(st *Stats) { st.Refused++ })
	r.sink.cfg.Logger.Error("a record is refused for good and becomes a gap in this sink",
		"stream", f.entry.Stream().String(), "position", f.entry.Position().String(), "reason", reason)
	return nil
}
