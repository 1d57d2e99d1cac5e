package exporter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"celldexport/exporter"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
	"celldexport/ltxtail"
	"celldexport/sinks"
)

// These are about what happens between two calls of a stream that is left
// behind.

// hasty has the rounds leave behind what does not come back at once.
func hasty(o *exporter.Options) { o.Patience = 50 * time.Millisecond }

// holds has a gate hold up a call of the bucket for one key.
func (w *world) holds(g *gate, op, key string) {
	w.fault.Add(objstore.Rule{Op: op, Key: func(k string) bool { return k == key }, Wait: func(ctx context.Context, _, _ string) error { return g.pass(ctx) }})
}

// A proof that comes back, and is worked on, while the round is still with
// other streams is not worked on by the round once more: what it said of the
// stream is not so any more.
func TestProofIsWorkedOnOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.rig = func(o *exporter.Options) { o.Patience = time.Second }
	first, late := a.activate("one"), a.activate("two")
	if first.Scope() > late.Scope() {
		first, late = late, first
	}
	for _, c := range []*celldsim.Cell{first, late} {
		w.write(c, createItems, insertTwo)
	}
	e, err := a.open()
	w.must(err)
	g := newGate(t)
	g.shut.Store(true)
	w.holds(g, objstore.OpGet, celld.OwnKey(late.Scope()))
	w.fault.Add(objstore.Rule{Op: objstore.OpPut, Key: func(k string) bool { return k == ledger.Key(first.Scope(), "") }, Times: 1,
		Wait: func(context.Context, string, string) error {
			g.open()
			for end := time.Now().Add(time.Second); e.Behind() > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			}
			return nil
		}})
	w.must(e.Walk())
	w.must(e.Round(t.Context()))
	if !e.Gather(patience) {
		t.Fatal("a stream is still behind")
	}
	left, err := e.Once(t.Context(), exportTime)
	w.must(errors.Join(err, e.Close()))
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if log := w.log.String(); strings.Contains(log, "re-base") {
		t.Errorf("a stream began twice:\n%s", log)
	}
	w.equal(first, late)
}

// A stream that is left behind while it is sent to a sink that lacked it is
// afterwards what it was before, and no more of them are on their way at a time
// than otherwise.
func TestLeftBehindOnTheWayToASink(t *testing.T) {
	t.Parallel()
	const cells, underWay = 8, 4
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	var all []*celldsim.Cell
	for i := range cells {
		c := a.activate(fmt.Sprint("cell", i))
		w.write(c, createItems, insertTwo)
		all = append(all, c)
	}
	a.run()
	a.sync()
	a.halt()
	g := newGate(t)
	g.shut.Store(true)
	for _, c := range all {
		w.holds(g, objstore.OpGet, ledger.Key(c.Scope(), ""))
	}
	other := newOther(t, "other")
	up := other.down()
	a.rig = func(o *exporter.Options) {
		o.Patience, o.More = time.Millisecond, []sinks.Sink{other}
	}
	a.run()
	w.until("all are left behind", func() bool { return a.e.Behind() == cells })
	g.open()
	w.until("nobody is left behind", func() bool { return a.e.Behind() == 0 })
	a.sync()
	if n := strings.Count(w.log.String(), "a stream goes out whole to a sink that lacked it"); n != underWay {
		t.Errorf("%d streams are on their way at a time", n)
	}
	up()
	a.settled()
	a.halt()
	w.equal(all...)
	other.equal(w, all...)
}

// A stream that is left behind exports nothing more once another exporter has
// taken the node, whether a round noticed that or not.
func TestLeftBehindWhenTheNodeIsTaken(t *testing.T) {
	t.Parallel()
	for _, noticed := range []bool{false, true} {
		t.Run(fmt.Sprintf("noticed %v", noticed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, celldsim.V06)
			a := w.host("node-a")
			a.rig = hasty
			held, two := a.activate("one"), a.activate("two")
			w.write(held, createItems, insertTwo)
			w.write(two, createItems, insertTwo)
			a.run()
			a.sync()
			a.settled()
			before := held.TXID() // as that of the other
			g := newGate(t)
			w.holds(g, objstore.OpGet, celld.OwnKey(held.Scope()))
			g.shut.Store(true)
			w.write(held, `INSERT INTO items VALUES('c',3)`)
			w.until("the stream is left behind", func() bool { return a.e.Behind() == 1 })
			doc, etag, err := ledger.LoadNode(t.Context(), w.store, "node-a")
			w.must(err)
			doc.Boot, doc.Token = doc.Boot+1, strings.Repeat("0", 32)
			w.must(ledger.ClaimNode(t.Context(), w.store, "node-a", *doc, etag))
			if noticed {
				w.write(two, `INSERT INTO items VALUES('c',3)`)
			} else {
				g.open()
			}
			if err := <-a.done; err == nil || !strings.Contains(err.Error(), "another exportd runs for this node") {
				t.Errorf("Run ended with %v", err)
			}
			if n := a.e.Behind(); n > 0 {
				t.Errorf("%d streams go on", n)
			}
			w.must(a.e.Close())
			a.e = nil
			// What was exported before may be certified still.
			for _, r := range w.consumer().Records {
				if r.Position.TXID > before {
					t.Errorf("exported by the one that lost the node: %T of %s at %v", r.Body, r.Stream.Cell, r.Position)
				}
			}
		})
	}
}

// A round that ends early for want of a file descriptor leaves what it did not
// come to for the next one.
func TestRoundThatEndsEarlyForgetsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.settings.Export.MaxTxBytes = 1 // every stream is committed by itself
	var fails atomic.Bool
	a.rig = func(o *exporter.Options) {
		o.Step = func(s exporter.Step) error {
			if s == exporter.StepSpooled && fails.CompareAndSwap(true, false) {
				return syscall.EMFILE
			}
			return nil
		}
	}
	one, two := a.activate("one"), a.activate("two")
	write := func(sql ...string) {
		w.write(one, sql...)
		w.write(two, sql...)
	}
	write(createItems, insertTwo)
	e, err := a.open()
	w.must(err)
	round := func() error { return e.Round(t.Context()) }
	w.must(e.Walk())
	for range 3 {
		w.must(round())
	}
	write(`INSERT INTO items VALUES('c',3)`)
	w.must(e.Walk()) // nothing on the disk tells of them again
	fails.Store(true)
	if err := round(); !errors.Is(err, syscall.EMFILE) {
		t.Fatalf("the round ends with %v", err)
	}
	for range 3 {
		w.must(round())
	}
	ctx, stop := context.WithCancel(t.Context())
	delivered := make(chan error, 1)
	go func() { delivered <- e.Deliver(ctx) }()
	w.must(errors.Join(e.Checkpoint(t.Context()), e.Flush(t.Context())))
	stop()
	w.must(errors.Join(<-delivered, e.Close()))
	w.equal(one, two)
}

// A call that concerns all streams and does not come back holds up the rounds,
// but no stream that was left behind before.
func TestCommonCallHoldsUpNobodyBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.rig = hasty
	held, two := a.activate("one"), a.activate("two")
	w.write(held, createItems, insertTwo)
	w.write(two, createItems, insertTwo)
	a.run()
	a.sync()
	g, common := newGate(t), newGate(t)
	w.holds(g, objstore.OpGet, celld.OwnKey(held.Scope()))
	w.holds(common, objstore.OpGet, celld.ControlKey)
	g.shut.Store(true)
	w.write(held, `INSERT INTO items VALUES('c',3)`)
	w.until("the stream is left behind", func() bool { return a.e.Behind() == 1 })
	common.shut.Store(true)
	w.write(two, `INSERT INTO items VALUES('n',9)`)
	w.until("the round waits for the call", func() bool { return common.met.Load() > 0 })
	g.open()
	w.has(held)
	common.open()
	a.sync()
	a.halt()
	w.equal(held, two)
}

// closingDisk is a node's disk with files that a gate holds up when they are
// closed, but for the first, that of the proof.
type closingDisk struct {
	ltxtail.OS
	gate  *gate
	holds string
	seen  *atomic.Int64
}

func (d closingDisk) Open(name string) (ltxtail.ReadFile, error) {
	f, err := d.OS.Open(name)
	if err == nil && strings.HasPrefix(name, d.holds) {
		return closingFile{f, d}, nil
	}
	return f, err
}

type closingFile struct {
	ltxtail.ReadFile
	disk closingDisk
}

func (f closingFile) Close() error {
	if f.disk.gate.shut.Load() && f.disk.seen.Add(1) > 1 {
		_ = f.disk.gate.pass(context.Background()) // which never ends
	}
	return f.ReadFile.Close()
}

// To close a file of the node's disk is a call as well.
func TestFileThatDoesNotClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.rig = hasty
	held, two := a.activate("one"), a.activate("two")
	w.write(held, createItems, insertTwo)
	w.write(two, createItems, insertTwo)
	g := newGate(t)
	a.fs = closingDisk{gate: g, holds: held.LTXDir(), seen: new(atomic.Int64)}
	a.run()
	a.sync()
	g.shut.Store(true)
	w.write(held, `INSERT INTO items VALUES('c',3)`)
	a.status("the stream is left behind", func(s exporter.Summary) bool {
		return len(s.Trouble) == 1 && strings.HasPrefix(s.Trouble[0].Status.Reason, "read ")
	})
	w.write(two, `INSERT INTO items VALUES('n',9)`)
	w.has(two)
	g.open()
	a.sync()
	a.halt()
	w.equal(held, two)
}

// A run over what is present ends when its time is over, even if more files do
// not answer than streams may be left behind.
func TestOnceEndsBesideASilentDisk(t *testing.T) {
	t.Parallel()
	const cells = 80
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	var all []*celldsim.Cell
	for i := range cells {
		c := a.activate(fmt.Sprint("cell", i))
		w.write(c, createItems)
		all = append(all, c)
	}
	g := newGate(t)
	a.fs = gatedDisk{gate: g, holds: func(path string) bool { return strings.HasSuffix(path, ".ltx") }}
	a.rig = func(o *exporter.Options) { o.Patience = time.Millisecond }
	g.shut.Store(true)
	e, err := a.open()
	w.must(err)
	ended := make(chan error, 1)
	go func() {
		left, err := e.Once(t.Context(), time.Second)
		if len(left) < cells {
			err = errors.Join(err, fmt.Errorf("only %d are left", len(left)))
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		w.must(err)
	case <-time.After(patience / 2):
		t.Error("it does not end")
	}
	g.open()
	w.until("nobody is left behind", func() bool { return e.Behind() == 0 })
	w.must(e.Close())
	a.once()
	w.equal(all...)
}
