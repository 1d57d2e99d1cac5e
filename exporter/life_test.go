package exporter_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"celldexport/exporter/consumer"
	"celldexport/internal/celldsim"
)

const (
	createItems = `CREATE TABLE items(sku TEXT PRIMARY KEY, qty INTEGER)`
	insertTwo   = `INSERT INTO items VALUES('a',1),('b',2)`
)

// A new cell: its first image holds celld's own tables, then come ours.
func TestFreshCell(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo, `UPDATE items SET qty = 3 WHERE sku = 'a'`, `DELETE FROM items WHERE sku = 'b'`)
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	got := w.equal(c)
	want := "1 link fresh from 1 prev none; 2 schema items/1; 2 snapshot items/1 0; 2 end tables 1; 3 rows items/1 II; 4 rows items/1 U; 5 rows items/1 D"
	if s := story(got, c.Scope(), 1); !strings.HasPrefix(s, strings.Split(want, ";")[0]) || !strings.HasSuffix(s, want[len("1 link fresh from 1 prev none; "):]) {
		t.Errorf("story:\n%s\nwant\n%s", s, want)
	}
	id, _ := got.Stream(c.Scope())
	if id.Script != "shop" || id.Class != class || id.Incarnation != 1 {
		t.Errorf("stream %+v", id)
	}
}

// A wake on the same node goes on from our own shadow: nothing is downloaded
// and only what changed is sent.
func TestLocalWake(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]bool{"with image": true, "without image": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, celldsim.V06)
			a := w.host("node-a")
			c := a.activate("one")
			w.write(c, createItems, insertTwo)
			a.run()
			a.sync()
			w.must(a.node.Evict(t.Context(), c.Scope(), keep))
			a.sync()
			c = a.activate("one")
			w.write(c, `INSERT INTO items VALUES('c',3)`)
			before := a.read.Load()
			a.sync()
			if n := a.read.Load() - before; n > 4096 {
				t.Errorf("%d bytes read from the bucket in a wake", n)
			}
			a.halt()
			got := w.equal(c)
			s := story(got, c.Scope(), 2)
			if !strings.HasPrefix(s, "1 link clone from 1 prev e1:") || strings.Contains(s, "snapshot") || !strings.HasSuffix(s, "rows items/1 I") {
				t.Errorf("story: %s", s)
			}
		})
	}
}

// The sidecar comes to a cell in mid-residency that had lives before: the
// whole state goes out, and the stream is certified from its first watermark.
func TestFirstSightInMidResidency(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('c',3)`, `INSERT INTO items VALUES('d',4)`)
	a.once()
	head := c.TXID()
	got := w.equal(c)
	want := fmt.Sprintf("%d link clone from %d prev e1:", head, head)
	if s := story(got, c.Scope(), 2); !strings.HasPrefix(s, want) || !strings.Contains(s, "snapshot items/1 4") || !strings.Contains(s, "end stream") {
		t.Errorf("story: %s", s)
	}
	w.write(c, `DELETE FROM items WHERE sku = 'a'`)
	a.once()
	got = w.equal(c)
	if s := story(got, c.Scope(), 2); !strings.HasSuffix(s, "rows items/1 D") {
		t.Errorf("story: %s", s)
	}
}

// An owner that does not notice that it lost the cell goes on writing and
// uploading: none of it leaves, and the new owner's exporter goes on from
// exactly where the old one's ended.
func TestTakeoverWithZombie(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a, b := w.host("node-a"), w.host("node-b")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.run()
	b.run()
	a.sync()
	zombie := c
	c = w.takeOver(b, c, "one")
	w.write(zombie, `INSERT INTO items VALUES('phantom',1)`, `CREATE TABLE ghosts(x)`)
	w.write(c, `INSERT INTO items VALUES('real',1)`)
	a.sync()
	b.sync()
	w.write(zombie, `INSERT INTO items VALUES('phantom2',1)`)
	a.sync()
	b.sync()
	a.halt()
	b.halt()
	got := w.equal(c)
	s := story(got, c.Scope(), 2)
	if !strings.HasPrefix(s, "1 link clone from 1 prev e1:") || strings.Contains(s, "snapshot") {
		t.Errorf("story: %s", s)
	}
}

// The old owner's exporter never closes its residency: the new one re-bases.
func TestPredecessorNeverCloses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a, b := w.host("node-a"), w.host("node-b")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	w.write(c, `INSERT INTO items VALUES('unexported',1)`)
	c = w.takeOver(b, c, "one")
	w.write(c, `DELETE FROM items WHERE sku = 'a'`)
	b.once()
	got := w.equal(c)
	if s := story(got, c.Scope(), 2); !strings.Contains(s, "end stream") {
		t.Errorf("no snapshot: %s", s)
	}
	// The old exporter comes back: the pin above it forbids its close, and it
	// exports nothing more.
	n := len(got.Records)
	a.once()
	if again := w.equal(c); len(again.Records) > n+1 {
		t.Errorf("a fenced exporter sent %d records", len(again.Records)-n)
	}
}

// A cell that was never exported and has no earlier life is sent from its
// first transaction, however late the sidecar comes.
func TestLateButFresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems)
	for i := range 30 {
		w.write(c, fmt.Sprintf(`INSERT INTO items VALUES('s%d',%d)`, i, i))
	}
	a.once()
	got := w.equal(c)
	if s := story(got, c.Scope(), 1); !strings.HasPrefix(s, "1 link fresh") || strings.Contains(s, "stream") {
		t.Errorf("story: %s", s)
	}
}

// Handed off and released, then woken elsewhere.
func TestHandoff(t *testing.T) {
	t.Parallel()
	for _, snapshot := range []bool{false, true} {
		t.Run(fmt.Sprintf("level 9 %v", snapshot), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, celldsim.V06)
			a, b := w.host("node-a"), w.host("node-b")
			c := a.activate("one")
			w.write(c, createItems, insertTwo)
			a.run()
			a.sync()
			w.must(c.Exec(`INSERT INTO items VALUES('last',1)`))
			w.must(a.node.Handoff(t.Context(), c.Scope(), snapshot))
			a.sync()
			b.run()
			c = b.activate("one")
			w.write(c, `INSERT INTO items VALUES('next',1)`)
			b.sync()
			a.halt()
			b.halt()
			got := w.equal(c)
			if s := story(got, c.Scope(), 2); strings.Contains(s, "snapshot") {
				t.Errorf("a closed predecessor is not continued: %s", s)
			}
		})
	}
}

// Merged uploads, compaction and the images of checkpoints in one residency.
func TestWiderObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	for i := range 6 {
		w.must(c.Exec(fmt.Sprintf(`INSERT INTO items VALUES('m%d',1)`, i)))
		_, err := c.Capture()
		w.must(err)
	}
	w.must(c.UploadMerged(t.Context()))
	a.once()
	w.equal(c)
	_, err := c.FullImage()
	w.must(err)
	w.write(c, `UPDATE items SET qty = qty + 1`)
	_, _, err = c.Compact(t.Context(), 256)
	w.must(err)
	a.once()
	got := w.equal(c)
	if s := story(got, c.Scope(), 1); strings.Contains(s, "stream") {
		t.Errorf("a wider object broke the stream: %s", s)
	}
}

// The state directory is lost in mid-residency: the stream re-bases, its
// epoch is not certified any more, and the next activation certifies again.
func TestLostState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	w.equal(c)
	w.must(os.RemoveAll(a.settings.State))
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	e, err := a.open()
	w.must(err)
	_, err = e.Once(t.Context(), exportTime)
	w.must(err)
	if st := e.Status(); len(st.Uncertified) != 1 {
		t.Errorf("an epoch whose chain was lost is not named: %v", st.Uncertified)
	}
	w.must(e.Close())
	got := w.same(c)
	if d := got.Certified(consumer.SourceOf(c)); len(d) == 0 {
		t.Error("an epoch whose chain was lost is certified to its head")
	}
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	a.once()
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('d',4)`)
	a.once()
	w.equal(c)
}

// The state directory is put back from an older copy: it counts as lost.
func TestOlderCopyOfState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	copied := filepath.Join(t.TempDir(), "copy")
	w.must(os.CopyFS(copied, os.DirFS(a.settings.State)))
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	a.once()
	w.must(os.RemoveAll(a.settings.State))
	w.must(os.CopyFS(a.settings.State, os.DirFS(copied)))
	w.write(c, `INSERT INTO items VALUES('d',4)`)
	a.once()
	w.same(c)
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	a.once()
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('e',5)`)
	a.once()
	w.equal(c)
}

// Classes that are not asked for, those never exported, and denied tables.
func TestClassesAndTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	a.settings.Export.DenyTables = append(a.settings.Export.DenyTables, tableOf(class, "secrets"))
	c := a.activate("one")
	w.write(c, createItems, `CREATE TABLE secrets(x)`, `INSERT INTO secrets VALUES('s')`, insertTwo)
	queue, err := a.node.Activate(t.Context(), "__Queue:"+strings.Repeat("0", 64), "")
	w.must(err)
	w.write(queue, `CREATE TABLE jobs(x)`, `INSERT INTO jobs VALUES(1)`)
	a.once()
	got := w.consumer()
	for _, r := range got.Records {
		if r.Stream.Cell != c.Scope() {
			t.Errorf("a record of %s", r.Stream.Cell)
		}
	}
	if s := story(got, c.Scope(), 1); strings.Contains(s, "secrets") || !strings.Contains(s, "rows items/1 II") {
		t.Errorf("story: %s", s)
	}
}

// Many cells with random traffic, evictions and wakes, a restart in between.
func TestManyCells(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	const n = 6
	cells := make([]*celldsim.Cell, n)
	loads := make([]*celldsim.Workload, n)
	for i := range n {
		cells[i] = a.activate(fmt.Sprint("cell", i))
		loads[i] = celldsim.NewWorkload(celldsim.WorkloadConfig{Seed: uint64(i), Scope: cells[i].Scope(), Rows: 40, InvalidText: i%2 == 0, Vacuum: i%3 == 0})
	}
	for round := range 6 {
		for i, c := range cells {
			w.must(loads[i].Run(t.Context(), c.DB(), 8))
			_, err := c.Capture()
			w.must(err)
			w.must(loads[i].Run(t.Context(), c.DB(), 4))
			_, err = c.Capture()
			w.must(err)
			if (round+i)%3 == 0 {
				w.must(c.UploadMerged(t.Context()))
			} else {
				w.must(c.Upload(t.Context()))
			}
		}
		if left := a.once(); len(left) > 0 {
			t.Fatalf("round %d: left %v", round, left)
		}
		w.same(cells...)
		if i := round % n; round%2 == 0 {
			w.must(a.node.Evict(t.Context(), cells[i].Scope(), round%4 == 0))
			cells[i] = a.activate(fmt.Sprint("cell", i))
		}
	}
	for _, c := range cells {
		_, err := c.Capture()
		w.must(err)
		w.must(c.Upload(t.Context()))
	}
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	w.equal(cells...)
}

// A paged activation continues the chain from a marker: from our own shadow
// on the same node, from the bucket on another one, without a snapshot as
// long as the cut is where the exporter before it closed.
func TestPagedActivation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a, b := w.host("node-a"), w.host("node-b")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.run()
	b.run()
	a.sync()
	page := func(h *host, sql string) {
		t.Helper()
		w.must(a.node.Handoff(t.Context(), c.Scope(), false))
		a.sync()
		b.sync()
		next, err := h.node.ActivateWith(t.Context(), celldsim.Activation{Cell: c.Scope(), Name: "one", Paged: true})
		w.must(err)
		c = next
		w.write(c, sql)
		h.sync()
	}
	page(a, `INSERT INTO items VALUES('c',3)`)
	page(b, `DELETE FROM items WHERE sku = 'a'`)
	a.halt()
	b.halt()
	got := w.equal(c)
	for epoch := uint64(2); epoch <= 3; epoch++ {
		s := story(got, c.Scope(), epoch)
		if !strings.Contains(s, "link paged from ") || !strings.Contains(s, fmt.Sprintf(" prev e%d:", epoch-1)) || strings.Contains(s, "snapshot") {
			t.Errorf("e%d: %s", epoch, s)
		}
	}
}

// A paged activation that the sidecar first sees in its middle re-bases from
// the chain of both epochs.
func TestPagedFirstSight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	w.must(a.node.Handoff(t.Context(), c.Scope(), false))
	c, err := a.node.ActivateWith(t.Context(), celldsim.Activation{Cell: c.Scope(), Name: "one", Paged: true})
	w.must(err)
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	if left := a.once(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	got := w.equal(c)
	if s := story(got, c.Scope(), 2); !strings.Contains(s, "snapshot items/1 3") {
		t.Errorf("story: %s", s)
	}
}
