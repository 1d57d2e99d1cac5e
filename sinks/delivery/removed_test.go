package delivery

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// pair is two sinks over small files, of which the second's answers can be
// lost: it stores what it gets and nobody hears of it.
type pair struct {
	*absences
	deaf atomic.Bool
}

func newPair(t *testing.T) *pair {
	p := &pair{absences: &absences{world: &world{
		t: t, dir: t.TempDir(), at: map[int]envelope.Position{}, want: map[accountKey]envelope.Position{}, flip: func() bool { return true },
		next: map[int]uint64{}, ends: map[accountKey]envelope.Position{},
	}}}
	p.sinks[0] = &fakeSink{name: "one"}
	p.sinks[1] = &fakeSink{name: "two", batch: 4, every: time.Second, lose: func(uint64) error {
		if p.deaf.Load() {
			return errors.New("the answer is lost")
		}
		return nil
	}}
	return p
}

// begin starts a life with some of the sinks.
func (p *pair) begin(list ...sinks.Sink) {
	p.t.Helper()
	spool := openSpool(p.t, filepath.Join(p.dir, "spool"), Options{SegmentBytes: 2 << 10})
	p.r = startWith(p.t, p.dir, spool, Config{RestartMin: time.Second, RestartMax: time.Second}, list...)
}

// units spools some of stream n, a second apart, and applies them.
func (p *pair) units(n, count int) {
	p.t.Helper()
	for range count {
		p.unit(n, 1)
		time.Sleep(time.Second)
	}
	if err := p.r.spool.SetApplied(p.r.spool.Last()); err != nil {
		p.t.Fatal(err)
	}
	time.Sleep(time.Minute)
}

// A sink that was handed entries, and stored them unheard, is taken out of the
// settings. They stay for it while the spool goes on. Named again, it resolves
// them, gets what it missed whole, and is certified to the end.
func TestRemovedSinkResolvesWhatItWasHanded(t *testing.T) {
	for name, only := range map[string]bool{"one of two": false, "the only one": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				one, two := p.sinks[0], p.sinks[1]
				if only {
					p.begin(two)
				} else {
					p.begin(one, two)
				}
				p.wake(1)
				p.wake(2)
				p.units(1, 6)
				p.units(2, 6)
				p.deaf.Store(true)
				p.units(1, 9)
				p.r.stop()
				for range 2 { // two lives without it
					p.begin(one)
					p.units(1, 40)
					if got := p.r.engine.Removed(); len(got) != 1 || got[0].Name != "two" || got[0].Entries == 0 {
						t.Fatalf("kept: %+v", got)
					}
					if bytes, _ := p.r.spool.Usage(); bytes > 16<<10 {
						t.Errorf("%d bytes stay", bytes)
					}
					p.rebase()
					p.r.stop()
				}
				p.deaf.Store(false)
				p.begin(one, two)
				if got := p.r.engine.Removed(); len(got) != 0 {
					t.Errorf("kept for a sink that is back: %+v", got)
				}
				p.units(1, 3)
				p.units(2, 3)
				p.finish()
				p.check(two)
				if !only {
					p.check(one)
				}
				p.r.stop()
			})
		})
	}
}

// What is kept for a sink that is gone does not stop the reading: a full spool
// gives it up, and the sink gets everything anew when it is named again.
func TestRemovedSinkIsGivenUpForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		one, two := p.sinks[0], p.sinks[1]
		p.begin(one, two)
		p.wake(1)
		p.units(1, 5)
		p.deaf.Store(true)
		p.units(1, 20)
		p.r.stop()
		p.begin(one)
		p.units(1, 20)
		before, _ := p.r.spool.Usage()
		if made, err := p.r.engine.MakeRoom(t.Context()); err != nil || !made {
			t.Fatalf("room is made: %v, %v", made, err)
		}
		if after, _ := p.r.spool.Usage(); after >= before || len(p.r.engine.Removed()) != 0 {
			t.Errorf("%d bytes stay of %d, kept: %+v", after, before, p.r.engine.Removed())
		}
		if again, err := p.r.engine.MakeRoom(t.Context()); err != nil || again {
			t.Errorf("twice: %v, %v", again, err)
		}
		p.r.stop()
		p.deaf.Store(false)
		p.begin(one, two)
		if st, err := p.r.engine.Status(); err != nil || st[1].Behind != 1 || st[1].Detached {
			t.Errorf("status %+v, %v", st, err)
		}
		p.units(1, 3)
		p.finish()
		p.check(one)
		p.r.stop()
	})
}

// A unit without records that is passed over for a detached sink is certified
// in it all the same: there was nothing to send.
func TestQuietUnitsOfAnAbsenceAreCertified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		one, two := p.sinks[0], p.sinks[1]
		p.begin(one, two)
		p.wake(1)
		p.wake(2)
		p.units(1, 5)
		p.units(2, 5)
		p.deaf.Store(true)
		p.units(1, 20)
		if made, err := p.r.engine.MakeRoom(t.Context()); err != nil || !made {
			t.Fatalf("room is made: %v, %v", made, err)
		}
		p.units(1, 20)
		p.unit(2, 0)
		p.units(2, 0)
		p.r.stop()
		p.deaf.Store(false)
		p.begin(one, two)
		p.finish()
		p.check(one)
		p.check(two)
		for _, r := range two.records() {
			if end, ok := r.rec.Body.(*envelope.SnapshotEnd); ok && r.rec.Stream == testStream(2) {
				t.Errorf("a stream that missed nothing came whole: %+v", end)
			}
		}
		p.r.stop()
	})
}

// A sink whose absence would free nothing is not detached, however full the
// spool is.
func TestOnlyAnAbsenceThatFreesIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.begin(p.sinks[0], p.sinks[1])
		p.wake(1)
		p.units(1, 5)
		p.deaf.Store(true)
		p.units(1, 2) // within what it was handed, a file at a time
		if made, err := p.r.engine.MakeRoom(t.Context()); err != nil || made {
			t.Errorf("room is made: %v, %v", made, err)
		}
		if st, err := p.r.engine.Status(); err != nil || st[1].Detached {
			t.Errorf("status %+v, %v", st, err)
		}
		p.deaf.Store(false)
		p.finish()
		p.check(p.sinks[1])
		p.r.stop()
	})
}
