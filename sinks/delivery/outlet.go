package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"celldexport/sinks"
)

// outlet is one attached sink: how far it has acknowledged and how it fares.
type outlet struct {
	e     *Engine
	sink  sinks.Sink
	id    int64
	since uint64

	// posting keeps acknowledgements apart and covers trail, which stands at
	// the entry that the journal has as acknowledged.
	posting sync.Mutex
	trail   *cursor
	refused refused

	place attachment

	mu       sync.Mutex
	acked    uint64 // everything up to here is acknowledged or not for this sink
	saved    uint64 // acked as the journal has it
	done     int64  // encoded size of what was acknowledged since the spool was opened
	sent     tally
	running  bool
	restarts int
	lastErr  failure
}

// tally counts what was acknowledged since delivery.db was made.
type tally struct{ records, watermarks int64 }

// failure is an error and when it came.
type failure struct {
	text string
	at   time.Time
}

func (o *outlet) cursor() (acked, saved uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.acked, o.saved
}

// mine reports whether an entry is for this sink.
func (o *outlet) mine(e *Stored) bool {
	sink := e.head.unit.Sink
	return sink == "" || sink == o.sink.Name()
}

// found notes an entry of this sink alone that is on its way at the start.
func (o *outlet) found(entry *Stored) error {
	h := &entry.head
	if h.seq <= o.acked || !o.place.handed(h.seq) {
		return nil
	}
	if h.snapshot {
		o.place.rebases.set(h.unit.Stream, h.seq)
	}
	if h.gap {
		return o.e.reports.found(o.e, entry)
	}
	return nil
}

// post makes an acknowledgement durable: the accounts of all entries above
// the last one up to and including upto, and the cursor.
func (o *outlet) post(upto uint64) error {
	e := o.e
	o.posting.Lock()
	defer o.posting.Unlock()
	from, saved := o.cursor()
	if upto <= saved {
		return nil
	}
	p := &posting{
		sink: o.id, name: o.sink.Name(), where: o.where(), now: e.cfg.Now().UnixMilli(), idle: e.cfg.WatermarkIdle.Milliseconds(),
		accounts: map[accountKey]*account{}, answers: answers{listen: e.spurned.any()},
	}
	if o.trail == nil {
		o.trail = e.spool.cursor(saved)
	}
	err := e.journal.change(context.Background(), func(tx *tx) error {
		p.tx = tx
		for o.trail.seq < upto {
			entry, err := o.trail.next()
			if err != nil {
				return err
			}
			if entry == nil {
				return fmt.Errorf("entry %d was acknowledged before it was durable", o.trail.seq+1)
			}
			if entry.head.seq <= from {
				continue // passed over: not for this sink
			}
			if err := o.take(p, entry); err != nil {
				return err
			}
		}
		return p.finish(upto)
	})
	if err != nil {
		o.trail = nil
		return fmt.Errorf("acknowledge entry %d of sink %s: %w", upto, o.sink.Name(), err)
	}
	for _, a := range p.held {
		e.cfg.Logger.Error("records came below a certified position; the epoch gets no more watermarks",
			"sink", o.sink.Name(), "stream", a.stream.String(), "epoch", a.epoch)
	}
	o.mu.Lock()
	o.acked, o.saved = upto, upto
	o.done += p.bytes
	o.sent.records += p.records
	o.sent.watermarks += p.watermarks
	o.mu.Unlock()
	o.refused.settled(upto)
	for i := range p.whole {
		o.place.rebased(&p.whole[i])
	}
	o.heard(&p.answers)
	e.progress.fire()
	e.certifier.kick()
	return e.release()
}

// take posts one entry.
func (o *outlet) take(p *posting, entry *Stored) error {
	h := &entry.head
	if passed, err := o.place.passed(p.tx.Tx, entry); err != nil || passed {
		p.bytes += h.bytes
		return err
	}
	if h.snapshot && o.mine(entry) {
		// Whatever was refused of it: what comes behind it was handed out for
		// a stream that is not behind, another one would be refused as well,
		// and a gap tells what is missing.
		p.whole = append(p.whole, *h)
		if err := p.tx.caughtUp(o.id, keyOf(h.unit.Stream), h.seq); err != nil {
			return err
		}
	}
	lost := o.refused.of(h.seq)
	if p.answers.listen || len(lost) > 0 {
		if err := p.answers.hear(p.name, entry, len(lost) > 0); err != nil {
			return err
		}
	}
	if len(lost) > 0 {
		return p.takeSome(entry, lost)
	}
	if h.gap && h.unit.Sink == p.name {
		if err := p.told(entry); err != nil {
			return err
		}
	}
	if h.unit.Form == FormWatermark && o.mine(entry) {
		if err := p.adopt(entry); err != nil {
			return err
		}
	}
	return p.take(h)
}

// pass notes that entries up to seq are not for this sink, while nothing it
// took is unacknowledged.
func (o *outlet) pass(entry *Stored) {
	o.mu.Lock()
	o.acked = entry.head.seq
	o.done += entry.head.bytes
	o.mu.Unlock()
	o.e.progress.fire()
}

// move sets the cursor of a sink that comes back: it has seen nothing of what
// is before.
func (o *outlet) move(to uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since, o.acked, o.saved = to, max(o.acked, to), max(o.saved, to)
	o.done = o.e.spool.files.seen()
}

// run keeps a sink running until ctx ends.
func (o *outlet) run(ctx context.Context) {
	e := o.e
	log := e.cfg.Logger.With("sink", o.sink.Name())
	delay := e.cfg.RestartMin
	for {
		began := e.cfg.Now()
		err := o.attempt(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the sink stopped by itself")
		}
		now := e.cfg.Now()
		if now.Sub(began) > e.cfg.RestartMax {
			delay = e.cfg.RestartMin
		}
		o.mu.Lock()
		o.lastErr = failure{err.Error(), now}
		o.restarts++
		o.mu.Unlock()
		log.LogAttrs(ctx, slog.LevelError, "sink stopped, it will be started again",
			slog.Any("error", err), slog.Duration("in", delay))
		if !o.pause(ctx, delay) {
			return
		}
		delay = min(2*delay, e.cfg.RestartMax)
	}
}

// attempt is one run of the sink.
func (o *outlet) attempt(ctx context.Context) error {
	o.refused.begin()
	o.mu.Lock()
	o.running = true
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		o.running = false
		o.mu.Unlock()
	}()
	return o.sink.Run(ctx, newQueue(o.e, o))
}

// pause waits; a flush that is asked for ends the wait early. It reports
// whether to go on.
func (o *outlet) pause(ctx context.Context, delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	flush := o.e.flush.asked.wait()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-flush:
	}
	return true
}
