package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// Config is what an engine works with.
type Config struct {
	// Spool is where the entries are. The engine closes it not.
	Spool *Spool
	// Sinks are attached, each under its name.
	Sinks []sinks.Sink
	// Dir is where delivery.db is kept: cursors and what was delivered.
	Dir string
	// Logger reports sinks that stop; nil discards.
	Logger *slog.Logger
	// WatermarkIdle is how long a stretch without records waits for its
	// watermark, a minute by default.
	WatermarkIdle time.Duration
	// WatermarkEvery spaces the watermarks of a stream when a sink
	// acknowledges faster; 0 certifies every acknowledgement.
	WatermarkEvery time.Duration
	// RestartMin and RestartMax bound the wait before a sink that stopped is
	// started again, a second and a minute by default.
	RestartMin, RestartMax time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Failed is told when the spool or delivery.db cannot be read or written:
	// nothing is certified or acknowledged then, whatever the sinks do. It is
	// told again while that goes on, from any goroutine, and must not call
	// the engine. Having run out of file descriptors is not told: that passes
	// by itself. Nil is told nothing.
	Failed func(error)
}

// Engine delivers what is in the spool to every sink and certifies it with
// watermarks. Its parts: the spool keeps the entries and their order, each
// outlet is a sink with its queue, the journal keeps what was acknowledged,
// the certifier spools the watermarks.
type Engine struct {
	cfg       Config
	spool     *Spool
	journal   *journal
	outlets   []*outlet
	certifier *certifier
	flush     *flush
	progress  *signal // a cursor moved
	reports   *reports
	spurned   spurned
	removed   *removed
}

// New attaches the sinks to the spool. A sink that is new to a delivery.db
// that knows others, or that comes back after entries left the spool without
// it, begins with the entries spooled from now on; Status tells since when.
// The streams that were there before are behind in it: see Behind.
func New(cfg Config) (*Engine, error) {
	if cfg.Spool == nil || len(cfg.Sinks) == 0 {
		return nil, errors.New("delivery needs a spool and at least one sink")
	}
	e := &Engine{cfg: cfg.withDefaults(), spool: cfg.Spool, flush: new(flush), progress: new(signal), reports: new(reports)}
	var err error
	if e.journal, err = openJournal(cfg.Dir); err != nil {
		return nil, err
	}
	e.journal.failed = e.cfg.Failed
	e.certifier = newCertifier(e)
	e.removed = &removed{e: e}
	if err = (&roster{e}).attach(); err == nil {
		err = e.removed.find()
	}
	if err == nil {
		err = e.recover()
	}
	if err == nil {
		err = e.release()
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.WatermarkIdle <= 0 {
		c.WatermarkIdle = time.Minute
	}
	if c.RestartMin <= 0 {
		c.RestartMin = time.Second
	}
	if c.RestartMax < c.RestartMin {
		c.RestartMax = max(time.Minute, c.RestartMin)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	told := c.Failed
	c.Failed = func(err error) {
		if told != nil && ofDisk(err) {
			told(err)
		}
	}
	return c
}

// recover counts what each sink has of the spool and finds the watermarks
// that were spooled and not yet acknowledged.
func (e *Engine) recover() error {
	for entry, err := range e.spool.Entries(0) {
		if err != nil {
			return err
		}
		for _, o := range e.outlets {
			if entry.head.seq <= o.acked {
				o.done += entry.head.bytes
			}
		}
		if o := e.outlet(entry.head.unit.Sink); o != nil {
			if err := o.found(entry); err != nil {
				return err
			}
		}
	}
	return e.certifier.find()
}

// Run delivers until ctx ends; then it returns nil. It returns an error when
// the spool cannot be used any more; Config.Failed was told before. A sink that
// stops with an error is started again.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for _, o := range e.outlets {
		wg.Go(func() { o.run(ctx) })
	}
	err := e.certifier.run(ctx)
	cancel()
	wg.Wait()
	return err
}

// Close closes delivery.db. Run must have returned.
func (e *Engine) Close() error {
	if err := e.journal.close(); err != nil {
		return fmt.Errorf("close %s: %w", e.journal.path, err)
	}
	return nil
}

// Forget drops what is known of the delivery of streams, in every sink: their
// next records begin with no watermark before them.
func (e *Engine) Forget(ctx context.Context, streams ...envelope.Stream) error {
	return e.journal.forget(ctx, streams)
}

// release lets the spool drop what every attached sink has durably
// acknowledged, but for what detached ones were handed.
func (e *Engine) release() error {
	floor := ^uint64(0)
	for _, o := range e.outlets {
		if o.place.absence() == nil {
			_, saved := o.cursor()
			floor = min(floor, saved)
		}
	}
	var keeps []span
	for _, o := range e.outlets {
		away := o.place.absence()
		if away == nil {
			continue
		}
		if err := o.place.skip(min(floor, e.spool.Last())); err != nil {
			return err
		}
		if away = o.place.absence(); away == nil {
			return nil // it is back, and releases by itself
		}
		floor = min(floor, max(away.skipped, away.handed))
		if _, saved := o.cursor(); saved < away.handed {
			keeps = append(keeps, span{saved + 1, away.handed})
		}
	}
	err := e.spool.release(floor, append(keeps, e.removed.keeps()...)...)
	e.cfg.Failed(err)
	return err
}

func (e *Engine) outlet(name string) *outlet {
	for _, o := range e.outlets {
		if o.sink.Name() == name {
			return o
		}
	}
	return nil
}
