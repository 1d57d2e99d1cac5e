//go:build cgo

package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"celldexport/envelope"
	"celldexport/sinks"
)

// run is one run of the sink: sessions over one queue. It belongs to one
// goroutine.
type run struct {
	sink  *Sink
	queue sinks.Queue
	board *board
	*session
	letter *letter
	limits topicLimits
	known  bool // limits were asked for

	acked time.Time // when the queue was told last
	// patience is how long an answer may take in this session.
	patience time.Duration
	// wait ends when the board has something to say.
	wait   context.Context
	awaken context.CancelFunc
	// errand is what send works on, each is sendRecord.
	errand errand
	each   func(envelope.Encoded, error) bool
}

func newRun(s *Sink, queue sinks.Queue) *run {
	r := &run{sink: s, queue: queue, board: newBoard(s.cfg.Now), letter: newLetter(s.cfg.Topic), patience: s.cfg.Retry}
	r.each = r.sendRecord
	return r
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
	if batch := r.board.sift(r.sink.conf.batch()); batch > 0 {
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
		if ackErr := r.ack(r.board.view()); ackErr != nil && ctx.Err() == nil {
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
	v, err := r.tend(r.board.view())
	if err != nil {
		return err
	}
	if v.entries >= r.sink.cfg.entriesHeld() {
		return r.pause(ctx, -1)
	}
	if r.wait == nil || r.wait.Err() != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.wait, r.awaken = context.WithCancel(ctx)
		v = r.board.setAwake(r.awaken)
	}
	entry, err := r.queue.Next(r.wait, r.deadline(v))
	switch {
	case entry != nil && err == nil:
		return r.send(ctx, r.board.add(entry))
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && r.wait.Err() != nil:
		return nil
	case err != nil:
		return &queueError{err}
	}
	return nil // time to tend, or a flush: nothing is held back here
}

// deadline is when tend has something to do at the latest.
func (r *run) deadline(v view) time.Time {
	var at time.Time
	if v.open > 0 {
		at = v.moved.Add(r.patience)
	}
	if v.ready > 0 {
		if ack := r.acked.Add(ackEvery); at.IsZero() || ack.Before(at) {
			at = ack
		}
	}
	return at
}

// tend acknowledges what is complete and looks whether the session can go on.
// It returns how the board stands then.
func (r *run) tend(v view) (view, error) {
	if v.ready == 0 && v.open == 0 && v.failed == nil && v.refused == nil {
		return v, nil
	}
	now := r.sink.cfg.Now()
	if v.ready > 0 && now.Sub(r.acked) >= ackEvery {
		if err := r.ack(v); err != nil {
			return v, err
		}
		v = r.board.view()
	}
	switch {
	case v.refused != nil:
		return v, errRefused
	case v.failed != nil:
		return v, r.session.explain(v.failed)
	}
	if v.open > 0 && now.Sub(v.moved) >= r.patience {
		r.sink.change(func(st *Stats) { st.Stalls++ })
		return v, r.session.explain(fmt.Errorf("no acknowledgement within %v: what is under way counts as undelivered and is sent again from the spool", r.patience))
	}
	return v, nil
}

// ack tells the queue of the entries at the front that are complete.
func (r *run) ack(v view) error {
	if v.ready == 0 {
		return nil
	}
	if err := r.queue.Ack(v.seq); err != nil {
		return &queueError{err}
	}
	r.board.remove(v.ready)
	r.acked = r.sink.cfg.Now()
	r.sink.change(func(st *Stats) { st.Messages = v.answered })
	r.sink.well()
	return nil
}

// pause waits until no more than low bytes are under way, for the end of the
// session, or for what tend does next.
func (r *run) pause(ctx context.Context, low int64) error {
	r.board.await(low)
	wait := time.Second
	if at := r.deadline(r.board.view()); !at.IsZero() {
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
	_, err := r.tend(r.board.view())
	return err
}

// errand is an entry that is being sent.
type errand struct {
	ctx    context.Context
	flight *flight
	// index is of the next record; those below begin are not sent again.
	index, begin int64
	err          error
}

// send hands the records of an entry to the producer, from the first that is
// not acknowledged.
func (r *run) send(ctx context.Context, f *flight) error {
	r.errand = errand{ctx: ctx, flight: f, begin: f.prefix}
	f.entry.Records()(r.each)
	if r.errand.err != nil {
		return r.errand.err
	}
	r.board.finish(f)
	return nil
}

// sendRecord takes one record of the entry; it reports whether there is to be
// another one. A loop over the records would need memory for each entry, so
// this function is made once and what it works with lies in r.
func (r *run) sendRecord(rec envelope.Encoded, err error) bool {
	e := &r.errand
	if err != nil {
		e.err = &queueError{err}
		return false
	}
	index := e.index
	if e.index++; index < e.begin {
		return true
	}
	m := r.letter.write(&rec)
	m.TopicPartition.Partition = r.session.route.of(m.Key)
	e.err = r.produce(e.ctx, e.flight, index, m)
	return e.err == nil
}

// produce hands over one message, when there is room.
func (r *run) produce(ctx context.Context, f *flight, index int64, m *kafka.Message) error {
	size, part, most := int64(len(m.Value)+len(m.Key)), m.TopicPartition.Partition, r.sink.cfg.window()
	var since time.Time
	for {
		switch r.board.send(f, ticket{index: index, bytes: size}, part, most) {
		case apart:
			return r.alone(ctx, f, index, m)
		case full:
			if err := r.pause(ctx, most-most/4); err != nil {
				return err
			}
			continue
		}
		err := r.session.p.Produce(m, nil)
		if err == nil {
			return nil
		}
		r.board.unsend(part)
		if gone, err := r.notTaken(f, index, m, err); gone || err != nil {
			return err
		}
		if err := r.room(ctx, &since); err != nil {
			return err
		}
	}
}

// room waits after the client's queue had none for a message that fits it:
// until something is answered, or, when everything is, for librdkafka to let
// go of the messages whose reports were read, which it does a moment later.
// since is when the queue was first found full with nothing under way.
func (r *run) room(ctx context.Context, since *time.Time) error {
	v := r.board.view()
	if v.open > 0 {
		*since = time.Time{}
		return r.pause(ctx, v.bytes*3/4)
	}
	if _, err := r.tend(v); err != nil {
		return err
	}
	now := r.sink.cfg.Now()
	if since.IsZero() {
		*since = now
	}
	if now.Sub(*since) >= r.patience {
		return fmt.Errorf("the client's queue has no room although nothing is under way for %v; see queue.buffering.max.kbytes and queue.buffering.max.messages in the file of kafka.properties", r.patience)
	}
	if !sleep(ctx, roomPause) {
		return ctx.Err()
	}
	return nil
}

// roomPause is the wait for librdkafka to let go of answered messages.
const roomPause = time.Millisecond

// notTaken says what comes of a message that the client did not take: it is
// gone for good, or the session ends, or it is to be tried again.
func (r *run) notTaken(f *flight, index int64, m *kafka.Message, err error) (gone bool, _ error) {
	var e kafka.Error
	switch {
	case !errors.As(err, &e):
		return false, fmt.Errorf("hand a message to librdkafka: %w", err)
	case e.Code() == kafka.ErrMsgSizeTooLarge:
		return true, r.giveUp(f, index, localReason(int64(len(m.Value)+len(m.Key)), r.sink.conf.limit()))
	case e.Code() == kafka.ErrQueueFull && int64(len(m.Value)) > r.sink.conf.queue():
		return true, r.giveUp(f, index, queueReason(int64(len(m.Value)), r.sink.conf.queue()))
	case e.Code() != kafka.ErrQueueFull:
		return false, r.session.explain(fmt.Errorf("hand a message to librdkafka: %w", err))
	}
	return false, nil
}

// alone sends a message that was refused in a batch by itself: refused again,
// it is refused for what it is.
func (r *run) alone(ctx context.Context, f *flight, index int64, m *kafka.Message) error {
	for r.board.view().open > 0 {
		if err := r.pause(ctx, -1); err != nil {
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
	if !r.board.suspect(f.seq, index) {
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
	for v := r.board.view(); v.open > 0; v = r.board.view() {
		left := v.moved.Add(r.patience).Sub(r.sink.cfg.Now())
		if left <= 0 {
			_, err := r.tend(v)
			return err
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
	if v := r.board.view(); v.refused == nil {
		_, err := r.tend(v)
		return err
	}
	return nil
}

// giveUp tells the queue of a record that will never be stored.
func (r *run) giveUp(f *flight, index int64, reason string) error {
	if err := r.queue.Refuse(f.seq, sinks.Refusal{Record: index, Reason: reason}); err != nil {
		return &queueError{err}
	}
	r.board.giveUp(f, index)
	r.sink.change(func(st *Stats) { st.Refused++ })
	r.sink.cfg.Logger.Error("a record is refused for good and becomes a gap in this sink",
		"stream", f.entry.Stream().String(), "position", f.entry.Position().String(), "reason", reason)
	return nil
}
