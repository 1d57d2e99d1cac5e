package exporter_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
)

// sleeping is a world of one exported cell that was evicted, with the txid at
// which its first epoch was closed.
func sleeping(t *testing.T, layout celldsim.Layout) (w *world, a *host, c *celldsim.Cell, end uint64) {
	w = newWorld(t, layout)
	a = w.host("node-a")
	c = a.activate("one")
	w.write(c, createItems+`; CREATE TABLE other(id INTEGER PRIMARY KEY, v)`, insertTwo)
	a.once()
	w.must(a.node.Handoff(t.Context(), c.Scope(), false))
	a.once()
	return w, a, c, c.TXID()
}

// without deletes the first captured files of a cell from the node's disk.
func (w *world) without(c *celldsim.Cell, through uint64) {
	w.t.Helper()
	for txid := uint64(1); txid <= through; txid++ {
		err := os.Remove(filepath.Join(c.LTXDir(), ltxfile.FileName(txid, txid)))
		if !errors.Is(err, os.ErrNotExist) {
			w.must(err)
		}
	}
}

// The first files of an epoch are gone from the node's disk, just as many as
// the epoch before had: that alone does not make it a paged one, and its own
// first transactions come from the bucket.
func TestFirstFilesLostIsNotPaged(t *testing.T) {
	t.Parallel()
	for name, merged := range map[string]bool{"as they were": false, "merged": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a, c, end := sleeping(t, celldsim.V03)
			c = a.activate("one")
			for c.TXID() < end {
				w.must(c.Exec(fmt.Sprintf(`INSERT INTO other VALUES(%d,'missed')`, c.TXID())))
				_, err := c.Capture()
				w.must(err)
			}
			if merged {
				w.must(c.UploadMerged(t.Context()))
			}
			w.write(c, `INSERT INTO items VALUES('c',3)`)
			w.without(c, end)
			if left := a.once(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			got := w.equal(c)
			if s := story(got, c.Scope(), 2); !strings.HasPrefix(s, "1 link clone from 1 prev e1:") || strings.Contains(s, "end stream") {
				t.Errorf("story: %s", s)
			}
		})
	}
}

// The marker of a paged epoch is gone from the node's disk: the bucket has it.
func TestMarkerLostOnDisk(t *testing.T) {
	t.Parallel()
	for name, merged := range map[string]bool{"in the bucket": false, "merged with what follows": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a, c, end := sleeping(t, celldsim.V06)
			c, err := a.node.ActivateWith(t.Context(), celldsim.Activation{Cell: c.Scope(), Name: "one", Paged: true})
			w.must(err)
			w.must(c.Exec(`INSERT INTO items VALUES('c',3)`))
			_, err = c.Capture()
			w.must(err)
			if merged {
				w.must(c.UploadMerged(t.Context()))
			}
			w.write(c, `DELETE FROM items WHERE sku = 'a'`)
			w.without(c, end+1)
			if left := a.once(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			got := w.equal(c)
			s := story(got, c.Scope(), 2)
			if want := fmt.Sprintf("%d link paged from %d prev e1:%d", end+1, end+1, end); !merged && (!strings.HasPrefix(s, want) || strings.Contains(s, "snapshot")) {
				t.Errorf("story: %s", s)
			}
			if merged && !strings.Contains(s, "end stream") {
				t.Errorf("no marker was seen, and it did not re-base: %s", s)
			}
		})
	}
}

// An epoch that nobody exported ends at the very number at which the one
// before was closed, and the bucket does not list it yet when a paged one is
// built on it. That one is not taken for a continuation of the closed one.
func TestPagedOverAnEpochThatIsListedLate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		upload func(w *world, c *celldsim.Cell)
		// unlisted is how many rounds the listing lags, 0 for the whole test.
		unlisted int
		lost     bool
	}{
		"uploaded one by one":         {upload: func(*world, *celldsim.Cell) {}},
		"uploaded merged":             {upload: func(w *world, c *celldsim.Cell) { w.must(c.UploadMerged(w.t.Context())) }},
		"and shown after some rounds": {upload: func(*world, *celldsim.Cell) {}, unlisted: 2},
		"under no name to be guessed, and shown after some rounds": {upload: func(w *world, c *celldsim.Cell) {
			w.must(c.UploadThrough(w.t.Context(), 1))
			w.must(c.UploadMerged(w.t.Context()))
		}, unlisted: 6},
		"with lost state": {upload: func(*world, *celldsim.Cell) {}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a, c, end := sleeping(t, celldsim.V03)
			b := w.host("node-b")
			c = b.activate("one")
			for c.TXID() < end {
				w.must(c.Exec(fmt.Sprintf(`INSERT INTO other VALUES(%d,'missed')`, c.TXID())))
				_, err := c.Capture()
				w.must(err)
			}
			test.upload(w, c)
			w.must(b.node.Handoff(t.Context(), c.Scope(), false))
			c, err := a.node.ActivateWith(t.Context(), celldsim.Activation{Cell: c.Scope(), Name: "one", Paged: true})
			w.must(err)
			if files := c.Pending(); files[0] != end+1 {
				t.Fatalf("the epoch begins at txid %d", files[0])
			}
			w.write(c, `INSERT INTO items VALUES('c',3)`)
			if test.lost {
				w.must(os.RemoveAll(a.settings.State))
			}
			x := a.byHand()
			hidden := celld.LTXEpochPrefix(c.Scope(), 2)
			show := x.fault.Add(objstore.Rule{Op: objstore.OpList, Hide: func(o objstore.Object) bool { return strings.HasPrefix(o.Key, hidden) }})
			if test.unlisted > 0 {
				x.rounds(test.unlisted)
			} else {
				x.rounds(60)
			}
			if s := story(w.consumer(), c.Scope(), 3); s != "" {
				t.Errorf("while e2 is not listed: %s", s)
			}
			show()
			x.rounds(200)
			got := w.equal(c)
			if s := story(got, c.Scope(), 3); !strings.Contains(s, "end stream") {
				t.Errorf("story: %s", s)
			}
		})
	}
}

// A paged epoch over one that never was in the bucket: it waits for some
// rounds, in case a listing lags, and goes on from the closed one.
func TestPagedOverAnEmptyEpoch(t *testing.T) {
	t.Parallel()
	w, a, c, end := sleeping(t, celldsim.V06)
	b := w.host("node-b")
	b.activate("one")
	w.must(b.node.Restart(t.Context()))
	c, err := a.node.ActivateWith(t.Context(), celldsim.Activation{Cell: c.Scope(), Name: "one", Paged: true, TakeOver: true})
	w.must(err)
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	got := w.equal(c)
	if s := story(got, c.Scope(), 3); !strings.HasPrefix(s, fmt.Sprintf("%d link paged from %d prev e1:%d", end+1, end+1, end)) || strings.Contains(s, "snapshot") {
		t.Errorf("story: %s", s)
	}
}

// A directory of an epoch that own.json does not know ends nothing: it is
// named, and when it is gone the epoch goes on as if nothing had been.
func TestStrayEpoch(t *testing.T) {
	t.Parallel()
	w, a, c := one(t, celldsim.V03)
	stray := celld.EpochDir(a.settings.Watch, celld.Scope{Cell: c.Scope()}, 99)
	w.must(os.MkdirAll(stray, 0o755))
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	until(t, "the stray directory is named", func() bool {
		s := a.e.Status()
		return len(s.Trouble) == 1 && strings.Contains(s.Trouble[0].Status.Reason, "e99")
	})
	if at := w.closedAt(c.Scope(), 1); at != "open" {
		t.Errorf("e1 is closed at %s while own.json shows it with this node", at)
	}
	a.halt()
	w.must(os.Remove(stray))
	a.run()
	a.sync()
	a.halt()
	got := w.equal(c)
	if s := story(got, c.Scope(), 1); !strings.HasSuffix(s, "rows items/1 I") {
		t.Errorf("story: %s", s)
	}
}

// An activation that is seen before anything of it is captured ends the epoch
// before in the ledger, so that whoever takes the cell next goes on from there.
func TestNewEpochWithoutFilesClosesTheLast(t *testing.T) {
	t.Parallel()
	w, a, c := one(t, celldsim.V03)
	w.must(a.node.Restart(t.Context()))
	_, err := a.node.ActivateWith(t.Context(), celldsim.Activation{Cell: c.Scope(), Name: "one", Deferred: true})
	w.must(err)
	until(t, "e1 is closed", func() bool { return w.closedAt(c.Scope(), 1) != "open" })
}

// A stream keeps its script: another one named later is an error of it, said
// aloud, and of no other.
func TestAnotherScriptLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	d1, err := a.node.Activate(t.Context(), celld.ClassD1+":"+strings.Repeat("0", 64), "")
	w.must(err)
	w.write(d1, createItems)
	a.once()
	a.settings.Script = "another"
	for range 2 { // in mid-residency, and at the next one
		w.write(c, `INSERT INTO items VALUES('c'||random(),3)`)
		w.write(d1, `INSERT INTO items VALUES('c'||random(),3)`)
		later := a.activate(fmt.Sprint("later", c.Epoch()))
		w.write(later, createItems)
		n := len(w.consumer().Records)
		left := a.briefly(60)
		if len(left) != 1 || left[0].Cell != c.Scope() || !strings.HasPrefix(left[0].Reason, "failed: ") || !strings.Contains(left[0].Reason, `script "shop"`) || !strings.Contains(left[0].Reason, "EXPORTD_SCRIPT") {
			t.Errorf("left: %v", left)
		}
		got := w.equal(d1, later)
		for _, r := range got.Records[n:] {
			if r.Stream.Cell == c.Scope() {
				t.Errorf("a %s of the stream", r.Body.Kind())
			}
		}
		w.must(a.node.Restart(t.Context()))
		c = a.activate("one")
		d1, err = a.node.Activate(t.Context(), d1.Scope(), "")
		w.must(err)
	}
	a.settings.Script = ""
	w.write(c, `INSERT INTO items VALUES('d',3)`)
	w.write(d1, `INSERT INTO items VALUES('d',3)`)
	left := a.briefly(60)
	for _, p := range left { // those that began under the other name
		if p.Cell == c.Scope() || p.Cell == d1.Scope() || !strings.Contains(p.Reason, `script "another"`) {
			t.Errorf("left: %v", p)
		}
	}
	if len(left) != 2 {
		t.Errorf("%d streams are left, want 2: %v", len(left), left)
	}
	got := w.equal(c, d1)
	if id, _ := got.Stream(c.Scope()); id.Script != "shop" {
		t.Errorf("stream %+v", id)
	}
}

// A new deployment of the same script, and of another one that has a class of
// this name, change nothing: the cell's id says whose it is.
func TestRedeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	for i, script := range []string{"shop", "blog"} {
		prefix := fmt.Sprintf("deploy/versions/%d", i)
		for key, doc := range map[string]string{
			"deploy/current.json":     fmt.Sprintf(`{"script_name":%q,"version":"%d","prefix":%q}`, script, i, prefix),
			prefix + "/manifest.json": fmt.Sprintf(`{"schema_version":1,"version":"%d","script_name":%q,"do_classes":[%q]}`, i, script, class),
		} {
			_, err := objstore.PutBytes(t.Context(), w.store, key, []byte(doc), objstore.PutOptions{})
			w.must(err)
		}
		w.must(a.node.Restart(t.Context()))
		c = a.activate("one")
		w.write(c, fmt.Sprintf(`INSERT INTO items VALUES('%s',3)`, script))
		if left := a.once(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		got := w.equal(c)
		if id, _ := got.Stream(c.Scope()); id.Script != "shop" {
			t.Errorf("stream %+v", id)
		}
	}
}
