package delivery

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/envelope"
	"celldexport/envelope/apply"
	"celldexport/sinks"
)

// inLossy plays in a world with one cell.
func inLossy(t *testing.T, refuse func(uint64, *envelope.Record) bool, play func(*lossy)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &lossy{t: t, dir: t.TempDir(), fs: osFS{}, cells: map[int]*lossyCell{1: newLossyCell(1)}}
		w.one, w.two = newLossySink(t, "bucket", refuseNone), newLossySink(t, "kafka", refuse)
		defer func() { w.r.stop() }()
		play(w)
	})
}

func (w *lossy) units(n, count int) {
	w.t.Helper()
	for range count {
		w.unit(n, false)
		time.Sleep(time.Second)
	}
	w.apply()
}

// holes are the gaps that the second sink's readers know of.
func (r *reader) holes() []apply.GapRow {
	gaps, err := r.state.Gaps()
	if err != nil {
		r.w.t.Fatal(err)
	}
	return gaps
}

// A sink that is added gets a stream whole, and its place refuses some of it:
// that is told by one gap, it is not sent again, and what comes behind it is
// delivered and certified. The next time that the stream is sent whole makes
// it good.
func TestRefusedWholeStream(t *testing.T) {
	fragment := func(n uint32) func(*envelope.Record) bool {
		return func(r *envelope.Record) bool {
			b, ok := r.Body.(*envelope.SnapshotRows)
			return ok && b.Table == "a" && r.Fragments == 3 && r.Fragment == n
		}
	}
	cases := map[string]struct {
		refuse func(*envelope.Record) bool
		lost   int64
		// holes is 0 when the snapshot is complete without what was refused.
		holes int
	}{
		"first fragment":  {fragment(1), 1, 1},
		"second fragment": {fragment(2), 1, 1},
		"last fragment":   {fragment(3), 1, 1},
		"first record": {func(r *envelope.Record) bool {
			b, ok := r.Body.(*envelope.Schema)
			return ok && b.Table == "a"
		}, 1, 0},
		"end": {func(r *envelope.Record) bool { return r.Body.Kind() == envelope.KindSnapshotEnd }, 1, 1},
		"all": {func(r *envelope.Record) bool { return r.Origin == envelope.Snapshot }, 13, 1},
		"some, and a unit behind it": {func(r *envelope.Record) bool {
			b, ok := r.Body.(*envelope.Rows)
			return fragment(2)(r) || ok && b.Table == "a" && r.Position.TXID == 11 && r.Fragment == 1
		}, 2, 1},
	}
	for name, c := range cases {
		for _, batch := range []int{1, 6} {
			t.Run(fmt.Sprint(name, ", batch ", batch), func(t *testing.T) {
				var mended atomic.Bool
				refuse := func(_ uint64, r *envelope.Record) bool { return !mended.Load() && c.refuse(r) }
				inLossy(t, refuse, func(w *lossy) {
					w.two.batch = batch
					refusedWhole(w, c.lost, c.holes, &mended)
				})
			})
		}
	}
}

func refusedWhole(w *lossy, lost int64, holes int, mended *atomic.Bool) {
	w.alone = true
	w.begin()
	w.link(1, &envelope.Link{StartTXID: 1, Mode: envelope.ModeFresh})
	w.units(1, 9)
	w.restart(false)
	w.unit(1, false) // passed over
	w.rebase()
	w.unit(1, false)
	w.unit(1, false)
	time.Sleep(time.Minute)
	if again, err := w.r.engine.Lagging(); err != nil || len(again) > 0 {
		w.t.Errorf("after it was sent whole: %v, %v", again, err)
	}
	for range 3 {
		w.tell()
		w.rebase()
		w.restart(false)
		w.units(1, 2)
	}
	w.finish()
	w.check(w.one)
	r := w.check(w.two)
	if r.lost != lost {
		w.t.Errorf("%d records were refused, want %d", r.lost, lost)
	}
	if n := r.gaps[accountKey{testStream(1), 3}]; n != 1 || len(r.bases[testStream(1)]) != 1 {
		w.t.Errorf("%d gaps, whole streams %v, want one of each", n, r.bases)
	}
	if known := r.holes(); len(known) != holes {
		w.t.Errorf("the consumer knows of %+v", known)
	}
	mended.Store(true)
	w.restart(true)
	w.units(1, 12)
	w.restart(false)
	w.units(1, 1)
	w.finish()
	r = w.check(w.two)
	if holes := r.holes(); len(holes) != 0 || len(r.bases[testStream(1)]) != 2 {
		w.t.Errorf("it is sent whole once more, and the consumer knows of %+v", holes)
	}
}

// One fragment of a record that the place refuses is a record less, whichever
// it is, and its siblings are not counted.
func TestRefusedFragment(t *testing.T) {
	for lost := range uint32(3) {
		t.Run(fmt.Sprint("fragment ", lost+1), func(t *testing.T) {
			refuse := func(_ uint64, r *envelope.Record) bool {
				return r.Fragments == 3 && r.Fragment == lost+1 && r.Position.TXID == 2
			}
			inLossy(t, refuse, func(w *lossy) {
				w.begin()
				c := w.cells[1]
				c.tables = map[string]map[int64]int64{"a": {1: 1}, "b": {}, "c": {}}
				put := func(bodies ...envelope.Body) {
					c.txid++
					c.units++
					w.spool(c.entry(FormUnit, envelope.Position{Epoch: 3, TXID: c.txid, Commit: c.txid}, ""), envelope.Live, bodies...)
				}
				rows := func(table string, ids ...int64) *envelope.Rows {
					var changes []envelope.RowChange
					for _, id := range ids {
						changes = append(changes, lossyChange(envelope.Insert, id, id))
						c.tables[table][id] = id
					}
					b := lossyRows(table, changes)
					return &b
				}
				put(rows("a", 1))
				put(rows("a", 2), rows("b", 1, 2, 3), rows("c", 1))
				put(rows("a", 3))
				w.finish()
				w.check(w.one)
				r := w.check(w.two)
				if r.lost != 1 || r.gaps[accountKey{testStream(1), 3}] != 1 {
					t.Errorf("%d records refused, gaps %v", r.lost, r.gaps)
				}
				for _, m := range r.marks[accountKey{testStream(1), 3}] {
					if m.Through.TXID >= 2 {
						// Units 1 to 3 and the gap, without b's record.
						if m.Through.TXID != 3 {
							t.Errorf("certified in two: %+v", m)
						}
					}
				}
				positions, records := r.held[accountKey{testStream(1), 3}].Between(nil, envelope.Position{Epoch: 3, TXID: 9})
				if positions != 4 || records != 5 {
					t.Errorf("%d positions and %d records are whole, want 4 and 5", positions, records)
				}
			})
		})
	}
}

// A gap is not made for a sink that is away: it would be passed over, round by
// round. Once it is back it is told, once, whether or not the stream is sent
// whole.
func TestGapOfASinkThatIsAway(t *testing.T) {
	for _, told := range []bool{false, true} {
		for _, busy := range []bool{false, true} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("told before %v, busy %v, restart %v", told, busy, restart), func(t *testing.T) {
					refuse := func(_ uint64, r *envelope.Record) bool {
						return r.Position.TXID == 3 && r.Stream == testStream(1) && r.Body.Kind() == envelope.KindRows && r.Fragment == 1
					}
					inLossy(t, refuse, func(w *lossy) {
						w.cells[2] = newLossyCell(2)
						gapWhileAway(w, told, busy, restart)
					})
				})
			}
		}
	}
}

func gapWhileAway(w *lossy, told, busy, restart bool) {
	w.begin()
	for n := range w.cells {
		w.link(n, &envelope.Link{StartTXID: 1, Mode: envelope.ModeFresh})
	}
	w.units(1, 3)
	w.units(2, 3)
	w.two.down.Store(true)
	w.units(2, 12)
	if told && w.tell() != 1 { // the sink is not handed it
		w.t.Error("no gap is due")
	}
	if !w.room() {
		w.t.Fatal("the sink is not detached")
	}
	for i := range 50 {
		if n := w.tell(); n != 0 {
			w.t.Fatalf("%d gaps are due for a sink that is away", n)
		}
		w.units(2, 1)
		if busy {
			w.units(1, 1)
		}
		if restart && i == 25 {
			w.restart(false)
		}
	}
	last := w.r.spool.Last()
	w.two.down.Store(false)
	time.Sleep(2 * time.Minute)
	if w.away() {
		w.t.Fatal("the sink is not back")
	}
	if n := w.tell(); n != 1 {
		w.t.Errorf("%d gaps are due for a sink that is back, want one", n)
	}
	for range 5 {
		time.Sleep(time.Minute)
		if n := w.tell(); n != 0 {
			w.t.Errorf("%d gaps are due again", n)
		}
	}
	if grown := w.r.spool.Last() - last; grown > 8 {
		w.t.Errorf("%d entries were spooled", grown)
	}
	w.finish()
	w.check(w.one)
	r := w.check(w.two)
	if n := r.gaps[accountKey{testStream(1), 3}]; n != 1 {
		w.t.Errorf("%d gaps", n)
	}
	if n := len(r.bases[testStream(1)]); busy != (n == 1) || n > 1 || len(r.bases[testStream(2)]) != 1 {
		w.t.Errorf("whole streams %v", r.bases)
	}
	if holes := r.holes(); busy != (len(holes) == 0) {
		w.t.Errorf("the consumer knows of %+v", holes)
	}
}

// Two gaps of an epoch are under way and the first is refused: the second
// tells the same and more, no third is due.
func TestRefusedGapBeforeAnother(t *testing.T) {
	var gaps atomic.Int32
	refuse := func(_ uint64, r *envelope.Record) bool {
		switch r.Body.Kind() {
		case envelope.KindGap:
			time.Sleep(10 * time.Second)
			return gaps.Add(1) == 1
		case envelope.KindRows:
			if r.Position.TXID == 3 {
				time.Sleep(10 * time.Second)
			}
			return r.Position.TXID > 1
		}
		return false
	}
	inLossy(t, refuse, func(w *lossy) {
		w.begin()
		w.unit(1, false)
		w.unit(1, false)
		w.unit(1, false)
		time.Sleep(time.Second)
		if n := w.tell(); n != 1 {
			t.Fatalf("%d gaps are due behind the second unit", n)
		}
		for told := 0; told == 0; told = w.tell() {
			time.Sleep(time.Second)
		}
		if gaps.Load() != 0 {
			t.Fatal("the first gap has arrived already")
		}
		for range 30 {
			time.Sleep(time.Second)
			if n := w.tell(); n != 0 {
				t.Errorf("%d gaps are due, one is under way", n)
			}
		}
		w.finish()
		r := w.check(w.two)
		if n := r.gaps[accountKey{testStream(1), 3}]; n != 1 || gaps.Load() != 2 {
			t.Errorf("%d gaps arrived, %d were sent", n, gaps.Load())
		}
	})
}

// forgetful refuses in its first run and ends before it acknowledges; by the
// second the place has changed.
type forgetful struct {
	*lossySink
	runs atomic.Int32
}

func (f *forgetful) Run(ctx context.Context, q sinks.Queue) error {
	if f.runs.Add(1) > 1 {
		return f.lossySink.Run(ctx, q)
	}
	e, err := q.Next(ctx, time.Time{})
	if err != nil || e == nil {
		return err
	}
	return errors.Join(q.Refuse(e.Seq(), sinks.Refusal{Record: 0, Reason: "too large"}), errors.New("the connection is lost"))
}

// What a run refused counts with its acknowledgement alone: the next run sends
// the record again, and when it is stored then, nothing is missing.
func TestRefusalWithoutAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &lossy{t: t, dir: t.TempDir(), fs: osFS{}, cells: map[int]*lossyCell{1: newLossyCell(1)}}
		w.one = newLossySink(t, "kafka", refuseNone)
		w.two = w.one
		w.r = startWith(t, w.dir, openSpool(t, w.dir+"/spool", Options{}), Config{}, &forgetful{lossySink: w.one})
		defer w.r.stop()
		w.units(1, 3)
		w.finish()
		if r := w.check(w.one); r.lost != 0 || len(r.gaps) != 0 {
			t.Errorf("%d records refused, gaps %v", r.lost, r.gaps)
		}
	})
}
