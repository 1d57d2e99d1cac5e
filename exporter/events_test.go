package exporter_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"celldexport/exporter"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/chain"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
)

// one is a world of one exported cell on a node whose exporter runs.
func one(t *testing.T, layout celldsim.Layout) (*world, *host, *celldsim.Cell) {
	w := newWorld(t, layout)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.run()
	a.sync()
	return w, a, c
}

// An eviction that is given up: the same epoch goes on, its close is taken
// back.
func TestAbandonedEviction(t *testing.T) {
	t.Parallel()
	w, a, c := one(t, celldsim.V06)
	w.must(c.Exec(`INSERT INTO items VALUES('c',3)`))
	w.must(a.node.AbandonEviction(t.Context(), c.Scope()))
	a.sync()
	w.write(c, `INSERT INTO items VALUES('d',4)`)
	a.sync()
	a.halt()
	got := w.equal(c)
	if s := story(got, c.Scope(), 1); strings.Contains(s, "stream") || strings.Count(s, "link") != 1 {
		t.Errorf("story: %s", s)
	}
}

// A close that is in the ledger and was lost with the process, and an eviction
// that was given up then: nothing is spooled before the close is withdrawn.
func TestCloseLostInACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	key := ledger.Key(c.Scope(), "")
	doc, _, err := ledger.Load(t.Context(), w.store, key)
	w.must(err)
	pin, _ := doc.Streams[0].Newest()
	_, err = ledger.Update(t.Context(), w.store, key, strings.NewReader(strings.Repeat("r", 64)), func(d *ledger.Document) error {
		return d.Streams[0].Close(1, c.TXID(), pin.Writer)
	})
	w.must(err)
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	a.once()
	w.equal(c)
	doc, _, err = ledger.Load(t.Context(), w.store, key)
	w.must(err)
	if pin, _ := doc.Streams[0].Newest(); pin.Closed != nil {
		t.Errorf("e1 is exported and closed at %d", *pin.Closed)
	}
}

// A residency that is discarded: what the bucket covers is exported, the rest
// never was.
func TestReset(t *testing.T) {
	t.Parallel()
	w, a, c := one(t, celldsim.V06)
	w.must(c.Exec(`INSERT INTO items VALUES('uploaded',1)`))
	_, err := c.Capture()
	w.must(err)
	w.must(c.Upload(t.Context()))
	w.must(c.Exec(`INSERT INTO items VALUES('discarded',1)`))
	_, err = c.Capture()
	w.must(err)
	w.must(a.node.Reset(c.Scope()))
	a.sync()
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('next',1)`)
	a.sync()
	a.halt()
	got := w.equal(c)
	if s := story(got, c.Scope(), 2); !strings.HasPrefix(s, "1 link clone from 1 prev e1:") || strings.Contains(s, "stream") {
		t.Errorf("story: %s", s)
	}
}

// A node that crashed resumes at its epoch, clamped to what the bucket covers,
// and captures other pages under the numbers it used before.
func TestResumeReusesNumbers(t *testing.T) {
	t.Parallel()
	w, a, c := one(t, celldsim.V06)
	w.must(c.Exec(`INSERT INTO items VALUES('lost',1)`))
	_, err := c.Capture()
	w.must(err)
	w.must(c.Exec(`CREATE TABLE lost(x)`))
	_, err = c.Capture()
	w.must(err)
	a.pending()
	w.must(a.node.Restart(t.Context()))
	c, err = a.node.ActivateWith(t.Context(), celldsim.Activation{Cell: c.Scope(), Name: "one", Resume: true})
	w.must(err)
	w.write(c, `INSERT INTO items VALUES('kept',1)`)
	a.pendingOrDone()
	w.write(c, `INSERT INTO items VALUES('kept2',2)`)
	a.sync()
	a.halt()
	got := w.equal(c)
	if s := story(got, c.Scope(), 1); strings.Contains(s, "lost") || strings.Contains(s, "stream") {
		t.Errorf("story: %s", s)
	}
}

// pending waits until the exporter says that something waits for the bucket.
func (h *host) pending() {
	h.w.t.Helper()
	h.status("something is pending", func(s exporter.Summary) bool { return s.Streams[exporter.StatePending] > 0 })
}

// pendingOrDone waits for a round over what is there.
func (h *host) pendingOrDone() {
	h.w.t.Helper()
	rounds := h.e.Status().Rounds
	h.status("a round went by", func(s exporter.Summary) bool { return s.Rounds > rounds+2 })
}

// An orderly restart of the node goes on in the same epoch.
func TestCleanReload(t *testing.T) {
	t.Parallel()
	for _, layout := range []celldsim.Layout{celldsim.V03, celldsim.V06} {
		w, a, c := one(t, layout)
		w.must(c.Exec(`INSERT INTO items VALUES('c',3)`))
		w.must(a.node.Reload(t.Context()))
		w.write(c, `INSERT INTO items VALUES('d',4)`)
		a.sync()
		a.halt()
		got := w.equal(c)
		if s := story(got, c.Scope(), 1); strings.Contains(s, "stream") {
			t.Errorf("story: %s", s)
		}
	}
}

// A node that crashed and goes on in the next epoch leaves the directory of
// the old one: what the bucket has of it survives, the rest does not.
func TestCrashLeftovers(t *testing.T) {
	t.Parallel()
	w, a, c := one(t, celldsim.V03)
	w.must(c.Exec(`INSERT INTO items VALUES('uploaded',1)`))
	_, err := c.Capture()
	w.must(err)
	w.must(c.Upload(t.Context()))
	w.must(c.Exec(`INSERT INTO items VALUES('lost',1)`))
	_, err = c.Capture()
	w.must(err)
	w.must(a.node.Restart(t.Context()))
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('next',1)`)
	a.sync()
	a.halt()
	w.equal(c)
}

// Another node takes the cell while our newest file was never uploaded: no
// coverage moves, and the fence is seen all the same.
func TestSilentFence(t *testing.T) {
	t.Parallel()
	w, a, c := one(t, celldsim.V03)
	b := w.host("node-b")
	w.must(c.Exec(`INSERT INTO items VALUES('lost',1)`))
	_, err := c.Capture()
	w.must(err)
	a.pending()
	c = w.takeOver(b, c, "one")
	a.status("it is fenced", func(s exporter.Summary) bool { return s.Streams[exporter.StateFenced] == 1 })
	b.run()
	w.write(c, `INSERT INTO items VALUES('next',1)`)
	b.sync()
	a.halt()
	b.halt()
	got := w.equal(c)
	if s := story(got, c.Scope(), 2); strings.Contains(s, "stream") {
		t.Errorf("a closed predecessor is not continued: %s", s)
	}
}

// An epoch whose owner died before its first upload is no part of the
// history: the next one goes on from the epoch before, late appends of its
// old owner included.
func TestEmptyEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a, b, d := w.host("node-a"), w.host("node-b"), w.host("node-d")
	zombie := a.activate("one")
	w.write(zombie, createItems, insertTwo)
	for _, h := range []*host{a, b, d} {
		h.run()
	}
	a.sync()
	c, err := b.node.TakeOver(t.Context(), zombie.Scope(), "one")
	w.must(err)
	b.pending()
	w.must(b.node.Restart(t.Context()))
	w.write(zombie, `INSERT INTO items VALUES('late',1)`)
	c, err = d.node.TakeOver(t.Context(), c.Scope(), "one")
	w.must(err)
	w.write(c, `INSERT INTO items VALUES('next',1)`)
	for _, h := range []*host{a, b, d} {
		h.sync()
		h.halt()
	}
	got := w.equal(c)
	if s := story(got, c.Scope(), 2); s != "" {
		t.Errorf("something of an epoch that never was in the bucket is exported: %s", s)
	}
}

// Lives that nobody exported while the sidecar was down are a re-base. When
// nothing is left of them, the image of the next one still shows everything
// against the state that the consumer holds.
func TestMissedResidencies(t *testing.T) {
	t.Parallel()
	for name, collect := range map[string]bool{"kept": false, "collected": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a, c := one(t, celldsim.V06)
			a.halt()
			for i := range 3 {
				w.write(c, fmt.Sprintf(`INSERT INTO items VALUES('m%d',1)`, i))
				w.must(a.node.Evict(t.Context(), c.Scope(), true))
				c = a.activate("one")
			}
			w.write(c, `DELETE FROM items WHERE sku = 'a'`)
			if collect {
				w.collect(c)
			}
			a.once()
			got := w.equal(c)
			if s := story(got, c.Scope(), c.Epoch()); strings.Contains(s, "end stream") == collect {
				t.Errorf("story: %s", s)
			}
		})
	}
}

// collect deletes the epochs below a cell's own, as celld's retention does.
func (w *world) collect(c *celldsim.Cell) {
	w.t.Helper()
	b, err := json.Marshal(map[string]uint64{"retired_below": c.Epoch()})
	w.must(err)
	_, err = objstore.PutBytes(w.t.Context(), w.store, celld.RetiredKey(c.Scope()), b, objstore.PutOptions{})
	w.must(err)
	files, err := chain.List(w.t.Context(), w.store, c.Scope())
	w.must(err)
	for _, f := range files {
		if f.Epoch < c.Epoch() {
			w.must(w.store.Delete(w.t.Context(), f.Object.Key))
		}
	}
}

// First sight of a cell whose earlier epochs are gone: retired.json says that
// it is no new one.
func TestRetiredCellIsNotFresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	w.collect(c)
	a.once()
	got := w.equal(c)
	if s := story(got, c.Scope(), 2); !strings.Contains(s, "link clone") || !strings.Contains(s, "end stream") {
		t.Errorf("story: %s", s)
	}
}

// A cell whose shadow was given up for the cache, and one whose shadow
// somebody removed: both are made anew from the bucket.
func TestShadowGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.settings.Export.CacheBytes = 1
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.run()
	a.sync()
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	a.sync()
	a.halt()
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	a.once()
	got := w.equal(c)
	if s := story(got, c.Scope(), 2); strings.Contains(s, "stream") {
		t.Errorf("a closed predecessor of ours is not continued: %s", s)
	}
}

// The state of the node that closed an epoch is lost before the next node
// goes on from there: what was never delivered would be missing, so that one
// re-bases.
func TestPredecessorLostItsState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a, b := w.host("node-a"), w.host("node-b")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	w.must(a.node.Handoff(t.Context(), c.Scope(), false))
	a.once()
	a.settings.State = filepath.Join(quickDir(t), "state")
	a.once()
	c = b.activate("one")
	w.write(c, `INSERT INTO items VALUES('next',1)`)
	b.once()
	got := w.equal(c)
	if s := story(got, c.Scope(), 2); !strings.Contains(s, "end stream") {
		t.Errorf("story: %s", s)
	}
}
