package exporter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/celldsim"
	"celldexport/internal/chain"
	"celldexport/internal/config"
	"celldexport/internal/objstore"
	"celldexport/ltxtail"
)

// world is a simulated fleet whose nodes have real exporters beside them.
type world struct {
	t *testing.T
	// dir has the directories of all nodes; it goes after their exporters.
	dir      string
	store    objstore.Store
	fault    *objstore.Fault
	fleet    *celldsim.Fleet
	nodes    map[string]*host
	survived consumer.Survived
	clock    atomic.Int64
	// log is what all exporters said.
	log lockedBuffer
}

// host is one node and what its exporter runs with.
type host struct {
	w        *world
	node     *celldsim.Node
	settings *config.Settings
	// fs is how the exporter sees the node's directory, nil as it is.
	fs ltxtail.FS
	// rig changes what the exporter is made with.
	rig func(*exporter.Options)
	// read counts the bytes that the exporter read from the fleet bucket.
	read atomic.Int64
	// count sees every request to the fleet bucket.
	count func(op, outcome string, n int64)
	e     *exporter.Exporter
	stop  context.CancelFunc
	done  chan error
}

const class = "Cart"

func newWorld(t *testing.T, layout celldsim.Layout) *world {
	return newWorldOn(t, objstore.NewMemory(), layout)
}

// newWorldOn is a world whose fleet bucket is a store of another kind.
func newWorldOn(t *testing.T, store objstore.Store, layout celldsim.Layout) *world {
	w := &world{t: t, dir: quickDir(t), store: store, nodes: make(map[string]*host), survived: make(consumer.Survived)}
	w.fault = objstore.NewFault(store)
	w.clock.Store(1_800_000_000_000)
	var err error
	w.fleet, err = celldsim.New(t.Context(), celldsim.Config{
		Bucket: w.store, Script: "shop", Classes: []string{class, "Order"}, Seed: 7, Layout: layout,
		// Every reading of the clock is later than the one before.
		Now: func() time.Time { return time.UnixMilli(w.clock.Add(10)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, h := range w.nodes {
			h.halt()
		}
		if err := w.fleet.Close(); err != nil {
			t.Error(err)
		}
		w.lastWords()
	})
	return w
}

// host adds a node with its own directories.
func (w *world) host(name string) *host {
	w.t.Helper()
	dir := filepath.Join(w.dir, name)
	watch := filepath.Join(dir, "watch")
	w.must(os.MkdirAll(watch, 0o755))
	node, err := w.fleet.Node(w.t.Context(), name, watch)
	w.must(err)
	s := config.Default()
	s.Watch, s.State, s.Node, s.Bucket = watch, filepath.Join(dir, "state"), name, "s3://fleet"
	s.Export.Enabled = true
	s.Export.Flush = 30 * time.Millisecond
	h := &host{w: w, node: node, settings: s}
	w.nodes[name] = h
	return h
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// open starts an exporter over the host's state.
func (h *host) open() (*exporter.Exporter, error) {
	counted := objstore.Counting(h.w.fault, func(op, outcome string, n int64) {
		if op == objstore.OpGet {
			h.read.Add(n)
		}
		if h.count != nil {
			h.count(op, outcome, n)
		}
	})
	out := io.Writer(&h.w.log)
	if testing.Verbose() {
		out = io.MultiWriter(out, testWriter{h.w.t})
	}
	o := exporter.Options{
		Settings: h.settings, Logger: slog.New(slog.NewTextHandler(out, nil)).With("node", h.settings.Node),
		Fleet: counted, Export: h.w.fault, FS: h.fs, Interval: 10 * time.Millisecond, Waits: exporter.Waits{Patience: patience},
	}
	if h.rig != nil {
		h.rig(&o)
	}
	return exporter.New(h.w.t.Context(), o)
}

// testWriter sends the exporters' log to the test's.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// once runs the exporter over what is there, in a process life of its own.
func (h *host) once() []exporter.Pending {
	h.w.t.Helper()
	e, err := h.open()
	h.w.must(err)
	left, err := e.Once(h.w.t.Context(), exportTime)
	if cerr := e.Close(); err == nil {
		err = cerr
	}
	h.w.must(err)
	return left
}

// onceUntil is once over something that cannot all be done: it runs until the
// exporter has said something after a round, as if its time were over then.
func (h *host) onceUntil(says func(exporter.Summary) bool) []exporter.Pending {
	h.w.t.Helper()
	var ahead atomic.Int64
	rig := h.rig
	h.rig = func(o *exporter.Options) {
		if rig != nil {
			rig(o)
		}
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}
	e, err := h.open()
	h.rig = rig
	h.w.must(err)
	ended, looked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looked)
		for !says(e.Status()) {
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
		ahead.Store(int64(exportTime + time.Minute))
	}()
	left, err := e.Once(h.w.t.Context(), exportTime)
	close(ended)
	<-looked
	h.w.must(errors.Join(err, e.Close()))
	return left
}

// briefly is once for what will not be done, over so many rounds.
func (h *host) briefly(rounds uint64) []exporter.Pending {
	h.w.t.Helper()
	return h.onceUntil(func(s exporter.Summary) bool { return s.Rounds >= rounds })
}

// run starts the exporter; sync waits for it, halt ends it.
func (h *host) run() {
	h.w.t.Helper()
	e, err := h.open()
	h.w.must(err)
	ctx, stop := context.WithCancel(h.w.t.Context())
	h.e, h.stop, h.done = e, stop, make(chan error, 1)
	go func() { h.done <- e.Run(ctx) }()
}

func (h *host) halt() {
	if h.e == nil {
		return
	}
	begin := time.Now()
	defer func() { h.w.t.Logf("%s stopped after %v", h.settings.Node, time.Since(begin)) }()
	h.stop()
	select {
	case err := <-h.done:
		if err != nil {
			h.w.t.Errorf("exporter of %s: %v", h.settings.Node, err)
		}
	case <-time.After(2 * patience): // some tests give a stop all of patience
		defer func() { h.e = nil }() // nothing else waits for it
		h.w.stalled("the exporter of %s does not stop", h.settings.Node)
	}
	if err := h.e.Close(); err != nil {
		h.w.t.Error(err)
	}
	h.e = nil
}

// dropped stops an exporter whose state directory fails, and forgets it: what
// its end and its close say of that is no matter.
func (h *host) dropped() error {
	h.w.t.Helper()
	h.stop()
	err := await(h.w.t, "the end of the exporter of "+h.settings.Node, h.done)
	_ = h.e.Close()
	h.e, h.rig = nil, nil
	return err
}

// sync waits until the running exporter has nothing left to do for six rounds
// that were looked at one after the other. A look between two rounds shows
// nothing new and counts neither way: on a slow machine there are many.
//
// Nothing forces the exporter to have heard of the last write within some
// rounds. So its directory is walked in between: what is there by then is done
// at the end.
func (h *host) sync() {
	h.w.t.Helper()
	begin := time.Now()
	defer func() { h.w.t.Logf("%s at rest after %v", h.settings.Node, time.Since(begin)) }()
	quiet, walked, last := 0, false, exporter.Summary{}
	h.w.until("the exporter of "+h.settings.Node+" comes to rest", func() bool {
		s := h.e.Status()
		busy := s.Watch.Pending
		for st, n := range s.Streams {
			if st != exporter.StateExported && st != exporter.StateEnded && st != exporter.StateFenced {
				busy += n
			}
		}
		switch {
		case busy > 0:
			quiet = 0
		case s.Rounds > last.Rounds:
			if quiet++; quiet == 2 && !walked {
				walked = true
				_ = h.e.Walk() // what cannot be read is the exporter's to say
			}
		}
		last = s
		return quiet > 5
	})
}

// activate wakes or creates a cell on a node.
func (h *host) activate(name string) *celldsim.Cell {
	h.w.t.Helper()
	c, err := h.node.Activate(h.w.t.Context(), h.w.fleet.CellID(class, name), name)
	h.w.must(err)
	return c
}

// write runs statements, captures each as a transaction of its own, uploads.
func (w *world) write(c *celldsim.Cell, statements ...string) {
	w.t.Helper()
	for _, sql := range statements {
		w.must(c.Exec(sql))
		_, err := c.Capture()
		w.must(err)
	}
	w.must(c.Upload(w.t.Context()))
}

// takeOver moves a cell to another node and notes what survives of its epoch.
func (w *world) takeOver(to *host, c *celldsim.Cell, name string) *celldsim.Cell {
	w.t.Helper()
	files, err := chain.List(w.t.Context(), w.store, c.Scope())
	w.must(err)
	head, ok := chain.Derive(files)
	if !ok {
		w.t.Fatalf("%s has no head", c.Scope())
	}
	w.survived[c.Scope()] = map[uint64]uint64{head.Epoch: head.TXID}
	next, err := to.node.TakeOver(w.t.Context(), c.Scope(), name)
	w.must(err)
	return next
}

// consumer loads everything exported.
func (w *world) consumer() *consumer.Consumer {
	w.t.Helper()
	c, err := consumer.Load(w.t.Context(), w.store)
	w.must(err)
	return c
}

// equal holds the consumer against the cells, certified to their heads, and
// against lost histories.
func (w *world) equal(cells ...*celldsim.Cell) *consumer.Consumer {
	w.t.Helper()
	c := w.same(cells...)
	for _, cell := range cells {
		for _, d := range c.Certified(consumer.SourceOf(cell)) {
			w.t.Error(d)
		}
	}
	return c
}

// same is equal without the certificates.
func (w *world) same(cells ...*celldsim.Cell) *consumer.Consumer {
	w.t.Helper()
	c := w.consumer()
	for _, cell := range cells {
		diffs, err := c.Compare(w.t.Context(), consumer.SourceOf(cell))
		w.must(err)
		for _, d := range diffs {
			w.t.Error(d)
		}
	}
	for _, d := range c.Phantoms(w.survived) {
		w.t.Error(d)
	}
	return c
}

// story spells the records of a cell's epoch in order of position, without
// watermarks and duplicates: "link fresh; schema t/1; snapshot t/1 0; ...".
func story(c *consumer.Consumer, scope string, epoch uint64) string {
	seen := make(map[string]bool)
	var records []*envelope.Record
	for _, r := range c.Records {
		if r.Stream.Cell == scope && r.Position.Epoch == epoch && r.Body.Kind() != envelope.KindWatermark {
			records = append(records, r)
		}
	}
	slices.SortStableFunc(records, func(a, b *envelope.Record) int { return a.Position.Compare(b.Position) })
	var parts []string
	for _, r := range records {
		s := fmt.Sprintf("%d %s", r.Position.TXID, spellBody(r.Body))
		if !seen[s] {
			seen[s] = true
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, "; ")
}

func spellBody(b envelope.Body) string {
	switch b := b.(type) {
	case *envelope.Link:
		prev := "none"
		if b.PrevEpoch != nil && b.PrevTXID != nil {
			prev = fmt.Sprintf("e%d:%d", *b.PrevEpoch, *b.PrevTXID)
		}
		return fmt.Sprintf("link %s from %d prev %s", b.Mode, b.StartTXID, prev)
	case *envelope.Schema:
		if b.Dropped {
			return fmt.Sprintf("drop %s/%d", b.Table, b.Generation)
		}
		return fmt.Sprintf("schema %s/%d", b.Table, b.Generation)
	case *envelope.SnapshotRows:
		return fmt.Sprintf("snapshot %s/%d %d", b.Table, b.Generation, len(b.Changes))
	case *envelope.SnapshotEnd:
		return fmt.Sprintf("end %s %d", b.Scope, b.Records)
	case *envelope.Rows:
		ops := ""
		for _, c := range b.Changes {
			ops += string(c.Op)
		}
		return fmt.Sprintf("rows %s/%d %s", b.Table, b.Generation, ops)
	}
	return string(b.Kind())
}

// exportTime bounds one run over everything present. A run ends as soon as it
// is done.
const exportTime = patience

func tableOf(class, name string) config.Table { return config.Table{Class: class, Name: name} }
