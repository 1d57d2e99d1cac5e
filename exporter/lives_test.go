package exporter_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"celldexport/envelope"
	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
)

// A given-up eviction whose files had vanished: the ledger has the close while
// they are gone, and nothing of the epoch is spooled until it is taken back.
func TestCloseIsWithdrawnBeforeTheNextUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a").byHand()
	c := a.activate("one")
	key := ledger.Key(c.Scope(), "")
	w.write(c, createItems, insertTwo)
	a.rounds(3)
	w.must(a.node.AbandonEvictionLate(t.Context(), c.Scope(), func() error { a.rounds(3); return nil }))
	if at := w.closedAt(c.Scope(), 1); at != "3" {
		t.Fatalf("while its files are gone e1 is closed at %s", at)
	}
	mend := a.fault.Add(objstore.Rule{Op: objstore.OpPut, Key: func(k string) bool { return k == key }, Before: errInjected})
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	a.rounds(10)
	if s := story(w.consumer(), c.Scope(), 1); !strings.HasSuffix(s, "3 rows items/1 II") {
		t.Errorf("before the close is taken back: %s", s)
	}
	mend()
	a.rounds(100)
	if at := w.closedAt(c.Scope(), 1); at != "open" {
		t.Errorf("e1 goes on and is closed at %s", at)
	}
	got := w.equal(c)
	if s := story(got, c.Scope(), 1); !strings.HasSuffix(s, "rows items/1 I") || strings.Count(s, "link") != 1 || strings.Contains(s, "end stream") {
		t.Errorf("story: %s", s)
	}
}

// What comes back after a given-up eviction begins with a file that is broken
// for good: the re-base that gets over it takes the close back first, and whoever
// goes on from the epoch does so from its real end.
func TestCloseIsWithdrawnBeforeALeap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a").byHand()
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.rounds(3)
	w.must(c.Exec(`UPDATE items SET qty = 100 WHERE sku = 'a'`))
	_, err := c.Capture()
	w.must(err)
	w.must(a.node.AbandonEvictionLate(t.Context(), c.Scope(), func() error {
		_, err := objstore.PutBytes(t.Context(), w.store, celld.LTXKey(c.Scope(), 1, 0, 4, 4), []byte("no LTX file"), objstore.PutOptions{})
		a.rounds(20)
		return err
	}))
	if at := w.closedAt(c.Scope(), 1); at != "3" {
		t.Fatalf("e1 is closed at %s", at)
	}
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	a.rounds(100)
	if at := w.closedAt(c.Scope(), 1); at != "open" {
		t.Errorf("e1 shows a state above its end and is closed at %s", at)
	}
	if s := story(w.consumer(), c.Scope(), 1); !strings.Contains(s, "snapshot items/1 3") {
		t.Errorf("e1: %s", s)
	}
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	a.rounds(5)
	c = a.activate("one")
	w.write(c, `UPDATE items SET qty = 1 WHERE sku = 'a'`)
	a.rounds(20)
	w.equal(c)
}

// byLedger changes the entry of a cell as its exporter would.
func (w *world) byLedger(scope string, change func(*ledger.Stream, ledger.Writer) error) {
	w.t.Helper()
	_, err := ledger.Update(w.t.Context(), w.store, ledger.Key(scope, ""), strings.NewReader(strings.Repeat("r", 64)), func(d *ledger.Document) error {
		pin, _ := d.Streams[0].Newest()
		return change(&d.Streams[0], pin.Writer)
	})
	w.must(err)
}

// An epoch was pinned and closed, and the process died before its state said
// so: the cell goes on in it, so the close is taken back before anything is
// spooled.
func TestCloseOfAnEpochThatOurStateDoesNotKnow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems)
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	c = a.activate("one") // nothing of e1 was exported: e2 begins with a re-base
	w.write(c, insertTwo)
	a.rig = func(o *exporter.Options) {
		o.Step = func(s exporter.Step) error {
			if s == exporter.StepSnapshot {
				return errInjected
			}
			return nil
		}
	}
	e, err := a.open()
	w.must(err)
	if _, err = e.Once(t.Context(), exportTime); !errors.Is(err, errInjected) {
		t.Fatalf("the run ended with %v", err)
	}
	_ = e.Close() // of a process that is gone
	a.rig = nil
	w.byLedger(c.Scope(), func(s *ledger.Stream, by ledger.Writer) error { return s.Close(2, c.TXID()-1, by) })
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if at := w.closedAt(c.Scope(), 2); at != "open" {
		t.Errorf("e2 goes on and is closed at %s", at)
	}
	w.equal(c)
}

// A close was taken back, the process died before it spooled anything, and the
// cell woke in its next epoch: the close is entered again, and that epoch goes
// on from it.
func TestWithdrawnCloseIsEnteredAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	a.once()
	end := w.closedAt(c.Scope(), 1)
	w.byLedger(c.Scope(), func(s *ledger.Stream, by ledger.Writer) error { return s.Withdraw(1, by) })
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	a.once()
	if at := w.closedAt(c.Scope(), 1); at != end {
		t.Errorf("e1 was closed at %s and is now at %s", end, at)
	}
	got := w.equal(c)
	if s := story(got, c.Scope(), 2); !strings.HasPrefix(s, "1 link clone from 1 prev e1:"+end+";") || strings.Contains(s, "snapshot") {
		t.Errorf("story: %s", s)
	}
}

// The files of a residency vanish with something that was not exported: what
// the bucket covers goes out in that epoch, from the objects, while own.json
// still shows it; what comes after a higher one goes out with that one's image.
func TestFilesVanish(t *testing.T) {
	t.Parallel()
	evicted := func(a *byHand, c *celldsim.Cell) error { return a.node.Evict(t.Context(), c.Scope(), true) }
	handedOff := func(snapshot bool) func(*byHand, *celldsim.Cell) error {
		return func(a *byHand, c *celldsim.Cell) error { return a.node.Handoff(t.Context(), c.Scope(), snapshot) }
	}
	for name, test := range map[string]struct {
		vanish func(a *byHand, c *celldsim.Cell) error
		// woken says that the next epoch begins before the exporter looks.
		woken bool
		one   string // what e1's story ends with
		two   string // what of it e2's says
	}{
		"evicted":             {evicted, false, "rows items/1 III", ""},
		"handed off":          {handedOff(false), false, "rows items/1 III", ""},
		"handed off, level 9": {handedOff(true), false, "rows items/1 III", ""},
		"evicted, and woken":  {evicted, true, "3 rows items/1 II", "rows items/1 III"},
		"reset": {func(a *byHand, c *celldsim.Cell) error {
			err := errors.Join(c.UploadThrough(t.Context(), 5), c.Exec(`INSERT INTO items VALUES('discarded',1)`))
			_, cerr := c.Capture()
			return errors.Join(err, cerr, a.node.Reset(c.Scope()))
		}, false, "4 rows items/1 I; 5 rows items/1 I", ""},
		"left by a crash": {func(a *byHand, c *celldsim.Cell) error {
			return errors.Join(c.UploadThrough(t.Context(), 5), a.node.Restart(t.Context()))
		}, true, "3 rows items/1 II", "rows items/1 II"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, celldsim.V06)
			a := w.host("node-a").byHand()
			c := a.activate("one")
			w.write(c, createItems, insertTwo)
			a.rounds(3)
			for i := range 3 {
				w.must(c.Exec(fmt.Sprintf(`INSERT INTO items VALUES('m%d',1)`, i)))
				_, err := c.Capture()
				w.must(err)
			}
			w.must(test.vanish(a, c))
			scope := c.Scope()
			if !test.woken {
				a.rounds(5)
				if at := w.closedAt(scope, 1); at == "open" {
					t.Error("e1 is not closed")
				}
			}
			c = a.activate("one")
			w.must(c.Upload(t.Context()))
			a.rounds(10)
			got := w.equal(c)
			if s := story(got, scope, 1); !strings.HasSuffix(s, test.one) {
				t.Errorf("e1: %s", s)
			}
			if s := story(got, scope, 2); !strings.HasPrefix(s, "1 link clone from 1 prev e1:") || strings.Contains(s, "snapshot") || strings.Contains(s, "rows items") != (test.two != "") || !strings.HasSuffix(s, test.two) {
				t.Errorf("e2: %s", s)
			}
		})
	}
}

// shownAt are the positions of the whole states that an epoch's stream showed.
func shownAt(c *consumer.Consumer, epoch uint64) (at []envelope.Position) {
	for _, r := range c.Records {
		if end, ok := r.Body.(*envelope.SnapshotEnd); ok && end.Scope == envelope.ScopeStream && r.Position.Epoch == epoch {
			at = append(at, r.Position)
		}
	}
	return at
}

// distinct holds positions to be so many and all different.
func distinct(t *testing.T, at []envelope.Position, want int) {
	t.Helper()
	seen := make(map[envelope.Position]bool)
	for _, p := range at {
		if seen[p] {
			t.Errorf("position %v is taken twice", p)
		}
		seen[p] = true
	}
	if len(seen) != want {
		t.Errorf("states were shown at %v, want %d", at, want)
	}
}

// State directories that come one after the other show the stream at one head:
// no two of them at one position.
func TestPositionsOfLivesAtOneHead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	for range 3 {
		w.must(os.RemoveAll(a.settings.State))
		a.once()
	}
	got := w.same(c)
	at := shownAt(got, 1)
	distinct(t, at, 3)
	for _, p := range at {
		if p.TXID != c.TXID() {
			t.Errorf("shown at %v, the head is %d", p, c.TXID())
		}
	}
}

// A life shows the stream twice at one head, since the listing does not have
// the next transaction yet: the second time at a position of its own. A
// listing that ends below what is exported shows nothing at all.
func TestReBaseWhileTheListingLags(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		from  uint64 // the first transaction that is not listed
		shown int    // the states shown in the end
		lags  bool
	}{
		"at the head exported": {4, 2, false},
		"below it":             {3, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, celldsim.V06)
			a := w.host("node-a")
			c := a.activate("one")
			w.write(c, createItems, insertTwo)
			a.once()
			w.must(os.RemoveAll(a.settings.State))
			a.once()
			shadows, err := filepath.Glob(filepath.Join(a.settings.State, "shadow", "*"))
			w.must(err)
			for _, path := range shadows {
				w.must(os.Remove(path))
			}
			w.write(c, `INSERT INTO items VALUES('c',3)`)
			x := a.byHand()
			// The proof's listing, of the epoch alone, is answered by another
			// copy of the bucket than that of the whole cell.
			whole := func(prefix string) bool { return prefix == celld.LTXPrefix(c.Scope()) }
			show := x.fault.Add(objstore.Rule{Op: objstore.OpList, Key: whole, Hide: func(o objstore.Object) bool {
				name, ok, _ := celld.ParseLTXKey(o.Key)
				return ok && name.Min >= test.from
			}})
			x.rounds(30)
			if at := shownAt(w.consumer(), 1); test.lags {
				distinct(t, at, 1)
				if s := x.e.Status(); len(s.Trouble) != 1 || !strings.Contains(s.Trouble[0].Status.Reason, "lags") {
					t.Errorf("trouble: %+v", s.Trouble)
				}
			} else {
				distinct(t, at, 2)
			}
			show()
			x.rounds(100)
			distinct(t, shownAt(w.same(c), 1), test.shown)
		})
	}
}
