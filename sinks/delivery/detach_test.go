package delivery

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/envelope"

	"pgregory.net/rapid"
)

// absences is a random history with two sinks, one of which is away for long
// times while the spool is full.
type absences struct {
	*world
	down atomic.Bool
}

// startSmall begins a life over small files, so that they come and go.
func (w *absences) startSmall() {
	spool := openSpool(w.t, filepath.Join(w.dir, "spool"), Options{SegmentBytes: 2 << 10, Salt: func() uint32 { return 7 }})
	w.r = startWith(w.t, w.dir, spool, Config{}, w.sinks[0], w.sinks[1])
}

// rebase does what the exporter does for sinks that lag: a snapshot of the
// whole stream at its position, for that sink alone.
func (w *absences) rebase() {
	lagging, err := w.r.engine.Lagging()
	if err != nil {
		w.t.Fatal(err)
	}
	for sink := range lagging {
		for n, at := range w.at {
			behind, err := w.r.engine.Behind(sink, testStream(n))
			if err != nil {
				w.t.Fatal(err)
			}
			if !behind {
				continue
			}
			w.next[n]++
			u := unit(n, at.TXID)
			u.Form, u.Sink = FormRecords, sink
			u.Position = envelope.Position{Epoch: at.Epoch, TXID: at.TXID, Commit: at.TXID + w.next[n]}
			end, err := envelope.Encode(&envelope.Record{
				Envelope: record(u, envelope.KindSnapshotEnd, "").Envelope,
				Body:     &envelope.SnapshotEnd{SnapshotID: fmt.Sprint("base-", w.next[n]), Scope: envelope.ScopeStream},
			})
			if err != nil {
				w.t.Fatal(err)
			}
			w.r.engine.Rebasing(sink, u.Stream, mustAdd(w.t, w.r.spool, u, end))
			w.ends[accountKey{u.Stream, at.Epoch}] = u.Position
		}
	}
	syncSpool(w.t, w.r.spool)
}

// TestDetachedSinks: whatever comes in between, every sink passes through
// states that the stream was in, is certified to the end once it has caught
// up, and the spool never keeps more than what is owed.
func TestDetachedSinks(t *testing.T) {
	root := t.TempDir()
	run := 0
	away := 0
	// On a busy machine rapid gives up before long; these run anyway.
	for seed := range uint64(3) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		ops := make([]int, 80)
		for i := range ops {
			ops[i] = rnd.IntN(100)
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { away += roundsOfAbsence(t, t.TempDir(), ops, 3) })
		})
	}
	t.Log(away, "absences in three fixed histories")
	rapid.Check(t, func(rt *rapid.T) {
		ops := rapid.SliceOfN(rapid.IntRange(0, 99), 20, 80).Draw(rt, "ops")
		batch := rapid.IntRange(1, 6).Draw(rt, "batch")
		run++
		dir := filepath.Join(root, fmt.Sprint(run))
		ok := t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { away += roundsOfAbsence(t, dir, ops, batch) })
		})
		if err := os.RemoveAll(dir); err != nil {
			rt.Fatal(err)
		}
		if !ok {
			rt.Fatalf("the history above failed")
		}
	})
	if away == 0 {
		t.Error("no sink was ever detached")
	}
}

func roundsOfAbsence(t *testing.T, dir string, ops []int, batch int) (detached int) {
	w := &absences{world: &world{
		t: t, dir: dir, at: map[int]envelope.Position{}, want: map[accountKey]envelope.Position{}, flip: func() bool { return true },
		next: map[int]uint64{}, ends: map[accountKey]envelope.Position{},
	}}
	fail := func(uint64) error {
		if w.down.Load() {
			return errors.New("the place is gone")
		}
		return nil
	}
	w.sinks[0] = &fakeSink{name: "one"}
	w.sinks[1] = &fakeSink{name: "two", batch: batch, every: time.Second, fail: fail}
	w.startSmall()
	for n := range 3 {
		w.wake(n)
	}
	for _, op := range ops {
		n := op % 3
		switch {
		case op < 55:
			w.unit(n, 1)
		case op < 60:
			w.wake(n)
		case op < 65:
			time.Sleep(time.Duration(op) * time.Second)
		case op < 70:
			w.down.Store(true)
		case op < 74:
			w.down.Store(false)
		case op < 80:
			w.rebase()
		case op < 84:
			w.r.stop()
			w.startSmall()
		default:
			synctest.Wait()
			if err := w.r.spool.SetApplied(w.r.spool.Last()); err != nil {
				t.Fatal(err)
			}
			if made, err := w.r.engine.MakeRoom(t.Context()); err != nil {
				t.Fatal(err)
			} else if made {
				detached++
			}
		}
	}
	w.down.Store(false)
	w.finish()
	for _, s := range w.sinks {
		w.check(s)
	}
	w.r.stop()
	return detached
}

// finish lets every sink catch up.
func (w *absences) finish() {
	w.t.Helper()
	for range 20 {
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		w.rebase()
		lagging, err := w.r.engine.Lagging()
		if err != nil {
			w.t.Fatal(err)
		}
		if len(lagging) == 0 && w.r.engine.outlet("two").place.absence() == nil {
			break
		}
	}
	w.r.flush(w.t)
	if err := w.r.spool.SetApplied(w.r.spool.Last()); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(2 * time.Minute)
	if _, entries := w.r.spool.Usage(); entries != 0 {
		w.t.Errorf("%d entries stay", entries)
	}
	names, err := os.ReadDir(filepath.Join(w.dir, "spool"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name.Name(), holeSuffix) {
			w.t.Errorf("%s stays", name.Name())
		}
	}
}

// check walks what a sink stored: a unit follows the one before, or a snapshot
// of the whole stream.
func (w *absences) check(s *fakeSink) {
	w.t.Helper()
	last := map[envelope.Stream]uint64{}
	for _, r := range s.records() {
		if _, ok := r.rec.Body.(*envelope.Watermark); ok {
			continue
		}
		txid := r.rec.Position.TXID
		_, whole := r.rec.Body.(*envelope.SnapshotEnd)
		switch at := last[r.rec.Stream]; {
		case whole && txid >= at, txid <= at, txid == at+1:
			last[r.rec.Stream] = max(at, txid)
		default:
			w.t.Fatalf("sink %s: %v goes from txid %d to %d", s.name, r.rec.Stream, at, txid)
		}
	}
	got := certificate(w.t, s.records())
	for n, at := range w.at {
		key := accountKey{testStream(n), at.Epoch}
		want := w.want[key]
		if want.Commit == 0 {
			// Only the link came: it certifies no transaction.
			want = envelope.Position{}
		}
		if end := w.ends[key]; s.name == "two" && end.Compare(want) > 0 && got[key] == end {
			continue
		}
		if got[key] != want {
			w.t.Errorf("sink %s: stream %d is certified to %v, want %v", s.name, n, got[key], want)
		}
	}
}

// TestHandedEntriesStay: a detached sink resolves what it was handed before
// anything else, also after a restart, while the spool goes on without it.
func TestHandedEntriesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var down atomic.Bool
		down.Store(true)
		one := &fakeSink{name: "one"}
		two := &fakeSink{name: "two", batch: 3, every: time.Second, fail: func(uint64) error {
			if down.Load() {
				return errors.New("the place is gone")
			}
			return nil
		}}
		begin := func() *rig {
			spool := openSpool(t, filepath.Join(dir, "spool"), Options{SegmentBytes: 1 << 10})
			return startWith(t, dir, spool, Config{RestartMin: time.Second, RestartMax: time.Second}, one, two)
		}
		r := begin()
		linkOf(t, r.spool, 1)
		for txid := range uint64(60) {
			unitOf(t, r.spool, unit(1, txid+1), 1)
			time.Sleep(time.Second)
		}
		if made, err := r.engine.MakeRoom(t.Context()); err != nil || !made {
			t.Fatalf("room is made: %v, %v", made, err)
		}
		if again, err := r.engine.MakeRoom(t.Context()); err != nil || again {
			t.Errorf("twice: %v, %v", again, err)
		}
		settle := func() {
			time.Sleep(time.Minute)
			if err := r.spool.SetApplied(r.spool.Last()); err != nil {
				t.Fatal(err)
			}
		}
		settle()
		handed := r.engine.outlet("two").place.absence().handed
		bytes, _ := r.spool.Usage()
		if bytes > 8<<10 || r.spool.files.first() != 1 {
			t.Errorf("%d bytes stay, the first entry is %d", bytes, r.spool.files.first())
		}
		r.stop()
		r = begin()
		for txid := range uint64(20) {
			unitOf(t, r.spool, unit(1, txid+61), 1)
		}
		settle()
		if st, err := r.engine.Status(); err != nil || !st[1].Detached || st[1].Behind != 1 || st[0].Detached {
			t.Errorf("status %+v, %v", st, err)
		}
		down.Store(false)
		time.Sleep(time.Minute)
		var got []uint64
		for _, rec := range two.records() {
			if _, mark := rec.rec.Body.(*envelope.Watermark); !mark && (len(got) == 0 || rec.seq != got[len(got)-1]) {
				got = append(got, rec.seq)
			}
		}
		if len(got) == 0 || got[len(got)-1] > handed {
			t.Errorf("got %v, handed were those through %d", got, handed)
		}
		for i, seq := range got {
			if i > 0 && seq <= got[i-1] {
				t.Errorf("entry %d came after %d", seq, got[i-1])
			}
		}
		if st, err := r.engine.Status(); err != nil || st[1].Detached || st[1].Behind != 1 {
			t.Errorf("after it is back: %+v, %v", st, err)
		}
		r.stop()
	})
}

// TestOutageOfHours: with one sink, a dead place stops what is spooled at the
// bound and nothing else happens; with two, the spool goes round. Neither
// takes more disk by the hour.
func TestOutageOfHours(t *testing.T) {
	for _, both := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			var down atomic.Bool
			dead := &fakeSink{name: "two", batch: 4, every: time.Second, fail: func(uint64) error {
				if down.Load() {
					return errors.New("the place is gone")
				}
				return nil
			}}
			w := &absences{world: &world{
				t: t, dir: dir, at: map[int]envelope.Position{}, want: map[accountKey]envelope.Position{}, flip: func() bool { return true },
				next: map[int]uint64{}, ends: map[accountKey]envelope.Position{},
			}}
			w.sinks[0], w.sinks[1] = &fakeSink{name: "one"}, dead
			spool := openSpool(t, filepath.Join(dir, "spool"), Options{SegmentBytes: 4 << 10})
			if both {
				w.r = startWith(t, dir, spool, Config{}, w.sinks[0], w.sinks[1])
			} else {
				w.r = startWith(t, dir, spool, Config{}, dead)
			}
			w.wake(1)
			down.Store(true)
			const limit = 64 << 10
			most, spooled := int64(0), 0
			for range 6 * 60 * 4 { // six hours, four tries a minute
				time.Sleep(15 * time.Second)
				used, entries := w.r.spool.Usage()
				most = max(most, used)
				if entries > 0 && used >= limit {
					if made, err := w.r.engine.MakeRoom(t.Context()); err != nil || made && !both {
						t.Fatalf("room: %v, %v", made, err)
					}
					continue
				}
				w.unit(1, 1)
				spooled++
			}
			if most > limit+8<<10 || both != (spooled > 1000) {
				t.Errorf("both %v: %d bytes at most, %d units", both, most, spooled)
			}
			down.Store(false)
			if both {
				w.finish()
			}
			w.r.flush(t)
			w.check(dead)
			w.r.stop()
		})
	}
}
