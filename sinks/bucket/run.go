package bucket

import (
	"context"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// run is one run of the sink.
type run struct {
	sink  *Sink
	queue sinks.Queue

	batch *batch // being filled, nil when empty
	group group  // of the batch; its memory serves one after the other
	// taking is the entry that goes into the batch, each adds its records.
	taking taking
	each   func(envelope.Encoded, error) bool
	put    *put // in flight, nil when none
	// micros is the newest object's time. from is that of the first object
	// with records of the entry that the next object begins in, 0 for none.
	micros, from int64
	// again is the object saved last by the run before; once settled, only
	// when it is to be written again. skip tells the records of an entry that
	// objects before hold.
	again   State
	skip    Mark
	settled bool
	// urgent is set while what is held back is to be sent at once.
	urgent bool
}

// resume finds the newest name of this node: the saved one, else that in the
// bucket.
func (r *run) resume(ctx context.Context) error {
	saved, err := r.queue.Load()
	if err != nil {
		return err
	}
	state, err := DecodeState(saved)
	if err != nil {
		return err
	}
	if state.Key != "" {
		name, _ := ParseName(state.Key)
		r.micros, r.again = name.Micros, state
		return nil
	}
	return r.sink.retry(ctx, func() error {
		name, _, err := Newest(ctx, r.sink.cfg.Store, r.sink.cfg.Node, r.sink.cfg.Now())
		r.micros = name.Micros
		return err
	})
}

func (r *run) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) step(ctx context.Context) error {
	if err := r.collect(ctx, false); err != nil {
		return err
	}
	switch {
	case r.put == nil && r.due():
		return r.send(ctx)
	case r.put != nil && r.full():
		return r.collect(ctx, true)
	default:
		return r.next(ctx)
	}
}

// due reports whether the batch is to be sent.
func (r *run) due() bool {
	b := r.batch
	if b == nil {
		return false
	}
	if r.replaying() {
		return r.again.Last == (Mark{Entry: b.whole})
	}
	flush, _ := r.sink.cfg.limits()
	return r.urgent || b.bytes >= flush || !r.sink.cfg.Now().Before(b.deadline)
}

// full reports whether the batch takes no more.
func (r *run) full() bool {
	if r.batch == nil {
		return false
	}
	if r.replaying() {
		return r.due()
	}
	_, full := r.sink.cfg.limits()
	return r.batch.bytes >= full
}

// next takes an entry into the batch. It returns early when the object in
// flight is done.
func (r *run) next(ctx context.Context) error {
	var deadline time.Time
	if r.batch != nil && r.put == nil && !r.replaying() {
		deadline = r.batch.deadline
	}
	wait := ctx
	if r.put != nil {
		wait = r.put.flying
	}
	entry, err := r.queue.Next(wait, deadline)
	switch {
	case err != nil && wait.Err() != nil:
		return nil
	case err != nil:
		return err
	case entry == nil: // the deadline passed, or a flush was asked for
		r.urgent = r.batch != nil
		return nil
	}
	return r.take(ctx, entry)
}
