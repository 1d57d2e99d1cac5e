package delivery

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/envelope"
)

const lossyTXIDs = 17

// play spools the units above what the spool and the first sink know of, and
// calls between after each.
func (w *lossy) play(between func(txid uint64)) {
	w.t.Helper()
	c := w.cells[1]
	last := w.spooled
	if d, ok, err := w.r.engine.Delivered(testStream(1), 3, w.one.name); err != nil {
		w.t.Fatal(err)
	} else if ok {
		last = max(last, d.Through.TXID)
	}
	for c.txid < last {
		c.change(false)
	}
	for c.txid < lossyTXIDs {
		w.unit(1, false)
		if c.txid%2 == 0 {
			w.apply()
		}
		between(c.txid)
	}
}

// TestRestartAtEveryStepOfARefusal stops the world after every change to the
// disk while a sink's place refuses a record, is away with another one untold,
// is back, gets the stream whole but for what it refuses of it, and is told of
// each: wherever it goes on from, every loss is told by one gap, the stream
// was sent whole once, and everything is certified by true watermarks.
func TestRestartAtEveryStepOfARefusal(t *testing.T) {
	parts := map[string]func(*envelope.Record) bool{
		"a fragment": func(r *envelope.Record) bool {
			b, ok := r.Body.(*envelope.SnapshotRows)
			return ok && b.Table == "a" && r.Fragment == 2
		},
		"everything": func(r *envelope.Record) bool { return r.Origin == envelope.Snapshot },
	}
	for name, part := range parts {
		every := 1
		if name == "everything" {
			every = 5
		}
		if testing.Short() {
			every *= 8 // the race detector sees a part, all are run without it
		}
		t.Run(name, func(t *testing.T) {
			refuse := func(_ uint64, r *envelope.Record) bool {
				at := r.Position.TXID
				return part(r) || r.Body.Kind() == envelope.KindRows && r.Fragment == 1 && (at == 2 || at == 5 || at == 14)
			}
			stopAtEveryStep(t, every, refuse)
		})
	}
}

// lossyMoment is what a crash leaves.
type lossyMoment struct {
	dir, what string
	one, two  []delivered
	away      bool
}

func stopAtEveryStep(t *testing.T, every int, refuse func(uint64, *envelope.Record) bool) {
	root := t.TempDir()
	var moments []lossyMoment
	synctest.Test(t, func(t *testing.T) { moments = lossyLife(t, filepath.Join(root, "first"), refuse) })
	absent, refused := 0, 0
	for _, m := range moments {
		if m.away {
			absent++
		}
		for _, d := range m.two {
			if d.refused {
				refused++
				break
			}
		}
	}
	if len(moments) < 80 || absent < 20 || refused < 40 {
		t.Fatalf("%d moments, %d while detached, %d behind a refusal", len(moments), absent, refused)
	}
	for i, m := range moments {
		if i%every != 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			w := &lossy{t: t, dir: m.dir, fs: osFS{}, cells: map[int]*lossyCell{1: newLossyCell(1)}, absences: 1}
			w.one = newLossySink(t, "bucket", refuseNone).having(t, m.one)
			w.two = newLossySink(t, "kafka", refuse).having(t, m.two)
			w.two.batch = 2
			w.cells[1].next = 1000
			w.begin()
			defer func() { w.r.stop() }()
			w.play(func(uint64) {})
			w.finish()
			w.check(w.one)
			w.check(w.two)
		})
		if t.Failed() {
			t.Fatalf("going on %s", m.what)
		}
		if err := os.RemoveAll(m.dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d moments, %d while detached, %d behind a refusal", len(moments), absent, refused)
}

// lossyLife is the life that is stopped.
func lossyLife(t *testing.T, dir string, refuse func(uint64, *envelope.Record) bool) (moments []lossyMoment) {
	fs := newWatchedFS()
	w := &lossy{t: t, dir: dir, fs: fs, cells: map[int]*lossyCell{1: newLossyCell(1)}}
	w.one, w.two = newLossySink(t, "bucket", refuseNone), newLossySink(t, "kafka", refuse)
	w.two.batch = 3
	w.begin()
	watch := func(after func()) {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		fs.after = after
	}
	watch(func() {
		w.r.engine.journal.changing.Lock()
		defer w.r.engine.journal.changing.Unlock()
		m := lossyMoment{one: w.one.all(), two: w.two.all(), away: w.away()}
		for _, cut := range []bool{false, true} {
			m.dir, m.what = fs.copyTree(t, dir, cut), fmt.Sprintf("after disk change %d, power cut %v, away %v", len(moments), cut, m.away)
			moments = append(moments, m)
		}
	})
	w.play(func(txid uint64) {
		time.Sleep(1700 * time.Millisecond)
		switch txid {
		case 3:
			w.tell()
		case 5:
			time.Sleep(time.Minute)
			w.two.down.Store(true)
		case 11:
			if !w.room() {
				t.Error("the sink is not detached")
			}
		case 12:
			w.two.down.Store(false)
			time.Sleep(2 * time.Minute)
			w.tell()
			w.rebase()
		case 15:
			w.tell()
		}
	})
	w.finish()
	watch(func() {})
	w.check(w.one)
	r := w.check(w.two)
	if len(r.bases[testStream(1)]) != 1 || r.lost < 4 {
		t.Errorf("whole streams %v, %d records refused", r.bases, r.lost)
	}
	w.r.stop()
	return moments
}
