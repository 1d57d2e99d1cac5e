// Package exporter drives a node's export: it follows the node's directory,
// has every pending transaction proven against the fleet bucket, turns units
// into records and hands them to the sinks through the spool.
//
// Work is done in rounds. A round takes the cells that changed, proves them in
// parallel, exports what is proven one after the other, and commits: spool,
// then shadows, then the state database. A stream whose call to the bucket or
// the node's disk does not come back is left behind, and the others go on. One
// stream's trouble is its own state; only a failure of the state directory
// stops the export.
package exporter

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"celldexport/diffpage/shadow"
	"celldexport/exporter/state"
	"celldexport/internal/config"
	"celldexport/internal/objstore"
	"celldexport/ltxtail"
	"celldexport/ltxtail/proof"
	"celldexport/sinks"
	"celldexport/sinks/delivery"
)

// Options set an Exporter up. Settings and Logger are required.
type Options struct {
	Settings *config.Settings
	Logger   *slog.Logger
	// Registry takes the export metrics; nil keeps them unpublished.
	Registry prometheus.Registerer
	// Fleet and Export replace the stores that the settings name, for tests
	// and the demo. They are used as they are, without retries.
	Fleet, Export objstore.Store
	// More are sinks beside those that the settings name.
	More []sinks.Sink
	// FS and Watch replace the view of the node's directory; nil is the
	// operating system's.
	FS    ltxtail.FS
	Watch func() (ltxtail.Watcher, error)
	// Interval replaces the interval of rounds, which follows flush_ms.
	Interval time.Duration
	Waits
	// Spool replaces the file system below the spool; nil is the operating
	// system's. Step is called at every step of a commit: an error it returns
	// is one of the state directory.
	Spool delivery.FS
	Step  func(Step) error
	// Shadow replaces every shadow file that is opened, for tests; its error
	// is one of opening it.
	Shadow func(path string, f shadow.File) (shadow.File, error)
	// Now and Random replace the clock and the source of random bytes.
	Now    func() time.Time
	Random io.Reader
}

// Waits replace how long the exporter waits for something; zero values are the
// defaults.
type Waits struct {
	// Patience is how long a round waits for one stream that waits for the
	// bucket or the node's disk, instead of a second; negative is for ever.
	Patience time.Duration
	// Shutdown is for the last round and delivery, instead of 20 seconds.
	Shutdown time.Duration
	// Sweep is between two sweeps of old export objects, instead of an hour.
	Sweep time.Duration
}

// Exporter exports one node's cells. Run or Once is called once.
type Exporter struct {
	*kit
	delivery  *delivery.Engine
	sinks     []sinks.Sink
	retention *retention
	rounds    *rounds
	refusals  *refusals
	catchUps  *catchUps
	journal   *journal
	shadows   *shadows
	report    report
	every     time.Duration
	shutdown  time.Duration
	// stuck ends the reading that Run left behind and that may still use all of
	// this; nil when it did not.
	stuck <-chan error
}

// kit is what every part of the export works with.
type kit struct {
	settings *config.Settings
	log      *slog.Logger
	now      func() time.Time
	metrics  *metrics
	step     func(Step) error
	pulse    *pulse
	// wrap is Options.Shadow.
	wrap func(string, shadow.File) (shadow.File, error)
	// fleet is the fleet bucket, tail the node's directory.
	fleet objstore.Store
	tail  *ltxtail.Tail
	// dir and spool are our own state.
	dir   *state.Dir
	spool *delivery.Spool
	// makeRoom lets the spool go on without a sink that alone holds it up.
	makeRoom func(context.Context) (bool, error)
}

// New opens the state directory, claims the node, and takes up what the spool
// holds. The errors of a second exporter and of a newer state directory wrap
// state.ErrInUse and state.ErrNewer.
func New(ctx context.Context, o Options) (*Exporter, error) {
	e, err := build(ctx, o)
	if errors.Is(err, errBehind) {
		// The directory is not what the bucket knows of us: it counts as lost.
		if err = forget(ctx, o.Settings.State); err == nil {
			e, err = build(ctx, o)
		}
	}
	return e, err
}

func build(ctx context.Context, o Options) (*Exporter, error) {
	e := &Exporter{kit: &kit{settings: o.Settings, log: o.Logger, now: o.Now, metrics: newMetrics(o.Registry), step: o.Step, wrap: o.Shadow}}
	e.shutdown = cmp.Or(o.Shutdown, ShutdownTime)
	e.every = cmp.Or(o.Interval, pace(o.Settings))
	if e.now == nil {
		e.now = time.Now
	}
	e.pulse = &pulse{now: e.now}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if err := e.open(ctx, o); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if o.Registry != nil {
		registerSinks(e, o.Registry)
	}
	return e, nil
}

func (e *Exporter) open(ctx context.Context, o Options) error {
	export, err := e.openStores(ctx, o)
	if err != nil {
		return err
	}
	if e.dir, err = state.Open(ctx, o.Settings.State); err != nil {
		return err
	}
	n, lost, err := claimNode(ctx, e.fleet, export, e.dir, o.Settings.Node, o.Random, e.now)
	if err != nil {
		return err
	}
	if lost {
		e.log.Warn("the state directory is not the one that exported for this node last: every stream re-bases, and epochs begun before are not certified any more", "state", o.Settings.State)
	}
	e.spool, err = delivery.OpenSpool(e.dir.Spool(), delivery.Options{
		SegmentBytes: segmentBytes(o.Settings.Export.SpoolBytes), MemoryBudget: o.Settings.Export.MaxTxBytes, Now: e.now,
		FS: pulseFS{cmp.Or(o.Spool, delivery.DiskFS()), e.pulse},
	})
	if err != nil {
		return fmt.Errorf("open the spool: %w", err)
	}
	watch := o.Watch
	if watch == nil {
		watch = ltxtail.Inotify
	}
	e.tail = ltxtail.New(ltxtail.Config{Root: o.Settings.Watch, FS: o.FS, Watch: watch, Log: e.log, Now: e.now})
	if err := e.openDelivery(export, o.More); err != nil {
		return err
	}
	if err := e.compareObjects(ctx, export); err != nil {
		return err
	}
	if err := e.assemble(ctx, n, o); err != nil {
		return err
	}
	e.retention.exports, e.retention.every = e.rounds.exports, o.Sweep
	if err := takeUp(ctx, e.kit, e.shadows); err != nil {
		return err
	}
	return e.rounds.lookAgain(ctx)
}

// assemble joins the parts: each knows those it calls.
func (e *Exporter) assemble(ctx context.Context, n *node, o Options) error {
	k := e.kit
	prover := &proof.Prover{Store: k.fleet, Node: k.settings.Node, Open: k.tail.Open}
	ls := &ledgers{kit: k, node: n, random: o.Random}
	fs := &shadows{kit: k, opened: opened{limit: openLimit()}, departed: true}
	jn := &journal{kit: k, shadows: fs}
	en := &entries{kit: k, journal: jn}
	ts := newTurns(k, o.Patience, jn.commit)
	us := &units{kit: k, turns: ts, ledgers: ls, shadows: fs, journal: jn, entries: en}
	ag := &agenda{kit: k, changed: make(map[string]struct{}), waiting: make(map[string]*stream)}
	bf, err := openBefore(ctx, k, n.before)
	if err != nil {
		return err
	}
	bf.ledgers, bf.agenda = ls, ag
	cl := &closes{kit: k, ledgers: ls, journal: jn, entries: en}
	bs := &bases{
		kit: k, prover: prover, ledgers: ls, shadows: fs, journal: jn, entries: en, units: us, closes: cl, agenda: ag, before: bf,
		scripts: &scripts{store: k.fleet, fixed: k.settings.Script, now: k.now},
	}
	rs := &residencies{kit: k, units: us, bases: bs, closes: cl, agenda: ag, entries: en, journal: jn, before: bf}
	e.shadows, e.journal = fs, jn
	e.rounds = &rounds{
		kit: k, turns: ts, prover: prover, node: n, residencies: rs, agenda: ag, before: bf, journal: jn, shadows: fs,
		streams: make(map[string]*stream), idle: newIdlers(),
	}
	e.refusals = &refusals{kit: k, delivery: e.delivery, rounds: e.rounds, journal: jn}
	e.catchUps = &catchUps{kit: k, delivery: e.delivery, rounds: e.rounds, bases: bs}
	return nil
}

// openStores opens the fleet and the export bucket with retries and counts.
func (e *Exporter) openStores(ctx context.Context, o Options) (objstore.Store, error) {
	open := func(store objstore.Store, url, name string) (objstore.Store, error) {
		if store == nil {
			var err error
			store, err = objstore.Open(ctx, objstore.Config{URL: url, Endpoint: o.Settings.Endpoint, Region: o.Settings.Region})
			if err != nil {
				return nil, fmt.Errorf("open the %s bucket: %w", name, err)
			}
			store = objstore.WithRetry(store, objstore.DefaultRetry())
		}
		return objstore.Counting(store, e.metrics.request(name)), nil
	}
	var err error
	if e.fleet, err = open(o.Fleet, o.Settings.Bucket, "fleet"); err != nil {
		return nil, err
	}
	e.fleet = outsideStore{e.pulse.store(e.fleet)}
	if o.Export == nil && o.Fleet != nil && o.Settings.Export.Bucket == "" {
		o.Export = o.Fleet
	}
	return open(o.Export, cmp.Or(o.Settings.Export.Bucket, o.Settings.Bucket), "export")
}

// segmentBytes keeps a spool segment well below the spool's bound, so that
// disk comes back while sinks catch up.
func segmentBytes(spool int64) int64 { return min(64<<20, max(1<<20, spool/8)) }

// fileLimit is how many files the process may have open, or a guess that does
// no harm.
func fileLimit() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 64
	}
	return int(min(lim.Cur, 1<<20))
}

// openLimit is how many shadows may be open: a quarter of the file limit, as
// sockets, the spool and the node's files take some too.
func openLimit() int { return min(max(fileLimit()/4, 8), 256) }

// Close releases everything. What is not delivered goes out at the next start.
// After a Run that left a goroutine behind in a disk that does not answer it
// releases nothing: the process is to end, and the next start takes the state
// up as after a kill.
func (e *Exporter) Close() error {
	if e.stuck != nil || e.rounds != nil && !e.rounds.turns.empty() {
		return nil
	}
	var errs []error
	if e.rounds != nil {
		errs = append(errs, e.rounds.release())
	}
	if e.delivery != nil {
		errs = append(errs, e.delivery.Close())
	}
	if e.spool != nil {
		errs = append(errs, e.spool.Close())
	}
	if e.dir != nil {
		errs = append(errs, e.dir.Close())
	}
	return errors.Join(errs...)
}
