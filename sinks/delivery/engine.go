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
	e.certifier = newCertifier(e)
	if err = e.attach(); err == nil {
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
	return c
}

// attach finds each sink's place in the spool.
func (e *Engine) attach() error {
	known, err := e.journal.sinks()
	if err != nil {
		return err
	}
	if first := e.spool.files.first(); len(known) == 0 && first > 1 {
		return fmt.Errorf("%s knows no sink but the spool begins at entry %d: it is not the one kept with this spool: %w",
			e.journal.path, first, ErrCorrupt)
	}
	seen := map[string]bool{}
	for _, sink := range e.cfg.Sinks {
		name := sink.Name()
		if name == "" || seen[name] {
			return fmt.Errorf("two sinks or none are named %q", name)
		}
		seen[name] = true
		row, ok := known[name]
		if err := e.place(name, row, ok, len(known) == 0); err != nil {
			return err
		}
	}
	if known, err = e.journal.sinks(); err != nil {
		return err
	}
	for _, sink := range e.cfg.Sinks {
		o, err := e.newOutlet(sink, known[sink.Name()])
		if err != nil {
			return err
		}
		e.outlets = append(e.outlets, o)
	}
	return nil
}

// place gives a sink that the journal does not know, or that lost its place,
// one in the spool.
func (e *Engine) place(name string, row sinkRow, ok, alone bool) error {
	first, last := e.spool.files.first(), e.spool.Last()
	if ok {
		if row.cursor > last {
			return fmt.Errorf("sink %s acknowledged entry %d but the spool ends at %d: %w", name, row.cursor, last, ErrCorrupt)
		}
		away, err := e.journal.absent(row.id)
		if err != nil {
			return err
		}
		next := row.cursor + 1
		if away != nil && row.cursor >= away.handed {
			next = away.skipped + 1
		}
		if next >= first && e.spool.files.holds(next) {
			return nil
		}
	}
	cursor := last
	var streams map[envelope.Stream]bool
	switch {
	case !ok && alone:
		cursor = 0
	default:
		streams = map[envelope.Stream]bool{}
		for entry, err := range e.spool.Entries(0) {
			if err != nil {
				return err
			}
			streams[entry.head.unit.Stream] = true
		}
	}
	return e.journal.attach(name, cursor, ok, e.cfg.Now().UnixMilli(), e.cfg.WatermarkIdle.Milliseconds(), streams)
}

// newOutlet takes up what the journal knows of a sink.
func (e *Engine) newOutlet(sink sinks.Sink, row sinkRow) (*outlet, error) {
	o := &outlet{
		e: e, sink: sink, id: row.id, since: row.since, acked: row.cursor, saved: row.cursor,
		records: row.records, watermarks: row.watermarks, fell: 1,
	}
	var err error
	if o.away, err = e.journal.absent(o.id); err != nil {
		return nil, err
	}
	var noted bool
	if o.offered, noted, err = e.journal.offered(o.id); err != nil {
		return nil, err
	}
	switch {
	case len(e.cfg.Sinks) == 1:
		// It is never detached; another that is added later finds no note and
		// takes everything for handed out.
		err = e.journal.forgetOffered(o.id)
	case !noted:
		o.offered = e.spool.Last()
		err = e.journal.noteOffered(o.id, o.offered)
	}
	return o, err
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
		if err := e.found(entry); err != nil {
			return err
		}
	}
	return e.certifier.find()
}

// found notes an entry of one sink that is on its way.
func (e *Engine) found(entry *Stored) error {
	h := &entry.head
	o := e.outlet(h.unit.Sink)
	if o == nil || h.seq <= o.acked || o.away != nil && h.seq > o.away.handed {
		return nil
	}
	if h.snapshot {
		o.rebases.set(h.unit.Stream, h.seq)
	}
	if h.gap {
		return e.reports.found(e, entry)
	}
	return nil
}

// Run delivers until ctx ends; then it returns nil. It returns an error when
// the spool cannot be used any more. A sink that stops with an error is
// started again.
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
		if o.absence() == nil {
			_, saved := o.cursor()
			floor = min(floor, saved)
		}
	}
	var keeps []span
	for _, o := range e.outlets {
		away := o.absence()
		if away == nil {
			continue
		}
		if err := o.skip(min(floor, e.spool.Last())); err != nil {
			return err
		}
		if away = o.absence(); away == nil {
			return nil // it is back, and releases by itself
		}
		floor = min(floor, max(away.skipped, away.handed))
		if _, saved := o.cursor(); saved < away.handed {
			keeps = append(keeps, span{saved + 1, away.handed})
		}
	}
	return e.spool.release(floor, keeps...)
}

func (e *Engine) outlet(name string) *outlet {
	for _, o := range e.outlets {
		if o.sink.Name() == name {
			return o
		}
	}
	return nil
}
