package exporter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"celldexport/exporter"
	"celldexport/internal/celldsim"
	"celldexport/internal/config"
	"celldexport/internal/objstore"
	"celldexport/ltxtail"
	"celldexport/sinks/delivery"
)

// model is a fleet whose nodes, exporters and bucket do what a list of events
// says. Everything that happens is decided by the list, so that a list that
// ends badly can be cut down.
type model struct {
	ctx   context.Context
	dir   string
	clock atomic.Int64
	// skew is what the nodes' clocks are off by, in milliseconds.
	skew  atomic.Int64
	store *objstore.Memory
	fleet *celldsim.Fleet
	hosts []*modelHost
	cells []*modelCell
	truth truth
	// writes counts writes, which differ by seed and number.
	seed, writes uint64
	// rig breaks a promise of every exporter, nil breaks none.
	rig  sabotage
	pace pace
	// lost says that a state directory was lost with what it may have held.
	lost bool
	// log is what the exporters said, trace that and everything that happened
	// between, in its order.
	log, trace lockedBuffer
}

// modelHost is a node and the exporter beside it, which may be down.
type modelHost struct {
	m        *model
	node     *celldsim.Node
	settings *config.Settings
	// store is the bucket as the exporter sees it, with fault and race below.
	store objstore.Store
	fault *objstore.Fault
	race  *racing
	e     *exporter.Exporter
	// ctx is that of its rounds and deliveries, until stop.
	ctx  context.Context
	stop context.CancelFunc
	done chan error
	// skew is what the exporter's clock is off by, in milliseconds.
	skew atomic.Int64
	// copied is an older copy of the state directory, "" for none.
	copied string
	// step is where the exporter fails next, after passing it left times.
	step exporter.Step
	left int
}

// modelCell is a cell: where it is, and who still believes to own it.
type modelCell struct {
	scope, name string
	// owner is the host that own.json names, nil when the cell is free.
	owner *modelHost
	// res is the resident cell, nil while it sleeps.
	res     *celldsim.Cell
	zombies []*celldsim.Cell
	epoch   uint64
	// dirty says that something is written and not captured, crashed that
	// the node of the resident cell was killed.
	dirty, crashed bool
	// resumed says that the epoch's first files are not on the node's disk.
	resumed bool
	// ended is the last txid of an epoch that ended with an eviction.
	ended map[uint64]uint64
}

// lockedBuffer is a log that several exporters write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// wrong ends a run of the model; the run reports it.
type wrong struct{ error }

func (m *model) must(err error) {
	if err != nil {
		panic(wrong{err})
	}
}

// errInjected is the failure of a store or a disk that the model ordered.
var errInjected = errors.New("injected")

const (
	modelHosts = 3
	modelCells = 2
)

func newModel(ctx context.Context, dir string, seed uint64, rig sabotage) (*model, error) {
	m := &model{ctx: ctx, dir: dir, store: objstore.NewMemory(), truth: newTruth(), seed: seed, rig: rig, pace: paceOf(seed)}
	m.clock.Store(1_800_000_000_000)
	r := rand.New(rand.NewPCG(seed, 2))
	layout := celldsim.V03
	if r.IntN(3) > 0 {
		layout = celldsim.V06
	}
	var err error
	m.fleet, err = celldsim.New(ctx, celldsim.Config{
		Bucket: m.store, Script: "shop", Classes: []string{class}, Seed: seed, Layout: layout, TruncatePages: 40 * r.IntN(3),
		Now: func() time.Time { return time.UnixMilli(m.clock.Add(10) + m.skew.Load()) },
	})
	if err != nil {
		return nil, err
	}
	for i := range modelHosts {
		if err := m.addHost(fmt.Sprintf("node-%c", 'a'+i)); err != nil {
			return nil, err
		}
	}
	for i := range modelCells {
		name := fmt.Sprint("cell", i)
		scope := m.fleet.CellID(class, name)
		m.cells = append(m.cells, &modelCell{
			scope: scope, name: name, ended: make(map[uint64]uint64),
		})
	}
	return m, nil
}

func (m *model) addHost(name string) error {
	watch := filepath.Join(m.dir, name)
	if err := os.MkdirAll(watch, 0o755); err != nil {
		return err
	}
	node, err := m.fleet.Node(m.ctx, name, watch)
	if err != nil {
		return err
	}
	s := config.Default()
	s.Watch, s.State, s.Node, s.Bucket = watch, filepath.Join(m.dir, "state-"+name), name, "s3://fleet"
	s.Export.Enabled = true
	s.Export.Flush = m.pace.flush
	var store objstore.Store = m.store
	if m.rig != nil {
		store = m.rig(name, store)
	}
	race := &racing{Store: store}
	fault := objstore.NewFault(race)
	m.hosts = append(m.hosts, &modelHost{m: m, node: node, settings: s, race: race, fault: fault, store: traced{slowStore{fault, m.pace.call}, name, &m.trace}})
	return nil
}

// sabotage puts something between a node's exporter and the bucket.
type sabotage func(node string, store objstore.Store) objstore.Store

// close ends all exporters and databases.
func (m *model) close() error {
	var errs []error
	for _, h := range m.hosts {
		h.halt()
	}
	errs = append(errs, m.fleet.Close())
	return errors.Join(errs...)
}

// start opens the exporter of a host that has none running. It stays down
// when the model's faults keep it from starting.
func (h *modelHost) start() {
	if h.e != nil {
		return
	}
	e, err := exporter.New(h.m.ctx, exporter.Options{
		Settings: h.settings, Logger: slog.New(slog.NewTextHandler(io.MultiWriter(&h.m.log, &h.m.trace), &slog.HandlerOptions{ReplaceAttr: noTime})).With("node", h.settings.Node),
		Fleet: h.store, Export: h.store, FS: alwaysNew{now: &h.m.clock}, Interval: time.Hour, Waits: exporter.Waits{Patience: h.m.pace.patience}, Step: h.passes,
		Spool: slowDisk{delivery.DiskFS(), h.m.pace.sync},
		Now:   func() time.Time { return time.UnixMilli(h.m.clock.Add(1) + h.skew.Load()) },
	})
	if errors.Is(err, errInjected) {
		return
	}
	h.m.must(err)
	ctx, stop := context.WithCancel(h.m.ctx)
	h.e, h.ctx, h.stop, h.done = e, ctx, stop, make(chan error, 1)
	go func() { h.done <- e.Deliver(ctx) }()
	fmt.Fprintf(&h.m.trace, "%s: started\n", h.settings.Node)
}

// noTime keeps logs of equal runs equal.
func noTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// halt drops the exporter as it is: nothing is finished.
func (h *modelHost) halt() {
	if h.e == nil {
		return
	}
	h.stop()
	<-h.done
	h.gather()
	_ = h.e.Close() // of a process that is gone
	h.e, h.step = nil, ""
	fmt.Fprintf(&h.m.trace, "%s: halted\n", h.settings.Node)
}

// passes is the exporter's Options.Step.
func (h *modelHost) passes(s exporter.Step) error {
	if s != h.step {
		return nil
	}
	if h.left--; h.left >= 0 {
		return nil
	}
	return errInjected
}

// round lets the exporter work once. One whose disk failed is dead.
func (h *modelHost) round() {
	if h.e == nil {
		return
	}
	err := h.e.Walk()
	if err == nil {
		err = h.e.Round(h.ctx)
	}
	if h.race.armed() {
		h.gather()
	}
	h.m.must(h.race.over())
	if err != nil && !errors.Is(err, errInjected) {
		h.m.must(fmt.Errorf("round of %s: %w", h.settings.Node, err))
	}
	if err != nil && h.step != "" {
		h.halt()
	}
}

// gather waits for the streams that rounds left behind.
func (h *modelHost) gather() {
	if h.e != nil && !h.e.Gather(patience) {
		h.m.must(fmt.Errorf("%s: a stream that was left behind does not end", h.settings.Node))
	}
}

// flush has the sinks send and certify what is spooled.
func (h *modelHost) flush() {
	if h.e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(h.m.ctx, patience)
	defer cancel()
	if err := h.e.Flush(ctx); err != nil {
		h.m.must(fmt.Errorf("flush of %s: %w", h.settings.Node, err))
	}
}

// alwaysNew is the node's directory with a time that is never the same twice:
// it is read again at every walk, as the clocks of model and disk have nothing
// to do with each other.
type alwaysNew struct {
	ltxtail.OS
	now *atomic.Int64
}

func (f alwaysNew) Stat(name string) (fs.FileInfo, error) {
	info, err := f.OS.Stat(name)
	if err != nil {
		return nil, err
	}
	return newInfo{info, time.UnixMilli(f.now.Add(1))}, nil
}

type newInfo struct {
	fs.FileInfo
	modified time.Time
}

func (i newInfo) ModTime() time.Time { return i.modified }
