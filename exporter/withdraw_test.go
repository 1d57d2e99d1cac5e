package exporter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/celldsim"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
)

// byHand is a host's exporter that a test drives round by round, over a bucket
// of its own faults.
type byHand struct {
	*host
	fault *objstore.Fault
	e     *exporter.Exporter
}

// byHand opens the exporter of a host; its sinks run until the test ends.
func (h *host) byHand() *byHand {
	h.w.t.Helper()
	b := &byHand{host: h, fault: objstore.NewFault(h.w.store)}
	h.rig = func(o *exporter.Options) { o.Fleet, o.Export = b.fault, b.fault }
	e, err := h.open()
	h.w.must(err)
	b.e = e
	ctx, stop := context.WithCancel(h.w.t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Deliver(ctx) }()
	h.w.t.Cleanup(func() {
		stop()
		await(h.w.t, "the end of the sinks of "+h.settings.Node, done)
		if err := e.Close(); err != nil {
			h.w.t.Error(err)
		}
	})
	return b
}

// round walks the directory and works once.
func (b *byHand) round() error { return errors.Join(b.e.Walk(), b.e.Round(b.w.t.Context())) }

// rounds works n times and has the sinks send what came of it.
func (b *byHand) rounds(n int) {
	b.w.t.Helper()
	for range n {
		b.w.must(b.round())
	}
	b.w.must(b.e.Checkpoint(b.w.t.Context()))
	b.w.must(b.e.Flush(b.w.t.Context()))
}

// atLedger runs do before the exporter's next write of a ledger.
func (b *byHand) atLedger(key string, do func(context.Context) error) {
	b.fault.Add(objstore.Rule{Op: objstore.OpPut, Key: func(k string) bool { return k == key }, Times: 1,
		Wait: func(ctx context.Context, _, _ string) error { return do(ctx) }})
}

// passed waits in a call of a bucket for what another goroutine does. It is an
// error when that does not come, so that whoever made the call goes on.
func passed(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(patience):
		return errors.New("the other did not come there")
	}
}

// closedAt is where an epoch ends in the ledger, "open" while it goes on.
func (w *world) closedAt(scope string, epoch uint64) string {
	w.t.Helper()
	doc, _, err := ledger.Load(w.t.Context(), w.store, ledger.Key(scope, ""))
	w.must(err)
	pin, ok := doc.Streams[len(doc.Streams)-1].Epoch(epoch)
	switch {
	case !ok:
		return "not pinned"
	case pin.Closed == nil:
		return "open"
	}
	return fmt.Sprint(*pin.Closed)
}

// handover is a cell whose eviction was given up after node a's exporter had
// closed its epoch at txid 3, and which then writes a fourth transaction and
// moves to node b.
type handover struct {
	w    *world
	a, b *byHand
	c    *celldsim.Cell
	next *celldsim.Cell
	key  string
}

func newHandover(t *testing.T) *handover {
	w := newWorld(t, celldsim.V06)
	h := &handover{w: w, a: w.host("node-a").byHand()}
	h.c = h.a.activate("one")
	h.key = ledger.Key(h.c.Scope(), "")
	w.write(h.c, createItems, insertTwo)
	h.a.rounds(3)
	w.must(h.a.node.AbandonEvictionLate(t.Context(), h.c.Scope(), func() error { h.a.rounds(3); return nil }))
	if at := w.closedAt(h.c.Scope(), 1); at != "3" {
		t.Fatalf("e1 is closed at %s", at)
	}
	w.write(h.c, `UPDATE items SET qty = 100 WHERE sku = 'a'`)
	h.b = w.host("node-b").byHand()
	return h
}

// move takes the cell to node b, whose first file undoes the last transaction.
func (h *handover) move(ctx context.Context) (err error) {
	h.next, err = h.b.node.ActivateWith(ctx, celldsim.Activation{Cell: h.c.Scope(), Name: "one", TakeOver: true, Deferred: true})
	if err != nil {
		return err
	}
	if err := h.next.Exec(`UPDATE items SET qty = 1 WHERE sku = 'a'`); err != nil {
		return err
	}
	if _, err := h.next.Capture(); err != nil {
		return err
	}
	return h.next.Upload(ctx)
}

// A close is taken back, after the owner's last look at own.json, while the
// next owner's exporter goes on from it. Whoever writes the ledger first has
// it: either the close is there to stay and nothing follows it, or the pin is
// refused and decided anew.
func TestCloseIsWithdrawnWhileAnotherContinues(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		play func(h *handover)
		// prev is what e2 continues, unit whether e1's fourth transaction was
		// exported in e1, snapshot whether e2 re-bases.
		prev           string
		unit, snapshot bool
	}{
		"withdrawn between reading and pin": {func(h *handover) {
			atPin, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			h.b.atLedger(h.key, func(ctx context.Context) error { close(atPin); return passed(ctx, goOn) })
			h.a.atLedger(h.key, func(ctx context.Context) error {
				if err := h.move(ctx); err != nil {
					return err
				}
				go func() { done <- h.b.round() }()
				return passed(ctx, atPin)
			})
			h.w.must(h.a.round())
			close(goOn)
			h.w.must(await(h.w.t, "the round of node b", done))
			if at := h.w.closedAt(h.c.Scope(), 2); at != "not pinned" {
				h.w.t.Errorf("e2 is pinned on a close that was withdrawn: %s", at)
			}
		}, "e1:4", true, true},
		"withdrawn, and the owner does nothing more": {func(h *handover) {
			h.a.atLedger(h.key, h.move)
			h.w.must(h.a.round())
			h.b.rounds(40)
		}, "e1:4", true, true},
		"withdrawn and closed before it is read": {func(h *handover) {
			h.a.atLedger(h.key, h.move)
			h.w.must(h.a.round())
			// Something that is never covered has the old owner look again.
			h.w.must(h.c.Exec(`DELETE FROM items`))
			_, err := h.c.Capture()
			h.w.must(err)
			h.a.rounds(8)
			if at := h.w.closedAt(h.c.Scope(), 1); at != "4" {
				h.w.t.Errorf("e1 ends at %s", at)
			}
		}, "e1:4", true, false},
		"pinned before it is withdrawn": {func(h *handover) {
			h.a.atLedger(h.key, func(ctx context.Context) error { return errors.Join(h.move(ctx), h.b.round()) })
			h.w.must(h.a.round())
			if at := h.w.closedAt(h.c.Scope(), 1); at != "3" {
				h.w.t.Errorf("e1 ends at %s below a pin", at)
			}
		}, "e1:3", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHandover(t)
			test.play(h)
			for range 8 {
				h.a.rounds(5)
				h.b.rounds(5)
			}
			got := h.w.equal(h.next)
			holes, err := got.Holes(h.c.Scope())
			h.w.must(err)
			if len(holes) > 0 {
				t.Errorf("holes: %v", holes)
			}
			one, two := story(got, h.c.Scope(), 1), story(got, h.c.Scope(), 2)
			if strings.Contains(one, "rows items/1 U") != test.unit {
				t.Errorf("e1: %s", one)
			}
			if !strings.HasPrefix(two, "1 link clone from 1 prev "+test.prev) || strings.Contains(two, "snapshot") != test.snapshot {
				t.Errorf("e2: %s", two)
			}
		})
	}
}

// A cell that nobody had exported is pinned by its old owner's exporter after
// the next one's had looked into the ledger: that one does not begin another
// incarnation beside it.
func TestFirstPinOfTheOwnerBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a, b := w.host("node-a").byHand(), w.host("node-b").byHand()
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	key := ledger.Key(c.Scope(), "")
	var next *celldsim.Cell
	a.atLedger(key, func(ctx context.Context) error {
		h := &handover{w: w, a: a, b: b, c: c, key: key}
		err := h.move(ctx)
		next = h.next
		return err
	})
	atPin, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	b.atLedger(key, func(ctx context.Context) error { close(atPin); return passed(ctx, goOn) })
	a.atLedger(key, func(ctx context.Context) error {
		go func() { done <- b.round() }()
		return passed(ctx, atPin)
	})
	w.must(a.round())
	close(goOn)
	w.must(await(t, "the round of node b", done))
	for range 8 {
		a.rounds(5)
		b.rounds(5)
	}
	doc, _, err := ledger.Load(t.Context(), w.store, key)
	w.must(err)
	if len(doc.Streams) != 1 || len(doc.Streams[0].Epochs) != 2 {
		t.Errorf("the ledger: %+v", doc.Streams)
	}
	got := w.equal(next)
	if d := got.Certified(consumer.SourceOf(next)); len(d) > 0 {
		t.Error(d)
	}
}
