package delivery

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/envelope"

	"pgregory.net/rapid"
)

// world is a random history: streams that get units in several epochs, two
// sinks that fail now and then, restarts at any time.
type world struct {
	t     *testing.T
	dir   string
	r     *rig
	sinks [2]*fakeSink
	// at is the last position of each stream, want the last of each epoch.
	at   map[int]envelope.Position
	want map[accountKey]envelope.Position
	flip func() bool
	// next numbers a stream's positions that are no unit, ends are the last
	// of them that one sink got.
	next map[int]uint64
	ends map[accountKey]envelope.Position
}

func (w *world) start() { w.r = start(w.t, w.dir, Config{}, w.sinks[0], w.sinks[1]) }

func (w *world) restart() {
	w.r.stop()
	w.start()
}

func (w *world) unit(n, records int) {
	at := w.at[n]
	u := unit(n, at.TXID+1)
	u.Position.Epoch = max(at.Epoch, 1)
	w.spool(n, u, records)
}

// wake begins the next epoch of a stream with its link, after closing the
// one before.
func (w *world) wake(n int) {
	at := w.at[n]
	if at.Epoch > 0 {
		u := unit(n, at.TXID)
		u.Form, u.Position = FormClose, at
		mustAdd(w.t, w.r.spool, u)
	}
	u := unit(n, at.TXID+1)
	u.Form, u.Position.Epoch, u.Position.Commit = FormRecords, at.Epoch+1, 0
	mustAdd(w.t, w.r.spool, u, linkRecord(u))
	w.note(n, u.Position)
	syncSpool(w.t, w.r.spool)
}

func (w *world) spool(n int, u Unit, records int) {
	unitOf(w.t, w.r.spool, u, records)
	w.note(n, u.Position)
	if w.flip() {
		if err := w.r.spool.SetApplied(w.r.spool.Last()); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) note(n int, p envelope.Position) {
	w.at[n] = p
	w.want[accountKey{testStream(n), p.Epoch}] = p
}

func TestRandomHistoriesAreCertifiedWhole(t *testing.T) {
	root := t.TempDir()
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		ops := rapid.SliceOfN(rapid.IntRange(0, 99), 5, 60).Draw(rt, "ops")
		flips := rapid.SliceOfN(rapid.Bool(), 64, 64).Draw(rt, "faults")
		batch := rapid.IntRange(1, 9).Draw(rt, "batch")
		run++
		dir := filepath.Join(root, fmt.Sprint(run))
		ok := t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { history(t, dir, ops, flips, batch) })
		})
		if !ok {
			rt.Fatalf("the history above failed")
		}
	})
}

func history(t *testing.T, dir string, ops []int, flips []bool, batch int) {
	var drawn atomic.Int64
	flip := func() bool { return flips[int(drawn.Add(1))%len(flips)] }
	var faulty atomic.Bool
	faulty.Store(true)
	fault := func(uint64) error {
		if faulty.Load() && flip() && flip() {
			return errors.New("a fault")
		}
		return nil
	}
	w := &world{t: t, dir: dir, at: map[int]envelope.Position{}, want: map[accountKey]envelope.Position{}, flip: flip}
	w.sinks[0] = &fakeSink{name: "one", batch: batch, every: 3 * time.Second, fail: fault}
	w.sinks[1] = &fakeSink{name: "two", lose: fault}
	w.start()
	for n := range 3 {
		w.wake(n)
	}
	for _, op := range ops {
		n := op % 3
		switch {
		case op < 60:
			w.unit(n, op%4)
		case op < 70:
			w.wake(n)
		case op < 80:
			time.Sleep(time.Duration(op) * time.Second)
		case op < 90:
			synctest.Wait()
		default:
			w.restart()
		}
	}
	faulty.Store(false)
	w.r.flush(t)
	w.r.stop()
	for _, s := range w.sinks {
		got := certificate(t, s.records())
		for key, want := range w.want {
			if want.Commit == 0 {
				// Only the link came: it certifies no transaction.
				want = envelope.Position{}
			}
			if got[key] != want {
				t.Errorf("sink %s: %v epoch %d is certified to %v, want %v", s.name, key.stream, key.epoch, got[key], want)
			}
		}
	}
}
