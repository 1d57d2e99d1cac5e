package delivery

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a running engine over a spool in dir.
type rig struct {
	spool  *Spool
	engine *Engine
	stop   func()
}

func start(t *testing.T, dir string, cfg Config, list ...sinks.Sink) *rig {
	t.Helper()
	spool, err := OpenSpool(dir+"/spool", Options{SegmentBytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, dir, spool, cfg, list...)
}

func (r *rig) flush(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := r.engine.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func wantCertified(t *testing.T, f *fakeSink, n int, txid uint64) {
	t.Helper()
	got, ok := certificate(t, f.records())[accountKey{testStream(n), 3}]
	if want := (envelope.Position{Epoch: 3, TXID: txid, Commit: txid}); !ok || got != want {
		t.Errorf("sink %s: stream %d certified to %v (%v), want %v", f.name, n, got, ok, want)
	}
}

func TestRecordsAreCertifiedAsTheyAreDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{name: "bucket", batch: 100, every: 10 * time.Second}
		r := start(t, t.TempDir(), Config{}, sink)
		linkOf(t, r.spool, 1)
		for txid := range uint64(3) {
			unitOf(t, r.spool, unit(1, txid+1), 2)
		}
		time.Sleep(9 * time.Second)
		if n := len(sink.records()); n != 0 {
			t.Fatalf("%d records stored before the interval was over", n)
		}
		time.Sleep(12 * time.Second) // records, then their watermark
		wantCertified(t, sink, 1, 3)
		marks := sink.watermarks(testStream(1))
		if len(marks) != 1 || marks[0].Records != 7 || marks[0].Commits != 4 {
			t.Fatalf("watermarks %+v, want one of 7 records at 4 positions", marks)
		}
		time.Sleep(time.Hour)
		if n := len(sink.watermarks(testStream(1))); n != 1 {
			t.Errorf("%d watermarks, want no more without new records", n)
		}
		unitOf(t, r.spool, unit(1, 4), 1)
		time.Sleep(21 * time.Second)
		wantCertified(t, sink, 1, 4)
		if err := r.spool.SetApplied(r.spool.Last()); err != nil {
			t.Fatal(err)
		}
		st, err := r.engine.Status()
		if err != nil {
			t.Fatal(err)
		}
		if st[0].Records != 8 || st[0].Watermarks != 2 || st[0].BacklogEntries != 0 || st[0].BacklogBytes != 0 || !st[0].Running {
			t.Errorf("status %+v", st[0])
		}
		if bytes, entries := r.spool.Usage(); entries != 0 || bytes > 4<<10 {
			t.Errorf("a delivered spool holds %d entries, %d bytes", entries, bytes)
		}
		r.stop()
	})
}

func TestStretchWithoutRecords(t *testing.T) {
	begin := func(t *testing.T) (*rig, *fakeSink) {
		sink := &fakeSink{name: "bucket"}
		r := start(t, t.TempDir(), Config{}, sink)
		linkOf(t, r.spool, 1)
		unitOf(t, r.spool, unit(1, 1), 1)
		time.Sleep(time.Second)
		wantCertified(t, sink, 1, 1)
		unitOf(t, r.spool, unit(1, 2), 0)
		unitOf(t, r.spool, unit(1, 3), 0)
		time.Sleep(time.Second)
		wantCertified(t, sink, 1, 1)
		return r, sink
	}
	cases := map[string]func(*testing.T, *rig) uint64{
		"after a minute": func(*testing.T, *rig) uint64 { time.Sleep(time.Minute); return 3 },
		"with the next records": func(t *testing.T, r *rig) uint64 {
			unitOf(t, r.spool, unit(1, 4), 1)
			time.Sleep(time.Second)
			return 4
		},
		"at the close": func(t *testing.T, r *rig) uint64 {
			u := unit(1, 3)
			u.Form = FormClose
			unitOf(t, r.spool, u, 0)
			time.Sleep(time.Second)
			return 3
		},
		"at a flush": func(t *testing.T, r *rig) uint64 { r.flush(t); return 3 },
	}
	for name, step := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, sink := begin(t)
				wantCertified(t, sink, 1, step(t, r))
				r.stop()
			})
		})
	}
}

func TestWhatGetsNoWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{name: "bucket"}
		r := start(t, t.TempDir(), Config{}, sink)
		lost := unit(1, 5)
		lost.Uncertified = true
		unitOf(t, r.spool, lost, 2)
		unitOf(t, r.spool, unit(1, 6), 2)
		recovered := unit(2, 7)
		recovered.Form, recovered.Stream.Script, recovered.Stream.Incarnation = FormRecords, "", 0
		e, err := envelope.Encode(&envelope.Record{
			Envelope: record(recovered, envelope.KindRecovered, "").Envelope,
			Body:     &envelope.Recovered{Session: "n/1", Head: recovered.Position},
		})
		if err != nil {
			t.Fatal(err)
		}
		mustAdd(t, r.spool, recovered, e)
		syncSpool(t, r.spool)
		r.flush(t)
		time.Sleep(2 * time.Hour)
		if len(sink.records()) != 5 {
			t.Fatalf("%d records delivered", len(sink.records()))
		}
		if got := certificate(t, sink.records()); len(got) != 0 {
			t.Errorf("certified %v, want nothing", got)
		}
		d, ok, err := r.engine.Delivered(testStream(1), 3, "bucket")
		if err != nil || !ok || !d.Uncertified || d.Through.TXID != 6 {
			t.Errorf("delivered %+v, %v, %v", d, ok, err)
		}
		if _, ok, _ := r.engine.Delivered(recovered.Stream, 3, "bucket"); ok {
			t.Error("a recovered record has an account")
		}
		r.stop()
	})
}

func TestNextWatermarkWaitsForTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{name: "bucket"}
		r := start(t, t.TempDir(), Config{}, sink)
		linkOf(t, r.spool, 1)
		time.Sleep(time.Second)
		tries := 0
		sink.mu.Lock()
		sink.lose = func(seq uint64) error { // stored, but the answer is lost
			if tries++; tries < 4 {
				return errNoPlace
			}
			return nil
		}
		sink.mu.Unlock()
		unitOf(t, r.spool, unit(1, 1), 1)
		unitOf(t, r.spool, unit(1, 2), 1)
		time.Sleep(time.Hour)
		wantCertified(t, sink, 1, 2) // also that resends are the same bytes
		st, err := r.engine.Status()
		if err != nil || st[0].Restarts != 3 || st[0].LastError != errNoPlace.Error() {
			t.Errorf("status %+v, %v", st, err)
		}
		r.stop()
	})
}

func TestSeveralSinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &fakeSink{name: "slow", batch: 1000, every: time.Minute}
		fast := &fakeSink{name: "fast"}
		r := start(t, t.TempDir(), Config{}, slow, fast)
		linkOf(t, r.spool, 1)
		for txid := range uint64(40) {
			unitOf(t, r.spool, unit(1, txid+1), 1)
			time.Sleep(time.Second)
		}
		if err := r.spool.SetApplied(r.spool.Last()); err != nil {
			t.Fatal(err)
		}
		wantCertified(t, fast, 1, 40)
		if len(slow.records()) != 0 || r.spool.files.first() != 1 {
			t.Errorf("entries left before the slow sink had them: first is %d", r.spool.files.first())
		}
		only := unit(2, 1)
		only.Form, only.Sink = FormRecords, "slow"
		unitOf(t, r.spool, only, 1)
		r.flush(t)
		wantCertified(t, slow, 1, 40)
		wantCertified(t, slow, 2, 1)
		if err := r.spool.SetApplied(r.spool.Last()); err != nil {
			t.Fatal(err)
		}
		for _, rec := range fast.records() {
			if rec.rec.Stream == testStream(2) {
				t.Error("an entry of one sink went to the other")
			}
		}
		if got := len(slow.watermarks(testStream(1))); got != 1 {
			t.Errorf("the slow sink got %d watermarks of stream 1", got)
		}
		time.Sleep(time.Minute)
		if _, entries := r.spool.Usage(); entries != 0 {
			t.Errorf("%d entries left", entries)
		}
		r.stop()
	})
}

func TestFlushEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{name: "bucket", fail: func(uint64) error { return errNoPlace }}
		r := start(t, t.TempDir(), Config{}, sink)
		linkOf(t, r.spool, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := r.engine.Flush(ctx)
		want := "flush: sink bucket has acknowledged entry 0 of 1, last error: the place is gone: context deadline exceeded"
		if err == nil || err.Error() != want {
			t.Errorf("flush: %v", err)
		}
		r.stop()
	})
}

func TestSinkAttachedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		old := &fakeSink{name: "old"}
		r := start(t, dir, Config{}, old)
		linkOf(t, r.spool, 1)
		unitOf(t, r.spool, unit(1, 1), 1)
		r.flush(t)
		r.stop()
		late := &fakeSink{name: "late"}
		r = start(t, dir, Config{}, old, late)
		since := r.spool.Last()
		st, err := r.engine.Status()
		if err != nil || st[1].Since != since || st[0].Since != 0 {
			t.Fatalf("status %+v, %v, want the late sink since %d", st, err, since)
		}
		unitOf(t, r.spool, unit(1, 2), 1) // the epoch goes on
		linkOf(t, r.spool, 2)             // another begins
		unitOf(t, r.spool, unit(2, 1), 1)
		r.flush(t)
		wantCertified(t, late, 2, 1)
		for _, rec := range late.records() {
			if rec.rec.Stream == testStream(1) {
				t.Fatalf("a stream whose beginning was missed goes on: %s", rec.raw)
			}
		}
		if is, err := r.engine.Behind("late", testStream(1)); err != nil || !is {
			t.Errorf("behind: %v, %v", is, err)
		}
		if lagging, err := r.engine.Lagging(); err != nil || !maps.Equal(lagging, map[string]int{"late": 0}) {
			t.Errorf("lagging: %v, %v", lagging, err)
		}
		base := unit(1, 2)
		base.Form, base.Sink, base.Position.Commit = FormRecords, "late", 3
		end, err := envelope.Encode(&envelope.Record{
			Envelope: record(base, envelope.KindSnapshotEnd, "").Envelope,
			Body:     &envelope.SnapshotEnd{SnapshotID: "base-1-2-0", Scope: envelope.ScopeStream},
		})
		if err != nil {
			t.Fatal(err)
		}
		mustAdd(t, r.spool, base, end)
		syncSpool(t, r.spool)
		r.flush(t)
		if marks := late.watermarks(testStream(1)); len(marks) != 1 || marks[0].Through != base.Position || marks[0].Records != 1 || marks[0].From != nil {
			t.Errorf("after the re-base: %+v", marks)
		}
		unitOf(t, r.spool, unit(1, 3), 1)
		r.flush(t)
		wantCertified(t, late, 1, 3)
		if is, err := r.engine.Behind("late", testStream(1)); err != nil || is {
			t.Errorf("behind after the re-base: %v, %v", is, err)
		}
		if lagging, err := r.engine.Lagging(); err != nil || len(lagging) > 0 {
			t.Errorf("lagging after the re-base: %v, %v", lagging, err)
		}
		wantCertified(t, old, 1, 3)
		r.stop()
	})
}

// TestJournalThatFailsIsWaitedFor breaks delivery.db for a while: sinks are
// started again and send the same, and the chain goes on.
func TestJournalThatFailsIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{name: "bucket", batch: 2, every: time.Second}
		r := start(t, t.TempDir(), Config{}, sink)
		linkOf(t, r.spool, 1)
		unitOf(t, r.spool, unit(1, 1), 1)
		time.Sleep(10 * time.Second)
		db := r.engine.journal.db
		for txid := range uint64(6) {
			if _, err := db.Exec("ALTER TABLE account RENAME TO away"); err != nil {
				t.Fatal(err)
			}
			unitOf(t, r.spool, unit(1, txid+2), 1)
			time.Sleep(time.Duration(txid*700) * time.Millisecond)
			if _, err := db.Exec("ALTER TABLE away RENAME TO account"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(txid) * time.Second)
		}
		r.flush(t)
		wantCertified(t, sink, 1, 7)
		st, err := r.engine.Status()
		if err != nil || st[0].Restarts == 0 {
			t.Errorf("status %+v, %v: nothing was noticed", st, err)
		}
		r.stop()
	})
}

func TestForgottenStreamBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{name: "bucket"}
		r := start(t, t.TempDir(), Config{}, sink)
		linkOf(t, r.spool, 1)
		r.flush(t)
		if err := r.engine.Forget(t.Context(), testStream(1)); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := r.engine.Delivered(testStream(1), 3, "bucket"); ok || err != nil {
			t.Errorf("still there: %v, %v", ok, err)
		}
		r.stop()
	})
}

func TestRecordBelowACertifiedPositionStopsTheChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{name: "bucket"}
		r := start(t, t.TempDir(), Config{}, sink)
		linkOf(t, r.spool, 1)
		unitOf(t, r.spool, unit(1, 5), 1)
		r.flush(t)
		before := len(sink.watermarks(testStream(1)))
		unitOf(t, r.spool, unit(1, 4), 1)
		unitOf(t, r.spool, unit(1, 6), 1)
		r.flush(t)
		if marks := sink.watermarks(testStream(1)); len(marks) != before || marks[before-1].Through.TXID != 5 {
			t.Errorf("%d watermarks, want the %d from before", len(marks), before)
		}
		if d, _, err := r.engine.Delivered(testStream(1), 3, "bucket"); err != nil || !d.Uncertified {
			t.Errorf("delivered %+v, %v", d, err)
		}
		r.stop()
	})
}

func TestOldEpochsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{name: "bucket"}
		r := start(t, t.TempDir(), Config{}, sink)
		for epoch := range uint64(10) {
			u := unit(1, 1)
			u.Position.Epoch = epoch + 1
			unitOf(t, r.spool, u, 1)
			r.flush(t)
		}
		var kept []uint64
		for epoch := range uint64(10) {
			if _, ok, _ := r.engine.Delivered(testStream(1), epoch+1, "bucket"); ok {
				kept = append(kept, epoch+1)
			}
		}
		if !slices.Equal(kept, []uint64{7, 8, 9, 10}) {
			t.Errorf("accounts kept of epochs %v", kept)
		}
		if got := certificate(t, sink.records()); len(got) != 10 {
			t.Errorf("%d epochs certified", len(got))
		}
		r.stop()
	})
}

// TestOldEpochOnItsWayIsKept: a watermark that comes behind the entries of
// many later epochs is the beginning of a chain still.
func TestOldEpochOnItsWayIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{name: "bucket", fail: func(seq uint64) error {
			if seq == 2 {
				time.Sleep(time.Second) // the first watermark is spooled meanwhile
			}
			return nil
		}}
		r := start(t, t.TempDir(), Config{}, sink)
		for epoch := range uint64(8) {
			for txid := range uint64(2) {
				u := unit(1, txid+1)
				u.Position.Epoch = epoch + 1
				mustAdd(t, r.spool, u, rowsRecord(u, "t"))
			}
		}
		syncSpool(t, r.spool)
		r.flush(t)
		got := certificate(t, sink.records())
		for epoch := range uint64(8) {
			if at := got[accountKey{testStream(1), epoch + 1}]; at.TXID != 2 {
				t.Errorf("epoch %d is certified to %v", epoch+1, at)
			}
		}
		r.stop()
	})
}

func TestUnusableStateIsRefused(t *testing.T) {
	spool := func(t *testing.T, dir string, n uint64) {
		s := openSpool(t, dir, Options{SegmentBytes: 64})
		for i := range n {
			put(t, s, unit(1, i+1), "x")
		}
		syncSpool(t, s)
		if err := s.SetApplied(n); err != nil {
			t.Fatal(err)
		}
		if err := s.release(n); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	open := func(t *testing.T, spoolDir, dir string) error {
		s := openSpool(t, spoolDir, Options{})
		e, err := New(Config{Spool: s, Dir: dir, Sinks: []sinks.Sink{&fakeSink{name: "bucket"}}})
		if err == nil {
			err = e.Close()
		}
		return err
	}
	t.Run("delivery.db lost", func(t *testing.T) {
		dir := t.TempDir()
		spool(t, dir, 5)
		if err := open(t, dir, t.TempDir()); !errors.Is(err, ErrCorrupt) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("spool lost", func(t *testing.T) {
		dir := t.TempDir()
		j, err := openJournal(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.attach("bucket", 7, false, 0, 0, nil); err != nil {
			t.Fatal(err)
		}
		if err := j.close(); err != nil {
			t.Fatal(err)
		}
		if err := open(t, t.TempDir(), dir); !errors.Is(err, ErrCorrupt) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("newer format", func(t *testing.T) {
		dir := t.TempDir()
		j, err := openJournal(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.db.Exec("PRAGMA user_version = 99"); err != nil {
			t.Fatal(err)
		}
		if err := j.close(); err != nil {
			t.Fatal(err)
		}
		if err := open(t, t.TempDir(), dir); err == nil {
			t.Error("a newer delivery.db was opened")
		}
	})
	t.Run("two sinks of one name", func(t *testing.T) {
		s := openSpool(t, t.TempDir(), Options{})
		_, err := New(Config{Spool: s, Dir: t.TempDir(), Sinks: []sinks.Sink{&fakeSink{name: "a"}, &fakeSink{name: "a"}}})
		if err == nil {
			t.Error("taken")
		}
	})
}

func TestQueueRefusesWhatItDidNotGive(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir+"/spool", Options{})
	unitOf(t, s, unit(1, 1), 1)
	e, err := New(Config{Spool: s, Dir: dir, Sinks: []sinks.Sink{&fakeSink{name: "bucket"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	q := newQueue(e, e.outlets[0])
	if err := q.Ack(1); err == nil {
		t.Error("an entry that was not taken was acknowledged")
	}
	if got, err := q.Load(); got != nil || err != nil {
		t.Errorf("state %q, %v before any was saved", got, err)
	}
	if err := q.Save([]byte("mine")); err != nil {
		t.Fatal(err)
	}
	if got, err := e.SinkState("bucket"); string(got) != "mine" || err != nil {
		t.Errorf("state %q, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Next(ctx, time.Time{}); !errors.Is(err, context.Canceled) {
		t.Errorf("next: %v", err)
	}
	if entry, err := q.Next(t.Context(), time.Now().Add(-time.Second)); entry != nil || err != nil {
		t.Errorf("next after the deadline: %v, %v", entry, err)
	}
}
