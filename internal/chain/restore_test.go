package chain

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite"

	"celldexport/internal/celld"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
)

// restored lists, plans and restores a position.
func restored(ctx context.Context, store objstore.Store, epoch, txid uint64) (*image, ltxfile.Info, error) {
	list, err := List(ctx, store, scope)
	if err != nil {
		return nil, ltxfile.Info{}, err
	}
	plan, err := Plan(list, epoch, txid)
	if err != nil {
		return nil, ltxfile.Info{}, err
	}
	img := &image{}
	info, read, err := Restore(ctx, store, plan, img)
	var size int64
	for _, f := range plan {
		size += f.Object.Size
	}
	if err == nil && read != size {
		return nil, info, fmt.Errorf("read %d bytes of %d", read, size)
	}
	return img, info, err
}

// unitOf makes a unit of the pages from to, all with one label.
func unitOf(pageSize, commit, from, to uint32, label string) unit {
	u := unit{pageSize: pageSize, commit: commit, pages: map[uint32]string{}}
	for n := from; n <= to && to > 0; n++ {
		if n != ltxfile.LockPage(pageSize) {
			u.pages[n] = page(pageSize, "%s of page %d", label, n)
		}
	}
	return u
}

func TestListTellsKeysApart(t *testing.T) {
	store := objstore.NewMemory()
	body := unitOf(512, 1, 1, 1, "x").encode(t, 1, 1)
	for _, spec := range []string{"e2/0/1-1", "e10/0/1-1", "e2/9/1-4"} {
		put(t, store, spec, body)
	}
	facet := scope + "/facets/0123456789abcdef0123456789abcdef"
	for _, key := range []string{
		celld.RetiredKey(scope), celld.OwnKey(scope), celld.LTXPrefix(scope) + "e2.seal.json", celld.LTXKey(facet, 2, 0, 1, 1),
		celld.LTXKey(scope+"b", 2, 0, 1, 1), celld.LTXKey(scope, 2, 0, 2, 2) + ".tmp",
	} {
		if _, err := objstore.PutBytes(t.Context(), store, key, body, objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := List(t.Context(), store, scope)
	if got, want := names(list), "e10/0/1-1 e2/0/1-1 e2/9/1-4"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, f := range list {
		if f.Scope != scope || f.Object.Size != int64(len(body)) || f.Object.ETag == "" {
			t.Errorf("listed %+v", f)
		}
	}
	list, err = ListEpoch(t.Context(), store, scope, 2)
	if got, want := names(list), "e2/0/1-1 e2/9/1-4"; err != nil || got != want {
		t.Errorf("epoch 2: got %q, %v, want %q", got, err, want)
	}
	list, err = List(t.Context(), store, facet)
	if got := names(list); err != nil || got != "e2/0/1-1" {
		t.Errorf("facet: got %q, %v", got, err)
	}

	foreign := celld.LTXEpochPrefix(scope, 2) + "0000/copy of 1.ltx"
	if _, err := objstore.PutBytes(t.Context(), store, foreign, body, objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := List(t.Context(), store, scope); !errors.Is(err, celld.ErrName) || !strings.Contains(err.Error(), foreign) {
		t.Errorf("foreign name: %v", err)
	}
	if _, err := List(t.Context(), store, "Cart:a b"); !errors.Is(err, celld.ErrName) {
		t.Errorf("illegal scope: %v", err)
	}
	broken := objstore.NewFault(store)
	cause := errors.New("slow down")
	broken.Add(objstore.Rule{Op: objstore.OpList, Before: cause})
	if _, err := List(t.Context(), broken, scope); !errors.Is(err, cause) {
		t.Errorf("failing list: %v", err)
	}
}

// TestShrink grows a database, shrinks it, and grows it over the same page
// numbers again, in single files and in one file merged across the shrink.
func TestShrink(t *testing.T) {
	const size = 512
	units := []unit{
		unitOf(size, 300, 1, 300, "first"),
		unitOf(size, 10, 1, 10, "shrunk"),
		unitOf(size, 12, 11, 12, "grown"),
		unitOf(size, 40, 13, 40, "later"),
	}
	want := merge(units)
	if len(want.pages) != 40 || want.pages[11] != units[2].pages[11] {
		t.Fatal("the model keeps ghosts")
	}
	for name, layout := range map[string][][2]int{
		"single": {{1, 1}, {2, 2}, {3, 3}, {4, 4}},
		"merged": {{1, 1}, {2, 4}},
		"both":   {{1, 2}, {2, 3}, {3, 4}},
	} {
		store := objstore.NewMemory()
		for _, r := range layout {
			put(t, store, fmt.Sprintf("e1/0/%d-%d", r[0], r[1]), merge(units[r[0]-1:r[1]]).encode(t, uint64(r[0]), uint64(r[1])))
		}
		img, info, err := restored(t.Context(), store, 1, 4)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want.pages, img.pages); diff != "" || info.MaxTXID != 4 || img.commit != 40 {
			t.Errorf("%s: info %+v, pages (-want +got):\n%s", name, info, diff)
		}
	}
}

// TestMissingPages takes new pages out of a file that says it grew the
// database.
func TestMissingPages(t *testing.T) {
	const size = 512
	store := objstore.NewMemory()
	put(t, store, "e1/0/1-1", unitOf(size, 5, 1, 5, "first").encode(t, 1, 1))
	grown := unitOf(size, 15, 6, 15, "grown")
	delete(grown.pages, 9)
	delete(grown.pages, 12)
	put(t, store, "e1/0/2-2", grown.encode(t, 2, 2))
	put(t, store, "e1/0/3-3", unitOf(size, 15, 1, 2, "later").encode(t, 3, 3))

	for _, txid := range []uint64{2, 3} {
		_, _, err := restored(t.Context(), store, 1, txid)
		if !errors.Is(err, ltxfile.ErrCorrupt) || !strings.Contains(err.Error(), "page 9 of 15") || !strings.Contains(err.Error(), named(t, "e1/0/2-2").Object.Key) {
			t.Errorf("to txid %d: %v", txid, err)
		}
	}
	// A base that lacks pages, a full image that heals, a shrink that makes
	// them unimportant.
	put(t, store, "e1/0/4-4", unitOf(size, 15, 1, 15, "healed").encode(t, 4, 4))
	if _, _, err := restored(t.Context(), store, 1, 4); err != nil {
		t.Errorf("after a full image: %v", err)
	}
	put(t, store, "e2/0/1-1", grown.encode(t, 1, 1))
	if _, _, err := restored(t.Context(), store, 2, 1); !errors.Is(err, ltxfile.ErrCorrupt) || !strings.Contains(err.Error(), "page 1 of 15") {
		t.Errorf("base without its first pages: %v", err)
	}
	put(t, store, "e1/0/3-3", unitOf(size, 8, 1, 2, "shrunk").encode(t, 3, 3))
	if _, _, err := restored(t.Context(), store, 1, 3); err != nil {
		t.Errorf("after a shrink: %v", err)
	}
	// Pages that a shrink dropped do not come back when the database grows.
	regrown := unitOf(size, 12, 9, 12, "regrown")
	delete(regrown.pages, 10)
	put(t, store, "e1/0/4-4", regrown.encode(t, 4, 4))
	if _, _, err := restored(t.Context(), store, 1, 4); !errors.Is(err, ltxfile.ErrCorrupt) || !strings.Contains(err.Error(), "page 10 of 12") {
		t.Errorf("grown again without a page: %v", err)
	}
}

// countingWriter is a target that keeps nothing.
type countingWriter struct {
	pages map[uint32]bool
	fail  error
}

func (c *countingWriter) Resize(uint32, uint32) error { return nil }

func (c *countingWriter) WritePage(pgno uint32, _ []byte) error {
	c.pages[pgno] = true
	return c.fail
}

// TestLockPage grows a database over 1 GiB, whose lock page no file has. What
// is below is taken as restored, since it would take minutes under the race
// detector.
func TestLockPage(t *testing.T) {
	const size, lock = 65536, 16385
	for _, c := range []struct {
		last, missing uint32
	}{{lock + 5, 0}, {lock, 0}, {lock + 5, lock + 1}} {
		u := unitOf(size, c.last, lock-1, c.last, "grown")
		delete(u.pages, c.missing)
		store := objstore.NewMemory()
		put(t, store, "e1/0/2-2", u.encode(t, 2, 2))
		list, err := List(t.Context(), store, scope)
		if err != nil {
			t.Fatal(err)
		}
		got := &countingWriter{pages: map[uint32]bool{}}
		r := restorer{store: store, image: got}
		r.last.PageSize, r.last.Commit = size, lock-1
		for n := range uint32(lock) {
			r.seen.add(n)
		}
		if err := r.apply(t.Context(), list[0]); err != nil {
			t.Fatal(err)
		}
		if pgno, ok := r.missing(); pgno != c.missing || ok != (c.missing != 0) || got.pages[lock] {
			t.Errorf("%d pages, page %d left out: page %d is missed; lock page written %v", c.last, c.missing, pgno, got.pages[lock])
		}
	}
}

// TestEmptied restores across a file that empties the database, and one that
// changes the page size.
func TestEmptied(t *testing.T) {
	store := objstore.NewMemory()
	put(t, store, "e1/0/1-1", unitOf(512, 5, 1, 5, "first").encode(t, 1, 1))
	put(t, store, "e1/0/2-2", unitOf(512, 0, 0, 0, "").encode(t, 2, 2))
	fresh := unitOf(512, 2, 1, 2, "fresh")
	put(t, store, "e1/0/3-3", fresh.encode(t, 3, 3))
	other := unitOf(1024, 2, 1, 2, "other")
	put(t, store, "e1/0/4-4", other.encode(t, 4, 4))
	partial := unitOf(2048, 2, 1, 1, "partial")
	put(t, store, "e1/0/5-5", partial.encode(t, 5, 5))
	for txid, want := range map[uint64]unit{2: {512, 0, map[uint32]string{}}, 3: fresh, 4: other} {
		img, _, err := restored(t.Context(), store, 1, txid)
		if err != nil {
			t.Fatalf("to txid %d: %v", txid, err)
		}
		if diff := cmp.Diff(want.pages, img.pages); diff != "" || img.commit != want.commit {
			t.Errorf("to txid %d (-want +got):\n%s", txid, diff)
		}
	}
	if _, _, err := restored(t.Context(), store, 1, 5); !errors.Is(err, ltxfile.ErrCorrupt) || !strings.Contains(err.Error(), "page 2 of 2") {
		t.Errorf("page size changed by half a database: %v", err)
	}
}

func TestRestoreRefusesWhatItWasNotPromised(t *testing.T) {
	good := unitOf(512, 3, 1, 3, "x").encode(t, 1, 1)
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 0x55
	grand := unitOf(512, 4000000000, 1, 1, "x").encode(t, 1, 1)
	for name, body := range map[string][]byte{
		"empty": {}, "half a header": good[:50], "cut": good[:len(good)-1], "flipped": flipped, "longer": append(bytes.Clone(good), 0),
		"of other transactions": unitOf(512, 3, 1, 3, "x").encode(t, 1, 2), "no LTX file": bytes.Repeat([]byte("x"), 300),
		"too large to be true": grand,
	} {
		store := objstore.NewMemory()
		put(t, store, "e1/0/1-1", body)
		key := named(t, "e1/0/1-1").Object.Key
		img, _, err := restored(t.Context(), store, 1, 1)
		if !errors.Is(err, ltxfile.ErrCorrupt) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", name, err)
		}
		if img != nil && img.commit > 3 {
			t.Errorf("%s: image of %d pages", name, img.commit)
		}
	}
	store := objstore.NewMemory()
	put(t, store, "e1/1/1-2", unitOf(512, 3, 1, 3, "x").encode(t, 2, 2))
	if _, _, err := restored(t.Context(), store, 1, 2); !errors.Is(err, ltxfile.ErrCorrupt) {
		t.Errorf("starts later than its name says: %v", err)
	}
	if _, _, err := Restore(t.Context(), store, nil, &image{}); err == nil {
		t.Error("empty plan: accepted")
	}
}

func TestRestoreReadsWhatWasListed(t *testing.T) {
	store := objstore.NewMemory()
	put(t, store, "e1/0/1-1", unitOf(512, 3, 1, 3, "x").encode(t, 1, 1))
	list, err := List(t.Context(), store, scope)
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, "e1/0/1-1", unitOf(512, 3, 1, 3, "y").encode(t, 1, 1))
	if _, _, err := Restore(t.Context(), store, list, &image{}); !errors.Is(err, objstore.ErrPrecondition) {
		t.Errorf("replaced object: %v", err)
	}
	if err := store.Delete(t.Context(), list[0].Object.Key); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Restore(t.Context(), store, list, &image{}); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("removed object: %v", err)
	}
}

// TestRestorePassesErrorsOn breaks off the body at every byte, and fails the
// target: neither is corruption.
func TestRestorePassesErrorsOn(t *testing.T) {
	store := objstore.NewMemory()
	body := unitOf(512, 3, 1, 3, "x").encode(t, 1, 1)
	put(t, store, "e1/0/1-1", body)
	cause := errors.New("connection reset")
	for at := range len(body) {
		broken := objstore.NewFault(store)
		broken.Add(objstore.Rule{Op: objstore.OpGet, CutError: cause, CutAt: int64(at)})
		if _, _, err := restored(t.Context(), broken, 1, 1); !errors.Is(err, cause) || errors.Is(err, ltxfile.ErrCorrupt) {
			t.Fatalf("after %d bytes: %v", at, err)
		}
	}
	list, err := List(t.Context(), store, scope)
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	if _, _, err := Restore(t.Context(), store, list, &countingWriter{map[uint32]bool{}, full}); !errors.Is(err, full) || errors.Is(err, ltxfile.ErrCorrupt) {
		t.Errorf("failing target: %v", err)
	}
}

// fileWriter restores into a file, as an image that SQLite opens.
type fileWriter struct {
	f    *os.File
	size int64
}

func (w *fileWriter) Resize(pageSize, commit uint32) error {
	w.size = int64(pageSize)
	return w.f.Truncate(w.size * int64(commit))
}

func (w *fileWriter) WritePage(pgno uint32, data []byte) error {
	_, err := w.f.WriteAt(data, w.size*int64(pgno-1))
	return err
}

// TestGoldenRestore restores files that another implementation captured and
// asks SQLite what is in them.
func TestGoldenRestore(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "fixtures", "golden-ltx")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the captured files beside the checkout (../shared/fixtures/golden-ltx) are absent")
	}
	store := objstore.NewMemory()
	for txid := uint64(1); txid <= 6; txid++ {
		body, err := os.ReadFile(filepath.Join(dir, ltxfile.FileName(txid, txid)))
		if err != nil {
			t.Fatal(err)
		}
		put(t, store, fmt.Sprintf("e1/0/%d-%d", txid, txid), body)
	}
	list, err := List(t.Context(), store, scope)
	if err != nil {
		t.Fatal(err)
	}
	for txid, want := range map[uint64]string{
		1: "a=1 b=2 c=3",
		4: "a=upd3 b=2 c=3 k1=v1 k2=v2 k3=v3",
		6: "a=upd5 b=2 c=3 k1=v1 k2=v2 k3=v3 k4=v4 k5=v5",
	} {
		plan, err := Plan(list, 1, txid)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "restored.db")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Restore(t.Context(), store, plan, &fileWriter{f: f}); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got := query(t, path); got != want {
			t.Errorf("txid %d: got %s, want %s", txid, got, want)
		}
	}
}

func query(t *testing.T, path string) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&immutable=1")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var got, check string
	err = db.QueryRow("SELECT group_concat(k || '=' || v, ' ' ORDER BY k) FROM kv").Scan(&got)
	if err == nil {
		err = db.QueryRow("PRAGMA integrity_check").Scan(&check)
	}
	if err != nil || check != "ok" {
		t.Fatalf("query the restored database: %v, integrity %q", err, check)
	}
	return got
}
