package delivery

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/envelope"
)

// Whatever is refused and whenever, of units, of whole snapshots, of gaps and
// watermarks, while the sink is behind, catching up, detached, not in the
// settings, or answers are lost: its readers certify all that it stored, know
// of every loss by one gap, and have the rows of every stream that has none.
func TestRefusalsOfASinkThatComesAndGoes(t *testing.T) {
	seen := map[string]int{}
	seeds := uint64(24)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { comeAndGo(t, seed, seen) })
		})
	}
	t.Log(seen)
	if testing.Short() {
		return // too few to come to everything; all are run without the race detector
	}
	for _, what := range []string{"detached", "whole", "whole, refused in part", "gap", "refused while detached", "told to one that was away"} {
		if seen[what] == 0 {
			t.Errorf("it never came to: %s", what)
		}
	}
}

func comeAndGo(t *testing.T, seed uint64, seen map[string]int) {
	rnd := rand.New(rand.NewPCG(seed, 11))
	rates := map[envelope.Kind]uint64{
		envelope.KindRows: rnd.Uint64N(20), envelope.KindSnapshot: rnd.Uint64N(12), envelope.KindSnapshotEnd: rnd.Uint64N(30),
		envelope.KindSchema: rnd.Uint64N(5), envelope.KindGap: rnd.Uint64N(30), envelope.KindWatermark: rnd.Uint64N(20),
		envelope.KindLink: rnd.Uint64N(20),
	}
	if seed%2 == 1 { // else too little comes to be refused in snapshots alone
		clear(rates)
		rates[envelope.KindSnapshot], rates[envelope.KindSnapshotEnd] = rnd.Uint64N(10), 10
	}
	w := &lossy{t: t, dir: t.TempDir(), fs: osFS{}, cells: map[int]*lossyCell{}}
	w.one, w.two = newLossySink(t, "bucket", refuseNone), newLossySink(t, "kafka", byChance(seed, rates))
	w.two.batch = 1 + rnd.IntN(5)
	w.alone = rnd.IntN(3) == 0 // it is added later
	w.begin()
	defer func() { w.r.stop() }()
	for n := range 3 {
		w.cells[n] = newLossyCell(n)
		w.link(n, &envelope.Link{StartTXID: 1, Mode: envelope.ModeFresh})
	}
	for range 90 {
		w.step(rnd, seen)
	}
	if w.alone {
		w.restart(false)
	}
	for n, c := range w.cells {
		if c.units == 0 { // else it has nothing to be sent whole
			w.unit(n, false)
		}
	}
	w.finish()
	w.check(w.one)
	r := w.check(w.two)
	for _, n := range r.gaps {
		seen["gap"] += n
	}
	for _, ids := range r.bases {
		for _, whole := range ids {
			seen["whole"]++
			if !whole {
				seen["whole, refused in part"]++
			}
		}
	}
	delete(seen, "was away")
}

// step is one thing that happens.
func (w *lossy) step(rnd *rand.Rand, seen map[string]int) {
	lost := func() (n int) {
		for _, d := range w.two.all() {
			if d.refused {
				n++
			}
		}
		return n
	}
	before, away := lost(), w.away()
	switch op := rnd.IntN(100); {
	case op < 40:
		w.unit(op%3, false)
	case op < 44:
		w.unit(op%3, true)
	case op < 48:
		w.wake(op % 3)
	case op < 54:
		time.Sleep(time.Duration(op) * time.Second)
	case op < 59:
		w.two.down.Store(true)
	case op < 66:
		w.two.down.Store(false)
		time.Sleep(time.Duration(rnd.IntN(3)) * time.Second)
	case op < 68:
		w.two.deaf.Store(rnd.IntN(2) == 0)
	case op < 76:
		w.rebase()
	case op < 84:
		if w.tell() > 0 && seen["was away"] > 0 {
			seen["told to one that was away"]++
			seen["was away"] = 0
		}
	case op < 87:
		w.restart(w.alone)
	case op < 90:
		w.restart(!w.alone)
	default:
		if w.room() {
			seen["detached"]++
			if w.tell() > 0 {
				w.t.Error("a gap is due for a sink that is away")
			}
		}
	}
	if away {
		seen["refused while detached"] += lost() - before
		if !w.away() {
			seen["was away"]++
		}
	}
}
