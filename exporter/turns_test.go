package exporter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/ledger"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
	"celldexport/ltxtail"
)

// gate holds up what comes to it from when it is shut until it is opened.
type gate struct {
	shut   atomic.Bool
	met    atomic.Int64 // what came to it while it was shut
	once   sync.Once
	opened chan struct{}
}

func newGate(t *testing.T) *gate {
	g := &gate{opened: make(chan struct{})}
	t.Cleanup(g.open)
	return g
}

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

func (g *gate) pass(ctx context.Context) error {
	if !g.shut.Load() {
		return nil
	}
	g.met.Add(1)
	select {
	case <-g.opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gatedDisk is a node's disk with files that a gate holds up when they are
// opened: not even the end of a context ends that.
type gatedDisk struct {
	ltxtail.OS
	gate  *gate
	holds func(path string) bool
}

func (d gatedDisk) Open(name string) (ltxtail.ReadFile, error) {
	if d.holds(name) {
		_ = d.gate.pass(context.Background()) // which never ends
	}
	return d.OS.Open(name)
}

// has waits until the consumer holds what the cells do.
func (w *world) has(cells ...*celldsim.Cell) {
	w.t.Helper()
	w.until("the consumer has what the cells have", func() bool {
		c := w.consumer()
		for _, cell := range cells {
			if diffs, err := c.Compare(w.t.Context(), consumer.SourceOf(cell)); err != nil || len(diffs) > 0 {
				return false
			}
		}
		return true
	})
}

// A call of one stream that does not come back, whichever it is, holds up
// nobody else. The stream says what it waits for and since when, and goes on
// once the call comes back.
func TestNobodyIsHeldUp(t *testing.T) {
	t.Parallel()
	const next = 4 // the first transaction of the cell that meets the gate
	for _, tt := range []struct {
		name, op string
		key      func(c *celldsim.Cell) string
		// says is in the reason of the stream, objects has the bucket alone
		// hold its next unit.
		says    string
		objects bool
	}{
		{"own.json", objstore.OpGet, func(c *celldsim.Cell) string { return celld.OwnKey(c.Scope()) }, "has not answered yet", false},
		{"the probe", objstore.OpGet, func(c *celldsim.Cell) string { return celld.LTXKey(c.Scope(), c.Epoch(), 0, next, next) }, "has not answered yet", false},
		{"the reading of the ledger", objstore.OpGet, func(c *celldsim.Cell) string { return ledger.Key(c.Scope(), "") }, "get exportd/ledger/", false},
		{"the writing of the ledger", objstore.OpPut, func(c *celldsim.Cell) string { return ledger.Key(c.Scope(), "") }, "put exportd/ledger/", false},
		{"the object of a unit", objstore.OpGet, func(c *celldsim.Cell) string { return celld.LTXKey(c.Scope(), c.Epoch(), 0, next, next) }, "get cells/", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, celldsim.V06)
			a := w.host("node-a")
			var ahead atomic.Int64
			a.rig = func(o *exporter.Options) {
				o.Patience = 50 * time.Millisecond
				o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			}
			held, two, three := a.activate("one"), a.activate("two"), a.activate("three")
			for _, c := range []*celldsim.Cell{held, two, three} {
				w.write(c, createItems, insertTwo)
			}
			if held.TXID() != next-1 {
				t.Fatalf("the cell is at txid %d", held.TXID())
			}
			a.run()
			a.sync()
			g, key := newGate(t), tt.key(held)
			w.fault.Add(objstore.Rule{Op: tt.op, Key: func(k string) bool { return k == key }, Wait: func(ctx context.Context, _, _ string) error { return g.pass(ctx) }})
			g.shut.Store(true)
			if tt.objects {
				a.halt()
			}
			// Rows and tables change, so that every kind of call is made.
			w.write(held, `INSERT INTO items VALUES('c',3)`, `CREATE TABLE more(x)`, `INSERT INTO more VALUES(1)`)
			if tt.objects {
				w.must(os.Remove(filepath.Join(held.LTXDir(), ltxfile.FileName(next, next))))
				a.run()
			}
			s := a.status("the stream is left behind", func(s exporter.Summary) bool {
				return s.Streams[exporter.StatePending] == 1 && strings.Contains(s.Trouble[0].Status.Reason, tt.says)
			})
			left := s.Trouble[0].Status.Since
			ahead.Store(int64(2 * time.Minute))
			s = a.status("it takes too long", func(s exporter.Summary) bool { return s.Streams[exporter.StateWaiting] == 1 })
			if tr := s.Trouble[0]; tr.Cell != held.Scope() || !strings.Contains(tr.Status.Reason, tt.says) || !tr.Status.Since.Equal(left) || !s.Oldest[exporter.StateWaiting].Equal(left) {
				t.Errorf("left behind at %v, the trouble: %+v", left, s.Trouble)
			}
			for i := range 3 {
				w.write(two, fmt.Sprintf(`INSERT INTO items VALUES('n%d',9)`, i))
				w.write(three, fmt.Sprintf(`INSERT INTO items VALUES('n%d',9)`, i))
				w.has(two, three)
			}
			if got := a.e.Status().Streams[exporter.StateWaiting]; got != 1 {
				t.Errorf("%d streams wait", got)
			}
			w.write(held, `INSERT INTO items VALUES('d',4)`)
			g.open()
			a.sync()
			a.settled()
			a.halt()
			w.equal(held, two, three)
		})
	}
}

// A file of the node's disk that does not answer holds up nobody but its
// stream, and not the stop either: what Run leaves behind is told, and goes out
// at the next start.
func TestSilentFileHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	held, two := a.activate("one"), a.activate("two")
	w.write(held, createItems, insertTwo)
	w.write(two, createItems, insertTwo)
	g := newGate(t)
	a.fs = gatedDisk{gate: g, holds: func(path string) bool { return strings.HasPrefix(path, held.LTXDir()) }}
	a.rig = func(o *exporter.Options) { o.Patience, o.Shutdown = 50*time.Millisecond, 4*time.Second }
	a.run()
	a.sync()
	g.shut.Store(true)
	w.write(held, `INSERT INTO items VALUES('c',3)`)
	a.status("the stream is left behind", func(s exporter.Summary) bool { return s.Streams[exporter.StatePending] == 1 && a.e.Behind() == 1 })
	w.write(two, `INSERT INTO items VALUES('n',9)`)
	w.has(two)
	said := w.said()
	e := a.e
	a.haltWithin(patience / 2)
	w.tells(said(), "a file of the watch directory does not answer")
	w.tells(said(), "stream is left", held.Scope())
	if !e.Stuck() {
		t.Fatal("Run left nothing behind")
	}
	g.open()
	w.must(e.Unstick())
	a.run()
	a.sync()
	a.halt()
	w.equal(held, two)
}

// More streams than may be left behind at once do not stop the others for
// longer than it takes until one of them comes back.
func TestManyAreLeftBehind(t *testing.T) {
	t.Parallel()
	const cells = 70
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	var all []*celldsim.Cell
	for i := range cells {
		c := a.activate(fmt.Sprint("cell", i))
		w.write(c, createItems)
		all = append(all, c)
	}
	free := a.activate("free")
	w.write(free, createItems)
	g := newGate(t)
	w.fault.Add(objstore.Rule{Op: objstore.OpGet, Key: func(k string) bool {
		return strings.HasSuffix(k, "/own.json") && k != celld.OwnKey(free.Scope())
	}, Wait: func(ctx context.Context, _, _ string) error { return g.pass(ctx) }})
	g.shut.Store(true)
	a.rig = func(o *exporter.Options) { o.Patience = time.Millisecond }
	a.run()
	w.until("the rounds wait", func() bool { return a.e.Behind() == 64 })
	g.open()
	a.sync()
	a.settled()
	a.halt()
	w.equal(append(all, free)...)
}

// A failure of our own state that one stream meets, left behind, keeps what
// another has done from being made durable: a mark on the spool would pass over
// what failed.
func TestNothingFollowsAFailureOfOurState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	one, two := a.activate("one"), a.activate("two")
	cells := []*celldsim.Cell{one, two}
	gates := []*gate{newGate(t), newGate(t)}
	for i, c := range cells {
		w.write(c, createItems, insertTwo)
		w.fault.Add(objstore.Rule{Op: objstore.OpGet, Key: func(k string) bool { return k == celld.OwnKey(c.Scope()) },
			Wait: func(ctx context.Context, _, _ string) error { return gates[i].pass(ctx) }})
	}
	var hasty, failing atomic.Bool
	var ahead atomic.Int64
	a.rig = func(o *exporter.Options) {
		o.Patience = time.Millisecond
		o.Now = func() time.Time {
			if hasty.Load() { // every commit is due for a checkpoint
				ahead.Add(int64(3 * time.Second))
			}
			return time.Now().Add(time.Duration(ahead.Load()))
		}
		o.Step = func(s exporter.Step) error {
			if s == exporter.StepDocuments && failing.CompareAndSwap(true, false) {
				return errors.New("no space left on device")
			}
			return nil
		}
	}
	a.run()
	a.sync()
	for i, c := range cells {
		gates[i].shut.Store(true)
		w.write(c, `INSERT INTO items VALUES('c',3)`)
	}
	w.until("both are left behind", func() bool { return a.e.Behind() == 2 })
	failing.Store(true)
	hasty.Store(true)
	gates[0].open()
	w.until("the failure is told", func() bool { return a.e.Status().DeliveryFailed })
	gates[1].open()
	w.until("nobody is behind", func() bool { return a.e.Behind() == 0 })
	hasty.Store(false)
	if failing.Load() {
		t.Fatal("nothing failed")
	}
	a.halt() // which makes nothing durable either
	for _, c := range cells {
		w.write(c, `INSERT INTO items VALUES('d',4)`)
	}
	a.run()
	a.sync()
	a.settled()
	a.halt()
	w.equal(cells...)
}

// Nor does it keep the others from what only the stop sees.
func TestStopPassesASilentFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	held, two := a.activate("one"), a.activate("two")
	w.write(held, createItems)
	w.write(two, createItems)
	g := newGate(t)
	a.fs = gatedDisk{gate: g, holds: func(path string) bool { return strings.HasPrefix(path, held.LTXDir()) }}
	a.rig = func(o *exporter.Options) {
		o.Interval, o.Patience, o.Shutdown = time.Hour, 50*time.Millisecond, 15*time.Second
	}
	a.run()
	w.until("the first round is over", func() bool { return a.e.Status().Rounds > 0 })
	g.shut.Store(true)
	w.write(held, insertTwo)
	w.write(two, insertTwo)
	said := w.said()
	e := a.e
	a.haltWithin(patience / 2)
	w.equal(two)
	w.tells(said(), "stream is left", held.Scope(), "has not")
	if !e.Stuck() {
		t.Fatal("Run left nothing behind")
	}
	g.open()
	w.must(e.Unstick())
	a.rig = nil
	a.run()
	a.sync()
	a.halt()
	w.equal(held, two)
}
