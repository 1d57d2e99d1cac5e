package celldsim

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/internal/celld"
	"celldexport/internal/ltxfile"
)

// fill commits a table or a few more rows and captures them.
func fill(t *testing.T, c *Cell, text string) {
	t.Helper()
	must(t, c.Exec(`CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, a)`))
	must(t, c.Exec(`INSERT INTO t(a) VALUES(?)`, text))
	capture(t, c)
}

func TestEvictAndWakeKeepImage(t *testing.T) {
	for _, layout := range []Layout{V03, V06} {
		f := newFleet(t, Config{Layout: layout})
		n := newNode(t, f, "node-a")
		cell := f.CellID("Shelf", "a")
		c := activate(t, n, cell)
		fill(t, c, "one")
		fill(t, c, "two")
		want := dump(t, c)
		must(t, n.Evict(t.Context(), cell, true))
		checkBucket(t, f, cell, want)
		if got := tree(t, n.Watch()); !cmp.Equal(got, []string{cell + "/ltx/e1/db.evicted"}) {
			t.Errorf("after an eviction the tree holds %v", got)
		}
		c = activate(t, n, cell)
		if c.Epoch() != 2 || c.TXID() != 1 {
			t.Errorf("woke at epoch %d, txid %d", c.Epoch(), c.TXID())
		}
		if diff := cmp.Diff(want, dump(t, c)); diff != "" {
			t.Errorf("woke with another state (-want +got):\n%s", diff)
		}
		checkFiles(t, c)
		must(t, c.Upload(t.Context()))
		checkBucket(t, f, cell, want)
	}
}

func TestWakeFromBucket(t *testing.T) {
	f := newFleet(t, Config{})
	n := newNode(t, f, "node-a")
	cell := f.CellID("Shelf", "a")
	c := activate(t, n, cell)
	fill(t, c, "one")
	want := dump(t, c)
	must(t, n.Evict(t.Context(), cell, true))
	must(t, n.DropImages())
	c = activate(t, n, cell)
	if diff := cmp.Diff(want, dump(t, c)); diff != "" {
		t.Errorf("restored another state (-want +got):\n%s", diff)
	}
	if c.Epoch() != 2 {
		t.Errorf("epoch %d", c.Epoch())
	}
}

func TestHandoff(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		f := newFleet(t, Config{Layout: V06})
		a, b := newNode(t, f, "node-a"), newNode(t, f, "node-b")
		cell := f.CellID("Shelf", "a")
		c := activate(t, a, cell)
		must(t, c.Upload(t.Context()))
		fill(t, c, "one")
		fill(t, c, "two")
		want := dump(t, c)
		if _, err := b.Activate(t.Context(), cell, ""); !errors.Is(err, ErrFenced) {
			t.Errorf("node-b activated a held cell: %v", err)
		}
		must(t, a.Handoff(t.Context(), cell, snapshot))
		own, _, err := f.readOwn(t.Context(), cell)
		must(t, err)
		if own != (celld.Own{Epoch: 1}) {
			t.Errorf("own.json after a handoff is %+v", own)
		}
		wantKey := celld.LTXKey(cell, 1, 0, 2, 3)
		if snapshot {
			wantKey = celld.LTXKey(cell, 1, 9, 1, 3)
		}
		if !slices.Contains(keys(t, f), wantKey) {
			t.Errorf("no object %s in %v", wantKey, keys(t, f))
		}
		checkBucket(t, f, cell, want)
		if got := tree(t, a.Watch()); len(got) != 0 {
			t.Errorf("node-a keeps %v", got)
		}
		c = activate(t, b, cell)
		if diff := cmp.Diff(want, dump(t, c)); diff != "" {
			t.Errorf("node-b restored another state (-want +got):\n%s", diff)
		}
	}
}

func TestSnapshotHasRollingChecksum(t *testing.T) {
	f := newFleet(t, Config{Layout: V06})
	c := activate(t, newNode(t, f, "node-a"), f.CellID("Shelf", "a"))
	fill(t, c, "one")
	must(t, c.Snapshot(t.Context()))
	b := object(t, f, celld.LTXKey(c.Scope(), 1, 9, 1, 2))
	got := decodeLTX(t, "snapshot", b) // verifies the checksum of the database
	if got.header.Flags != 0 || len(got.pages) != int(got.header.Commit) {
		t.Errorf("flags %#x, %d of %d pages", got.header.Flags, len(got.pages), got.header.Commit)
	}
}

func TestZombieAfterTakeover(t *testing.T) {
	f := newFleet(t, Config{})
	a, b := newNode(t, f, "node-a"), newNode(t, f, "node-b")
	cell := f.CellID("Shelf", "a")
	old := activate(t, a, cell)
	fill(t, old, "one")
	must(t, old.Upload(t.Context()))
	want := dump(t, old)
	fill(t, old, "never uploaded")

	c, err := b.TakeOver(t.Context(), cell, "aisle 9")
	must(t, err)
	if diff := cmp.Diff(want, dump(t, c)); diff != "" {
		t.Errorf("took over another state (-want +got):\n%s", diff)
	}
	fill(t, old, "late")
	must(t, old.Upload(t.Context())) // unconditional, as in life
	must(t, c.Upload(t.Context()))
	checkBucket(t, f, cell, want)
	if !slices.Contains(keys(t, f), celld.LTXKey(cell, 1, 0, 4, 4)) {
		t.Error("the late object did not land in epoch 1")
	}
	if err := a.Evict(t.Context(), cell, true); !errors.Is(err, ErrFenced) {
		t.Errorf("a fenced node evicted: %v", err)
	}
	if got := len(localFiles(t, old)); got != 4 {
		t.Errorf("a refused eviction left %d files", got)
	}
	must(t, a.Drop(cell))
	if got := len(localFiles(t, old)); got != 4 {
		t.Errorf("the end of a fenced process left %d files", got)
	}
}

func TestLateObjectBeforeSuccessorsFirstBecomesHistory(t *testing.T) {
	f := newFleet(t, Config{})
	a, b, d := newNode(t, f, "node-a"), newNode(t, f, "node-b"), newNode(t, f, "node-c")
	cell := f.CellID("Shelf", "a")
	old := activate(t, a, cell)
	must(t, old.Upload(t.Context()))
	_, err := b.TakeOver(t.Context(), cell, "")
	must(t, err)
	fill(t, old, "late")
	want := dump(t, old)
	must(t, old.Upload(t.Context()))
	must(t, b.Crash()) // nothing of epoch 2 ever reached the bucket
	c, err := d.TakeOver(t.Context(), cell, "aisle 9")
	must(t, err)
	if c.Epoch() != 3 {
		t.Errorf("epoch %d", c.Epoch())
	}
	if diff := cmp.Diff(want, dump(t, c)); diff != "" {
		t.Errorf("the late append is not restored (-want +got):\n%s", diff)
	}
}

func TestCrashLosesWhatWasNotUploaded(t *testing.T) {
	f := newFleet(t, Config{})
	n := newNode(t, f, "node-a")
	cell := f.CellID("Shelf", "a")
	c := activate(t, n, cell)
	fill(t, c, "one")
	must(t, c.Upload(t.Context()))
	want := dump(t, c)
	fill(t, c, "captured only")
	must(t, c.Exec(`INSERT INTO t(a) VALUES('committed only')`))
	before := tree(t, n.Watch())
	generation := n.Generation()
	must(t, n.Crash())
	if got := slices.DeleteFunc(before, isSHM); !cmp.Equal(got, slices.DeleteFunc(tree(t, n.Watch()), isSHM)) {
		t.Errorf("a crash changed the tree: %v", tree(t, n.Watch()))
	}
	must(t, n.Restart(t.Context()))
	if n.Generation() == generation || len(n.Cells()) != 0 {
		t.Errorf("restarted with generation %s and cells %v", n.Generation(), n.Cells())
	}
	c = activate(t, n, cell)
	if diff := cmp.Diff(want, dump(t, c)); diff != "" || c.Epoch() != 2 {
		t.Errorf("epoch %d restored another state (-want +got):\n%s", c.Epoch(), diff)
	}
	if got := len(tree(t, filepath.Join(n.Watch(), cell, "ltx", "e1"))); got < 4 {
		t.Errorf("the old epoch's directory lost files: %d left", got)
	}
}

func TestResumeReusesTxidsAboveTheClamp(t *testing.T) {
	f := newFleet(t, Config{Layout: V06})
	n := newNode(t, f, "node-a")
	cell := f.CellID("Shelf", "a")
	c := activate(t, n, cell)
	fill(t, c, "one")
	must(t, c.Upload(t.Context()))
	want := dump(t, c)
	fill(t, c, "never uploaded")
	fill(t, c, "never uploaded either")
	before := localFiles(t, c)
	must(t, n.Restart(t.Context()))
	c, err := n.ActivateWith(t.Context(), Activation{Cell: cell, Name: "aisle 9", Resume: true})
	must(t, err)
	if diff := cmp.Diff(want, dump(t, c)); diff != "" {
		t.Errorf("resumed with another state (-want +got):\n%s", diff)
	}
	if c.Epoch() != 1 || c.TXID() != 3 {
		t.Errorf("resumed at epoch %d, txid %d", c.Epoch(), c.TXID())
	}
	after := localFiles(t, c)
	if len(after) != 4 || cmp.Equal(before[2].pages, after[2].pages) || !cmp.Equal(before[3].pages, after[3].pages) {
		t.Errorf("%d files; txid 3 must be another, txid 4 the old one", len(after))
	}
	fill(t, c, "two")
	must(t, c.Upload(t.Context()))
	checkFiles(t, c)
	checkBucket(t, f, cell, dump(t, c))
	own, _, err := f.readOwn(t.Context(), cell)
	must(t, err)
	if own != (celld.Own{Node: "node-a", Epoch: 1}) {
		t.Errorf("own.json is %+v", own)
	}
}

func isSHM(path string) bool { return strings.HasSuffix(path, "-shm") }

func TestReloadGoesOnInTheSameEpoch(t *testing.T) {
	for _, layout := range []Layout{V03, V06} {
		f := newFleet(t, Config{Layout: layout})
		n := newNode(t, f, "node-a")
		c := activate(t, n, f.CellID("Shelf", "a"))
		fill(t, c, "one")
		generation := n.Generation()
		must(t, n.Reload(t.Context()))
		if n.Generation() == generation {
			t.Error("generation did not change")
		}
		if pending := len(c.Pending()); (pending == 0) != (layout == V06) {
			t.Errorf("layout %d: %d files pending after a reload", layout, pending)
		}
		fill(t, c, "two")
		if c.Epoch() != 1 || c.TXID() != 3 {
			t.Errorf("epoch %d, txid %d", c.Epoch(), c.TXID())
		}
		files := localFiles(t, c)
		if last := files[len(files)-1]; len(last.pages) == int(last.header.Commit) {
			t.Error("the WAL did not go on: a full image followed the reload")
		}
		checkFiles(t, c)
		must(t, c.Upload(t.Context()))
		checkBucket(t, f, c.Scope(), dump(t, c))
	}
}

func TestAbandonedEviction(t *testing.T) {
	f := newFleet(t, Config{Layout: V06})
	n := newNode(t, f, "node-a")
	cell := f.CellID("Shelf", "a")
	c := activate(t, n, cell)
	fill(t, c, "one")
	must(t, n.AbandonEviction(t.Context(), cell))
	fill(t, c, "two")
	files := localFiles(t, c)
	if last := files[len(files)-1]; c.Epoch() != 1 || c.TXID() != 3 || len(last.pages) != int(last.header.Commit) {
		t.Errorf("epoch %d, txid %d, %d of %d pages", c.Epoch(), c.TXID(), len(last.pages), last.header.Commit)
	}
	checkFiles(t, c)
	must(t, c.Upload(t.Context()))
	checkBucket(t, f, cell, dump(t, c))
}

func TestAbandonedEvictionWithoutFiles(t *testing.T) {
	f := newFleet(t, Config{Layout: V06})
	n := newNode(t, f, "node-a")
	cell := f.CellID("Shelf", "a")
	c := activate(t, n, cell)
	fill(t, c, "one")
	looked := false
	must(t, n.AbandonEvictionLate(t.Context(), cell, func() error {
		looked = true
		if _, err := os.Stat(c.LTXDir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the captured files are there: %v", err)
		}
		if len(c.Pending()) > 0 {
			t.Errorf("files that were not uploaded are deleted: %v", c.Pending())
		}
		return nil
	}))
	fill(t, c, "two")
	files := localFiles(t, c)
	if !looked || len(files) != 1 || files[0].header.MinTXID != 3 || len(files[0].pages) != int(files[0].header.Commit) {
		t.Errorf("looked %t, files afterwards: %d", looked, len(files))
	}
	if c.Snapshot(t.Context()) == nil {
		t.Error("a snapshot was made of files that are not there")
	}
	must(t, n.Handoff(t.Context(), cell, true))
	other := newNode(t, f, "node-b")
	checkBucket(t, f, cell, dump(t, activate(t, other, cell)))
}

func TestResetUploadsNothing(t *testing.T) {
	f := newFleet(t, Config{})
	n := newNode(t, f, "node-a")
	cell := f.CellID("Shelf", "a")
	c := activate(t, n, cell)
	must(t, c.Upload(t.Context()))
	want := dump(t, c)
	fill(t, c, "discarded")
	before := keys(t, f)
	must(t, n.Reset(cell))
	if diff := cmp.Diff(before, keys(t, f)); diff != "" {
		t.Errorf("a reset changed the bucket:\n%s", diff)
	}
	if got := tree(t, n.Watch()); len(got) != 0 {
		t.Errorf("a reset left %v", got)
	}
	if diff := cmp.Diff(want, dump(t, activate(t, n, cell))); diff != "" {
		t.Errorf("the next epoch holds another state:\n%s", diff)
	}
}

func TestPagedEpoch(t *testing.T) {
	f := newFleet(t, Config{Layout: V06})
	a, b := newNode(t, f, "node-a"), newNode(t, f, "node-b")
	cell := f.CellID("Shelf", "a")
	c := activate(t, a, cell)
	fill(t, c, "one")
	want := dump(t, c)
	must(t, a.Handoff(t.Context(), cell, false))
	p, err := b.ActivateWith(t.Context(), Activation{Cell: cell, Name: "aisle 9", Paged: true})
	must(t, err)
	if diff := cmp.Diff(want, dump(t, p)); diff != "" {
		t.Errorf("paged epoch holds another state:\n%s", diff)
	}
	files := localFiles(t, p)
	if len(files) != 2 || len(files[0].pages) != 0 || files[0].header.MinTXID != 3 || files[1].header.MinTXID != 4 {
		t.Fatalf("%d files, the first with %d pages at txid %d", len(files), len(files[0].pages), files[0].header.MinTXID)
	}
	if int(files[1].header.Commit) == len(files[1].pages) {
		t.Error("the first file after the marker is a full image")
	}
	fill(t, p, "two")
	must(t, p.UploadMerged(t.Context()))
	checkBucket(t, f, cell, dump(t, p))
	if err := p.Snapshot(t.Context()); err == nil {
		t.Error("a paged epoch gave a snapshot from txid 1")
	}
}

func TestCompactIsAdditive(t *testing.T) {
	f := newFleet(t, Config{})
	c := activate(t, newNode(t, f, "node-a"), f.CellID("Shelf", "a"))
	for _, text := range []string{"one", "two", "three", "four"} {
		fill(t, c, text)
	}
	must(t, c.Upload(t.Context()))
	before := keys(t, f)
	for _, want := range [][2]uint64{{1, 3}, {4, 5}, {0, 0}} {
		from, to, err := c.Compact(t.Context(), 3)
		must(t, err)
		if from != want[0] || to != want[1] {
			t.Errorf("compacted %d to %d, want %v", from, to, want)
		}
	}
	want := append(before, celld.LTXKey(c.Scope(), 1, 1, 1, 3), celld.LTXKey(c.Scope(), 1, 1, 4, 5))
	slices.Sort(want)
	if diff := cmp.Diff(want, keys(t, f)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	got := decodeLTX(t, "level 1", object(t, f, celld.LTXKey(c.Scope(), 1, 1, 4, 5)))
	if h := got.header; h.WALOffset != 0 || h.WALSize != 0 || h.WALSalt1 != 0 || h.WALSalt2 != 0 || h.Flags != ltxfile.FlagNoChecksum {
		t.Errorf("level-1 header is %+v", h)
	}
	checkBucket(t, f, c.Scope(), dump(t, c))
}

// object reads an object whole.
func object(t *testing.T, f *Fleet, key string) []byte {
	t.Helper()
	b, err := readObject(t.Context(), f.cfg.Bucket, key)
	must(t, err)
	return b
}

func TestLayoutPaths(t *testing.T) {
	f := newFleet(t, Config{Layout: V06, Seed: 7})
	n := newNode(t, f, "node-a")
	cell := f.CellID("Shelf", "a")
	c := activate(t, n, cell)
	fill(t, c, "one")
	must(t, c.Upload(t.Context()))
	facet, err := OpenFacet(t.Context(), c, "left")
	must(t, err)
	must(t, facet.Upload(t.Context()))
	h := FacetHash("left")
	if len(h) != 32 {
		t.Errorf("facet hash %s", h)
	}
	e1 := cell + "/ltx/e1/"
	f1 := cell + "/facets/" + h + "/ltx/e1/"
	meta := ".db.sqlite-litestream/ltx/0/"
	wantTree := []string{
		f1 + meta + "0000000000000001-0000000000000001.ltx", f1 + "db.sqlite", f1 + "db.sqlite-shm", f1 + "db.sqlite-wal",
		e1 + meta + "0000000000000001-0000000000000001.ltx", e1 + meta + "0000000000000002-0000000000000002.ltx",
		e1 + "db.sqlite", e1 + "db.sqlite-shm", e1 + "db.sqlite-wal",
	}
	if diff := cmp.Diff(wantTree, tree(t, n.Watch())); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
	version := ""
	for _, k := range keys(t, f) {
		if rest, ok := strings.CutPrefix(k, "deploy/shop/"); ok {
			version, _, _ = strings.Cut(rest, "/")
		}
	}
	wantKeys := []string{
		"cells/" + cell + "/facets/" + h + "/ltx/e1/0000/0000000000000001-0000000000000001.ltx",
		"cells/" + e1 + "0000/0000000000000001-0000000000000001.ltx",
		"cells/" + e1 + "0000/0000000000000002-0000000000000002.ltx",
		"cells/" + cell + "/own.json",
		"deploy/current.json", "deploy/shop/" + version + "/manifest.json",
		"nodes/node-a.json",
	}
	if diff := cmp.Diff(wantKeys, keys(t, f)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	pointer, err := celld.ParseDeployment(object(t, f, "deploy/current.json"))
	must(t, err)
	m, err := celld.ParseManifest(object(t, f, celld.ManifestKey(pointer.Prefix)))
	must(t, err)
	if m.Script != "shop" || !cmp.Equal(m.Classes, []string{"Shelf"}) {
		t.Errorf("manifest says %+v", m)
	}
	if _, id, _ := strings.Cut(f.RandomCellID("Shelf"), ":"); !celld.Belongs("shop", "Shelf", id) {
		t.Errorf("random id %s does not belong to its class", id)
	}
}

func TestFacetsMoveWithTheirRoot(t *testing.T) {
	f := newFleet(t, Config{Layout: V06})
	a, b := newNode(t, f, "node-a"), newNode(t, f, "node-b")
	cell := f.CellID("Shelf", "a")
	c := activate(t, a, cell)
	left, err := OpenFacet(t.Context(), c, "left")
	must(t, err)
	inner, err := OpenFacet(t.Context(), left, "inner")
	must(t, err)
	fill(t, inner, "deep")
	fill(t, left, "shallow")
	wantLeft, wantInner := dump(t, left), dump(t, inner)
	must(t, a.Handoff(t.Context(), cell, false))
	if got := a.Cells(); len(got) != 0 {
		t.Errorf("node-a keeps %v", got)
	}
	c = activate(t, b, cell)
	left, err = OpenFacet(t.Context(), c, "left")
	must(t, err)
	inner, err = OpenFacet(t.Context(), left, "inner")
	must(t, err)
	if left.Epoch() != 2 || !cmp.Equal(wantLeft, dump(t, left)) || !cmp.Equal(wantInner, dump(t, inner)) {
		t.Error("facets did not come along")
	}
	must(t, left.Upload(t.Context()))
	must(t, inner.Upload(t.Context()))
	must(t, DeleteFacet(t.Context(), c, "left"))
	if got := b.Cells(); !cmp.Equal(got, []string{cell}) {
		t.Errorf("resident after the delete: %v", got)
	}
	for _, path := range append(keys(t, f), tree(t, b.Watch())...) {
		if strings.Contains(path, "facets") {
			t.Errorf("left behind: %s", path)
		}
	}
	if _, err := os.Stat(filepath.Join(b.Watch(), cell, "ltx")); err != nil {
		t.Error(err)
	}
}

func TestDeleteAllKeepsMetadata(t *testing.T) {
	f := newFleet(t, Config{})
	c := activate(t, newNode(t, f, "node-a"), f.CellID("Shelf", "a"))
	fill(t, c, "one")
	v, err := V8("x")
	must(t, err)
	must(t, PutKV(c, "k", v))
	must(t, DeleteAll(t.Context(), c))
	capture(t, c)
	checkFiles(t, c)
	want := map[string]DumpedTable{"kv": {Columns: []string{"key", "value"}, KeyColumns: []string{"key"}}}
	if diff := cmp.Diff(want, dump(t, c)); diff != "" {
		t.Errorf("after deleteAll (-want +got):\n%s", diff)
	}
	var names int
	must(t, c.DB().QueryRow(`SELECT count(*) FROM _cf_METADATA WHERE actor_name = 'aisle 9'`).Scan(&names))
	if names != 1 {
		t.Error("deleteAll lost the object's name")
	}
}
