package delivery

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/envelope"
)

const (
	// spurnRound is the time between rounds.
	spurnRound = 10 * time.Second
	// mostSpurned are the gaps that may be told in that time: at once, and
	// after waits of a minute, two, four ... and an hour.
	mostSpurned = 9
)

// A place refuses everything of one stream, gaps and watermarks included, in a
// thousand rounds: no more than some gaps are made, whether the stream goes on
// or is quiet, also over restarts, and nothing is held up. Then it takes
// records again: one gap tells of all that was refused before anything behind
// it is certified.
func TestPlaceRefusesAStream(t *testing.T) {
	for _, c := range []spurnCase{{1000, false, 3}, {200, false, 0}, {1000, true, 0}, {200, true, 3}} {
		t.Run(fmt.Sprintf("quiet %v, %d restarts", c.quiet, c.restarts), func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				c.rounds /= 5
			}
			var closed atomic.Bool
			refuse := func(_ uint64, r *envelope.Record) bool { return closed.Load() && r.Stream == testStream(1) }
			inLossy(t, refuse, func(w *lossy) { spurnedStream(w, &closed, c) })
		})
	}
}

// spurnCase is for how many rounds a place refuses, whether the stream has but
// one unit in them, and the restarts meanwhile.
type spurnCase struct {
	rounds   int
	quiet    bool
	restarts int
}

func spurnedStream(w *lossy, closed *atomic.Bool, c spurnCase) {
	w.cells[2] = newLossyCell(2)
	w.begin()
	for n := 1; n <= 2; n++ {
		w.link(n, &envelope.Link{StartTXID: 1, Mode: envelope.ModeFresh})
	}
	w.units(1, 2)
	w.r.flush(w.t)
	before := len(w.two.all())
	closed.Store(true)
	for i := range c.rounds {
		if !c.quiet || i == 0 {
			w.unit(1, false)
		}
		if i%10 == 0 {
			w.unit(2, false)
		}
		time.Sleep(spurnRound)
		w.apply()
		w.tell()
		if i+1 < c.rounds && (i+1)%(c.rounds/(c.restarts+1)) == 0 {
			w.restart(false)
		}
	}
	time.Sleep(spurnRound)
	w.apply()
	gaps, marks, through := spurnedOf(w.two.all()[before:])
	if gaps == 0 || gaps > mostSpurned*(c.restarts+1) || marks > 0 {
		w.t.Errorf("%d gaps and %d watermarks were refused in %d rounds", gaps, marks, c.rounds)
	}
	if bytes, _ := w.r.spool.Usage(); bytes > 64<<10 {
		w.t.Errorf("the spool holds %d bytes, everything is acknowledged", bytes)
	}
	if untold := w.r.engine.Untold(); untold != (Untold{Gaps: 1}) {
		w.t.Errorf("untold are %+v", untold)
	}

	closed.Store(false)
	w.unit(1, false)
	for range 7 {
		time.Sleep(spurnRound)
		w.apply()
		w.tell()
	}
	if untold := w.r.engine.Untold(); untold != (Untold{}) {
		w.t.Errorf("a minute after the place takes records again there are untold %+v", untold)
	}
	w.finish()
	w.check(w.one)
	r := w.check(w.two) // counts, certificates, and that all is told before
	if n := r.gaps[accountKey{testStream(1), 3}]; n != 1 || len(r.holes()) != 1 {
		w.t.Errorf("%d gaps are stored, the consumer knows of %+v", n, r.holes())
	}
	for _, d := range w.two.all() {
		if g, ok := d.rec.Body.(*envelope.Gap); ok && !d.refused && (g.To != through || g.From != (envelope.Position{Epoch: 3, TXID: 2, Commit: 2})) {
			w.t.Errorf("the gap is from %v through %v, refused was all above 2 through %v", g.From, g.To, through)
		}
	}
}

// spurnedOf counts the gaps and watermarks among what was refused, and finds
// the last position of the rest.
func spurnedOf(list []delivered) (gaps, marks int, through envelope.Position) {
	for _, d := range list {
		switch d.rec.Body.(type) {
		case *envelope.Gap:
			if d.refused {
				gaps++
			}
		case *envelope.Watermark:
			if d.refused {
				marks++
			}
		default:
			if d.refused && d.rec.Position.Compare(through) > 0 {
				through = d.rec.Position
			}
		}
	}
	return gaps, marks, through
}

// A place takes the records of a stream and never its gaps: the records are no
// reason to try again and again.
func TestPlaceRefusesGapsAlone(t *testing.T) {
	t.Parallel()
	var closed atomic.Bool
	closed.Store(true)
	refuse := func(_ uint64, r *envelope.Record) bool {
		return r.Position.TXID == 2 && r.Body.Kind() == envelope.KindRows || closed.Load() && r.Body.Kind() == envelope.KindGap
	}
	inLossy(t, refuse, func(w *lossy) {
		w.begin()
		w.link(1, &envelope.Link{StartTXID: 1, Mode: envelope.ModeFresh})
		for range 300 {
			w.unit(1, false)
			time.Sleep(spurnRound)
			w.apply()
			w.tell()
		}
		if gaps, _, _ := spurnedOf(w.two.all()); gaps == 0 || gaps > mostSpurned+1 {
			w.t.Errorf("%d gaps were refused in 300 rounds", gaps)
		}
		closed.Store(false)
		w.finish()
		if r := w.check(w.two); r.gaps[accountKey{testStream(1), 3}] != 1 {
			w.t.Errorf("gaps stored: %v", r.gaps)
		}
	})
}

// A place refuses watermarks: a flush ends all the same, one is made a minute,
// and what they would have said is certified once it takes them.
func TestPlaceRefusesWatermarks(t *testing.T) {
	t.Parallel()
	var closed atomic.Bool
	closed.Store(true)
	refuse := func(_ uint64, r *envelope.Record) bool {
		return closed.Load() && r.Body.Kind() == envelope.KindWatermark
	}
	inLossy(t, refuse, func(w *lossy) {
		w.begin()
		w.link(1, &envelope.Link{StartTXID: 1, Mode: envelope.ModeFresh})
		w.units(1, 3)
		marks := func() int {
			_, n, _ := spurnedOf(w.two.all())
			return n
		}
		for range 3 {
			before, began := marks(), time.Now()
			w.r.flush(w.t)
			if n, took := marks()-before, time.Since(began); n > 2 || took > time.Minute {
				w.t.Errorf("a flush made %d watermarks, all of which are refused, in %v", n, took)
			}
		}
		if untold := w.r.engine.Untold(); untold != (Untold{Watermarks: 1}) {
			w.t.Errorf("untold are %+v", untold)
		}
		before := marks()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := marks() - before; n == 0 || n > 61 {
			w.t.Errorf("%d watermarks in an hour", n)
		}
		closed.Store(false)
		w.finish()
		w.check(w.two)
	})
}
