package delivery

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// moment is what a crash leaves: the state directory and what the sink
// stored.
type moment struct {
	dir    string
	stored []storedRecord
	what   string
}

const scriptTXIDs = 12

// feed plays the exporter: it spools what the script says above the last
// position that the spool or the accounts know, applying as it goes.
func feed(t *testing.T, r *rig, between func()) {
	t.Helper()
	next := uint64(0)
	for e, err := range r.spool.Entries(0) {
		if err != nil {
			t.Fatal(err)
		}
		if f := e.Unit().Form; f == FormUnit || f == FormRecords {
			next = max(next, e.Position().TXID+1)
		}
	}
	if d, ok, err := r.engine.Delivered(testStream(1), 3, "bucket"); err != nil {
		t.Fatal(err)
	} else if ok {
		next = max(next, d.Through.TXID+1)
	}
	for ; next <= scriptTXIDs; next++ {
		u := unit(1, next)
		if next == 0 {
			u.Form = FormRecords
			mustAdd(t, r.spool, u, linkRecord(u))
		} else {
			var recs []envelope.Encoded
			for i := range next % 3 { // some units have none
				recs = append(recs, rowsRecord(u, fmt.Sprint("t", i)))
			}
			mustAdd(t, r.spool, u, recs...)
		}
		if next%2 == 0 {
			syncSpool(t, r.spool)
			if err := r.spool.SetApplied(r.spool.Last()); err != nil {
				t.Fatal(err)
			}
		}
		between()
	}
	closing := unit(1, scriptTXIDs)
	closing.Form = FormClose
	mustAdd(t, r.spool, closing)
	syncSpool(t, r.spool)
}

// TestRestartAtEveryStep stops the world after every change to the disk, both
// as a kill and as a power cut would leave it, and goes on from there: what
// the sink ends up with is certified to the end, by true watermarks, and
// resends are the same bytes.
func TestRestartAtEveryStep(t *testing.T) {
	root := t.TempDir()
	var moments []moment
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(root, "first")
		fs := newWatchedFS()
		sink := &fakeSink{name: "bucket", batch: 3, every: time.Second}
		r := startOn(t, dir, fs, sink)
		look := func(what string) {
			sink.keeping.Lock()
			defer sink.keeping.Unlock()
			stored := slices.Clone(sink.stored)
			moments = append(moments,
				moment{fs.copyTree(t, dir, false), stored, what},
				moment{fs.copyTree(t, dir, true), stored, what + ", power cut"})
		}
		fs.mu.Lock()
		fs.after = func() {
			r.engine.journal.changing.Lock()
			defer r.engine.journal.changing.Unlock()
			look(fmt.Sprint("after disk change ", len(moments)))
		}
		fs.mu.Unlock()
		feed(t, r, func() { time.Sleep(700 * time.Millisecond) })
		r.flush(t)
		fs.mu.Lock()
		fs.after = func() {}
		fs.mu.Unlock()
		r.stop()
		wantCertified(t, sink, 1, scriptTXIDs)
	})
	if len(moments) < 100 {
		t.Fatalf("only %d moments: the disk was not watched", len(moments))
	}
	for i, m := range moments {
		if testing.Short() && i%8 != 0 {
			continue // the race detector sees a part, all are run without it
		}
		synctest.Test(t, func(t *testing.T) {
			sink := &fakeSink{name: "bucket", batch: 4, every: time.Second, stored: m.stored}
			r := startOn(t, m.dir, osFS{}, sink)
			feed(t, r, func() {})
			r.flush(t)
			r.stop()
			wantCertified(t, sink, 1, scriptTXIDs)
		})
		if t.Failed() {
			t.Fatalf("going on %s", m.what)
		}
		if err := os.RemoveAll(m.dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d moments", len(moments))
}

func startOn(t *testing.T, dir string, fs FS, list ...sinks.Sink) *rig {
	t.Helper()
	spool, err := OpenSpool(dir+"/spool", Options{SegmentBytes: 4 << 10, FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, dir, spool, Config{}, list...)
}

func startWith(t *testing.T, dir string, spool *Spool, cfg Config, list ...sinks.Sink) *rig {
	t.Helper()
	cfg.Spool, cfg.Sinks, cfg.Dir = spool, list, dir
	engine, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	return &rig{spool: spool, engine: engine, stop: func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
		if err := spool.Close(); err != nil {
			t.Error(err)
		}
	}}
}
