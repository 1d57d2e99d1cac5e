package delivery

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/envelope"
)

// leaving is one life of a spool whose second sink is detached and comes back.
type leaving struct {
	*absences
	t *testing.T
	// resume is the first txid that the spool did not hold at the start.
	resume uint64
}

const leavingTXIDs = 18

func newLeaving(t *testing.T, dir string, fs FS, one, two *fakeSink) *leaving {
	w := &leaving{t: t, absences: &absences{world: &world{
		t: t, dir: dir, at: map[int]envelope.Position{}, want: map[accountKey]envelope.Position{}, flip: func() bool { return false },
		next: map[int]uint64{1: 1000}, ends: map[accountKey]envelope.Position{},
	}}}
	w.sinks[0], w.sinks[1] = one, two
	spool, err := OpenSpool(filepath.Join(dir, "spool"), Options{SegmentBytes: 1 << 10, FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	// Read before the sinks run: what they acknowledge leaves the spool.
	w.resume = 1
	for e, err := range spool.Entries(0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Unit().Form == FormUnit {
			w.resume = max(w.resume, e.Position().TXID+1)
		}
	}
	w.r = startWith(t, dir, spool, Config{}, one, two)
	return w
}

// play spools the units above what is known, and calls between after each.
func (w *leaving) play(between func(txid uint64)) {
	next := w.resume
	if d, ok, err := w.r.engine.Delivered(testStream(1), 3, "one"); err != nil {
		w.t.Fatal(err)
	} else if ok {
		next = max(next, d.Through.TXID+1)
	}
	for ; next <= leavingTXIDs; next++ {
		w.spool(1, unit(1, next), 1)
		between(next)
		if next%2 == 0 {
			if err := w.r.spool.SetApplied(w.r.spool.Last()); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.note(1, unit(1, leavingTXIDs).Position)
}

// TestRestartAtEveryStepOfAnAbsence stops the world after every change to the
// disk while a sink is detached, holes come and go, and it is back: both sinks
// end up whole, certified by true watermarks, over states the stream was in.
func TestRestartAtEveryStepOfAnAbsence(t *testing.T) {
	root := t.TempDir()
	type moment struct {
		dir      string
		one, two []storedRecord
		what     string
		away     bool
	}
	var moments []moment
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(root, "first")
		fs := newWatchedFS()
		var down atomic.Bool
		one := &fakeSink{name: "one"}
		two := &fakeSink{name: "two", batch: 3, every: time.Second, fail: func(uint64) error {
			if down.Load() {
				return errors.New("the place is gone")
			}
			return nil
		}}
		w := newLeaving(t, dir, fs, one, two)
		fs.mu.Lock()
		fs.after = func() {
			w.r.engine.journal.changing.Lock()
			defer w.r.engine.journal.changing.Unlock()
			m := moment{one: one.records(), two: two.records(), away: w.r.engine.outlet("two").place.absence() != nil}
			for _, cut := range []bool{false, true} {
				m.dir, m.what = fs.copyTree(t, dir, cut), fmt.Sprintf("after disk change %d, power cut %v, away %v", len(moments), cut, m.away)
				moments = append(moments, m)
			}
		}
		fs.mu.Unlock()
		w.play(func(txid uint64) {
			time.Sleep(700 * time.Millisecond)
			switch txid {
			case 3:
				down.Store(true)
			case 8:
				if made, err := w.r.engine.MakeRoom(t.Context()); err != nil || !made {
					t.Fatalf("room: %v, %v", made, err)
				}
			case 13:
				down.Store(false)
				time.Sleep(2 * time.Minute)
			case 15:
				w.rebase()
			}
		})
		w.finish()
		w.check(one)
		w.check(two)
		fs.mu.Lock()
		fs.after = func() {}
		fs.mu.Unlock()
		w.r.stop()
	})
	absent, dug := 0, 0
	for _, m := range moments {
		if m.away {
			absent++
		}
		if names, err := filepath.Glob(filepath.Join(m.dir, "spool", "*"+holeSuffix)); err != nil {
			t.Fatal(err)
		} else if len(names) > 0 {
			dug++
		}
	}
	if len(moments) < 80 || absent < 20 || dug < 4 {
		t.Fatalf("%d moments, %d while detached, %d with holes", len(moments), absent, dug)
	}
	for i, m := range moments {
		if testing.Short() && i%8 != 0 {
			continue // the race detector sees a part, all are run without it
		}
		synctest.Test(t, func(t *testing.T) {
			one := &fakeSink{name: "one", stored: slices.Clone(m.one)}
			two := &fakeSink{name: "two", batch: 2, every: time.Second, stored: slices.Clone(m.two)}
			w := newLeaving(t, m.dir, osFS{}, one, two)
			w.next[1] = 2000
			w.play(func(uint64) {})
			w.finish()
			w.check(one)
			w.check(two)
			w.r.stop()
		})
		if t.Failed() {
			t.Fatalf("going on %s", m.what)
		}
		if err := os.RemoveAll(m.dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d moments, %d while detached, %d with holes", len(moments), absent, dug)
}
