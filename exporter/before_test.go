package exporter_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"celldexport/exporter"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
	"celldexport/sinks"
	"celldexport/sinks/bucket"
)

// An exporter that the node had of its own linked the epoch that goes on: ours
// says nothing of that epoch, through restarts and the loss of its state, and
// begins with the next activation, wherever that is. Cells that come later
// are exported from their first transaction.
func TestOwnExporterBefore(t *testing.T) {
	t.Parallel()
	for name, wake := range map[string]func(w *world, a *host, c *celldsim.Cell) (*host, *celldsim.Cell){
		"wakes with its image": func(w *world, a *host, c *celldsim.Cell) (*host, *celldsim.Cell) {
			w.must(a.node.Evict(t.Context(), c.Scope(), true))
			return a, a.activate("one")
		},
		"wakes paged": func(w *world, a *host, c *celldsim.Cell) (*host, *celldsim.Cell) {
			w.must(a.node.Handoff(t.Context(), c.Scope(), false))
			next, err := a.node.ActivateWith(t.Context(), celldsim.Activation{Cell: c.Scope(), Name: "one", Paged: true})
			w.must(err)
			return a, next
		},
		"wakes after a crash": func(w *world, a *host, c *celldsim.Cell) (*host, *celldsim.Cell) {
			w.must(a.node.Restart(w.t.Context()))
			return a, a.activate("one")
		},
		"wakes elsewhere": func(w *world, a *host, c *celldsim.Cell) (*host, *celldsim.Cell) {
			return w.host("node-b"), w.takeOver(w.nodes["node-b"], c, "one")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a, c := forked(t)
			before := len(said(w.consumer(), c.Scope(), 2))
			a.leftTo(c)
			w.write(c, `DELETE FROM items WHERE sku = 'a'`)
			a.leftTo(c)
			w.must(os.RemoveAll(a.settings.State))
			w.write(c, `INSERT INTO items VALUES('lost',5)`)
			a.leftTo(c)
			later := a.activate("later")
			w.write(later, createItems, insertTwo)
			a.leftTo(c)
			got := w.equal(later)
			if s := story(got, later.Scope(), 1); !strings.HasPrefix(s, "1 link fresh from 1 prev none") {
				t.Errorf("a cell that came later: %s", s)
			}
			if n := len(said(got, c.Scope(), 2)); n != before {
				t.Errorf("%d records of e2 came after the node's own exporter: %s", n-before, story(got, c.Scope(), 2))
			}

			head := c.TXID()
			h, c := wake(w, a, c)
			w.write(c, `INSERT INTO items VALUES('new',6)`)
			if left := h.once(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			got = w.consumer()
			sound(w, "bucket", got, c)
			if n := len(said(got, c.Scope(), 2)); n != before {
				t.Errorf("%d records of e2 came with e3: %s", n-before, story(got, c.Scope(), 2))
			}
			s := story(got, c.Scope(), 3)
			if want := fmt.Sprintf("%d link clone from %d prev e2:%d;", c.TXID(), c.TXID(), head); !strings.HasPrefix(s, want) || !strings.Contains(s, "end stream") {
				t.Errorf("e3 is no re-base that begins with %s\n%s", want, s)
			}
			w.write(c, `DELETE FROM items WHERE sku = 'own'`)
			h.once()
			got = w.consumer()
			sound(w, "bucket", got, c)
			if s := story(got, c.Scope(), 3); !strings.HasSuffix(s, "rows items/1 D") {
				t.Errorf("e3 does not go on: %s", s)
			}
		})
	}
}

// The epoch may go on after it was interrupted, with our state lost in between:
// it stays that of the exporter before.
func TestOwnExporterAndSameEpoch(t *testing.T) {
	t.Parallel()
	for name, goOn := range map[string]func(w *world, a *host, c *celldsim.Cell) *celldsim.Cell{
		"reloaded": func(w *world, a *host, c *celldsim.Cell) *celldsim.Cell {
			w.must(a.node.Reload(w.t.Context()))
			return c
		},
		"eviction given up": func(w *world, a *host, c *celldsim.Cell) *celldsim.Cell {
			w.must(a.node.AbandonEviction(w.t.Context(), c.Scope()))
			return c
		},
		"resumed after a crash": func(w *world, a *host, c *celldsim.Cell) *celldsim.Cell {
			w.must(a.node.Restart(w.t.Context()))
			next, err := a.node.ActivateWith(w.t.Context(), celldsim.Activation{Cell: c.Scope(), Name: "one", Resume: true})
			w.must(err)
			return next
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a, c := forked(t)
			before := len(w.consumer().Records)
			a.leftTo(c)
			c = goOn(w, a, c)
			w.write(c, `INSERT INTO items VALUES('again',5)`)
			w.must(os.RemoveAll(a.settings.State))
			a.leftTo(c)
			if n := len(w.consumer().Records); n != before {
				t.Errorf("%d records went out", n-before)
			}
			w.must(a.node.Evict(t.Context(), c.Scope(), true))
			c = a.activate("one")
			w.write(c, `INSERT INTO items VALUES('new',6)`)
			a.once()
			sound(w, "bucket", w.consumer(), c)
		})
	}
}

// Without an object that an exporter of this node wrote there was none, whatever
// other nodes or people left.
func TestNoExporterBefore(t *testing.T) {
	t.Parallel()
	for _, other := range []string{
		"", bucket.Prefix + "node-ab/2026/01/01/00/1-00000001.parquet.old", bucket.Prefix + "node/own-exporter", bucket.Prefix + "node-a",
		bucket.Prefix + "node-a/README", bucket.Prefix + "node-a/1970/01/01/00/1-00000001.parquet.tmp", "export/tombstones/node-a/x",
	} {
		w := newWorld(t, celldsim.V06)
		a := w.host("node-a")
		if other != "" {
			_, err := objstore.PutBytes(t.Context(), w.store, other, []byte("x"), objstore.PutOptions{})
			w.must(err)
		}
		fresh, woken := a.activate("fresh"), a.activate("woken")
		w.write(fresh, createItems, insertTwo)
		w.write(woken, createItems)
		w.must(a.node.Evict(t.Context(), woken.Scope(), true))
		woken = a.activate("woken")
		w.write(woken, insertTwo)
		if left := a.once(); len(left) > 0 {
			t.Errorf("%q: left %v", other, left)
		}
		got := w.consumer()
		sound(w, "bucket", got, fresh, woken)
		if s := story(got, fresh.Scope(), 1); !strings.HasPrefix(s, "1 link fresh") {
			t.Errorf("%q: %s", other, s)
		}
		if s := story(got, woken.Scope(), 2); !strings.Contains(s, "link clone") || !strings.Contains(s, "end stream") {
			t.Errorf("%q: %s", other, s)
		}
		if keys := w.keys("exportd/residents/"); len(keys) > 0 {
			t.Errorf("%q: a list is made: %v", other, keys)
		}
	}
}

// A node that exported to a broker has left no object; one that is put there by
// hand says the same, and disturbs nothing.
func TestOwnExporterToldByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	_, err := objstore.PutBytes(t.Context(), w.store, bucket.Prefix+"node-a/own-exporter", nil, objstore.PutOptions{})
	w.must(err)
	a.leftTo(c)
	if n := len(w.consumer().Records); n > 0 {
		t.Errorf("%d records went out", n)
	}
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('new',6)`)
	a.once()
	got := w.consumer()
	sound(w, "bucket", got, c)
	if s := story(got, c.Scope(), 2); !strings.Contains(s, "link clone") || !strings.Contains(s, "end stream") {
		t.Errorf("e2 is no re-base: %s", s)
	}
}

// Starts that are cut short at any step between the look for another
// exporter's objects and the list of what is left to it change nothing of it:
// what is there at the first round is left, what comes after is not.
func TestOwnExporterAndStartsCutShort(t *testing.T) {
	t.Parallel()
	cut := errors.New("cut short")
	node, list := ledger.NodeKey("node-a"), ledger.ResidentsKey("node-a")
	is := func(want string) func(string) bool { return func(key string) bool { return key == want } }
	for name, rules := range map[string][]objstore.Rule{
		"no listing":               {{Op: objstore.OpList, Key: is(bucket.Prefix + "node-a/"), Before: cut}},
		"claim refused":            {{Op: objstore.OpPut, Key: is(node), Before: cut}, {Op: objstore.OpGet, Key: is(node), Skip: 1, Before: cut}},
		"claim stored, not heard":  {{Op: objstore.OpPut, Key: is(node), After: cut}, {Op: objstore.OpGet, Key: is(node), Skip: 1, Before: cut}},
		"claimed, list not asked":  {{Op: objstore.OpGet, Key: is(list), Before: cut}},
		"claimed, list not stored": {{Op: objstore.OpPut, Key: is(list), Before: cut}},
		"list stored, not heard":   {{Op: objstore.OpPut, Key: is(list), After: cut}, {Op: objstore.OpGet, Key: is(list), Skip: 1, Before: cut}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a, c := forked(t)
			before := len(w.consumer().Records)
			for lost := range 2 {
				for _, r := range rules {
					w.fault.Add(r)
				}
				e, err := a.open()
				if err == nil {
					// What the first round needs is cut.
					_, err = e.Once(t.Context(), 200*time.Millisecond)
					// A list that is stored needs no second start.
					if s := e.Status(); !strings.Contains(s.RoundError, cut.Error()) && lost == 0 {
						t.Errorf("the start is not cut short: %+v", s)
					}
					w.must(errors.Join(err, e.Close()))
				} else if !errors.Is(err, cut) {
					t.Errorf("the start is not cut short: %v", err)
				}
				w.fault.Clear()
				if n := len(w.consumer().Records); n != before {
					t.Errorf("start %d: %d records went out", lost, n-before)
				}
				if lost == 0 {
					w.must(os.RemoveAll(a.settings.State))
				}
			}
			a.leftTo(c)
			later := a.activate("later")
			w.write(later, createItems, insertTwo)
			a.leftTo(c)
			w.equal(later)
			w.must(a.node.Evict(t.Context(), c.Scope(), false))
			c = a.activate("one")
			w.write(c, `INSERT INTO items VALUES('new',6)`)
			a.once()
			sound(w, "bucket", w.consumer(), c, later)
		})
	}
}

// The ledger knows the stream from another node, which closed it; this node's
// own exporter had the epoch after that. Neither that epoch nor a difference
// to the close goes out.
func TestOwnExporterOfAKnownStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a, b := w.host("node-a"), w.host("node-b")
	c := b.activate("one")
	w.write(c, createItems, insertTwo)
	b.once()
	w.must(b.node.Handoff(t.Context(), c.Scope(), true))
	b.once()
	a.ownExporter(func() {
		c = a.activate("one")
		// What comes and goes here is in no difference between e1 and e3.
		w.write(c, `INSERT INTO items VALUES('own',3)`)
	})
	sound(w, "bucket", w.consumer(), c)
	before := len(w.consumer().Records)
	w.write(c, `DELETE FROM items WHERE sku = 'own'`)
	a.leftTo(c)
	if n := len(w.consumer().Records); n != before {
		t.Errorf("%d records went out", n-before)
	}
	// Not even what the bucket still has of the epoch decides.
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('new',6)`)
	for _, key := range w.keys("cells/" + c.Scope() + "/ltx/e2/") {
		w.must(w.store.Delete(t.Context(), key))
	}
	a.once()
	got := w.consumer()
	sound(w, "bucket", got, c)
	if s := story(got, c.Scope(), 3); !strings.Contains(s, "end stream") {
		t.Errorf("e3 is no re-base: %s", s)
	}
}

// The node's own exporter is found whatever sink takes over from it, in the
// export bucket that the settings name, and for classes that are exported
// later.
func TestOwnExporterAndOtherSink(t *testing.T) {
	t.Parallel()
	w, a, export := apart(t)
	order := w.fleet.CellID("Order", "one")
	c, err := a.node.Activate(t.Context(), order, "one")
	w.must(err)
	a.ownExporter(func() { w.write(c, createItems, insertTwo) })
	if n := keysBelow(t, export, bucket.Prefix+"node-a/"); n == 0 {
		t.Fatal("the node's own exporter left no object")
	}
	other := newOther(t, "other")
	a.settings.Export.Sinks = nil
	a.settings.Export.Classes = []string{class}
	a.rig = func(o *exporter.Options) { o.Export, o.More = export, []sinks.Sink{other} }
	refused := errors.New("503 on LIST")
	remove := export.Add(objstore.Rule{Op: objstore.OpList, Before: refused})
	if e, err := a.open(); !errors.Is(err, refused) {
		t.Errorf("a bucket that cannot be listed: %v", err)
		if err == nil {
			w.must(e.Close())
		}
	}
	remove()
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	a.settings.Export.Classes = nil
	w.write(c, `DELETE FROM items WHERE sku = 'a'`)
	a.leftTo(c)
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	c, err = a.node.Activate(t.Context(), order, "one")
	w.must(err)
	w.write(c, `INSERT INTO items VALUES('new',6)`)
	a.once()
	got := other.equal(w, c)
	if n := len(said(got, c.Scope(), 1)); n > 0 {
		t.Errorf("%d records of e1", n)
	}
}

// While part of the directory cannot be read, what is in it cannot be listed
// and nothing begins; once all of it was read, everything seen until then is
// left, and what comes after is exported.
func TestOwnExporterAndUnreadableDirectory(t *testing.T) {
	t.Parallel()
	w, a, c := forked(t)
	bad := a.activate("bad")
	w.write(bad, createItems, insertTwo)
	before := len(w.consumer().Records)
	a.fs = blindFS{blind: func(name string) bool { return strings.HasPrefix(name, filepath.Dir(bad.LTXDir())) }}
	left := a.briefly(30)
	if len(left) != 3 || len(w.keys("exportd/residents/")) > 0 {
		t.Errorf("left: %v; lists: %v", left, w.keys("exportd/residents/"))
	}
	a.fs = nil
	a.leftTo(c, bad)
	if n := len(w.consumer().Records); n != before {
		t.Errorf("%d records went out", n-before)
	}
	later := a.activate("later")
	w.write(later, createItems)
	a.leftTo(c, bad)
	sound(w, "bucket", w.consumer(), later)
}

// A running exporter leaves a busy cell alone without a request, does not
// count it among what keeps it from ending, and takes it up when it wakes.
func TestOwnExporterWhileRunning(t *testing.T) {
	t.Parallel()
	w, a, c := forked(t)
	y := &tally{}
	a.count = y.observe
	a.run()
	a.status("the cell waits", func(s exporter.Summary) bool { return s.Streams[exporter.StateWaiting] == 1 })
	a.rounds(3) // the one that found it is over
	y.take()
	for i := range 5 {
		w.write(c, fmt.Sprintf(`INSERT INTO items VALUES('busy%d',1)`, i))
		rounds := a.e.Status().Rounds
		a.status("rounds pass", func(s exporter.Summary) bool { return s.Rounds > rounds+2 && s.Watch.Pending == 0 })
	}
	// What a round asks before it looks at any stream is not asked either.
	if calls, n, _ := y.take(); n > 0 {
		t.Errorf("a cell that is left costs %d requests: %v", n, calls)
	}
	if s := a.e.Status(); len(s.Trouble) != 1 || s.Trouble[0].Epoch != 2 {
		t.Errorf("trouble: %+v", s.Trouble)
	}
	// What is wrong is named before what only waits, however long that does.
	bad := a.activate("bad")
	key := celld.OwnKey(bad.Scope())
	own, _, err := objstore.ReadAll(t.Context(), w.store, key, 1<<16)
	w.must(err)
	for _, doc := range []string{"{oops", string(own)} {
		_, err = objstore.PutBytes(t.Context(), w.store, key, []byte(doc), objstore.PutOptions{})
		w.must(err)
		w.write(bad, fmt.Sprintf(`CREATE TABLE t%d(x)`, len(doc)))
		trouble := a.status("a stream fails, then none", func(s exporter.Summary) bool {
			return len(s.Trouble) == 1+s.Streams[exporter.StateFailed] && (s.Streams[exporter.StateFailed] == 1) == (doc != string(own)) && s.Streams[exporter.StatePending] == 0
		}).Trouble
		if trouble[len(trouble)-1].Cell != c.Scope() {
			t.Errorf("trouble: %+v", trouble)
		}
	}
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	a.sync()
	if s := a.e.Status(); s.Streams[exporter.StateEnded] != 1 {
		t.Errorf("streams: %v", s.Streams)
	}
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('new',6)`)
	a.sync()
	a.halt()
	sound(w, "bucket", w.consumer(), c)
}

// The node's object is lost, so that our own objects look like another
// exporter's: what the ledger has as begun goes on as with a lost state, and
// only what it does not know waits.
func TestOwnObjectsAfterTheNodesIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	w.equal(c)
	w.must(w.store.Delete(t.Context(), ledger.NodeKey("node-a")))
	unknown := a.activate("unknown")
	w.write(unknown, createItems, insertTwo)
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	a.leftTo(unknown)
	got := w.same(c)
	if s := story(got, c.Scope(), 1); !strings.Contains(s, "end stream") {
		t.Errorf("story: %s", s)
	}
	for name, cell := range map[string]**celldsim.Cell{"one": &c, "unknown": &unknown} {
		w.must(a.node.Evict(t.Context(), (*cell).Scope(), true))
		*cell = a.activate(name)
		w.write(*cell, `INSERT INTO items VALUES('d',4)`)
	}
	a.once()
	w.equal(c, unknown)
}
