package celldsim

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/superfly/ltx"

	"celldexport/internal/chain"
	"celldexport/internal/objstore"
)

// start is the time of the first tick of every test's clock.
var start = time.UnixMilli(1_795_000_000_000)

// newFleet makes a fleet over a memory bucket whose clock advances by a
// millisecond at each look.
func newFleet(t *testing.T, cfg Config) *Fleet {
	t.Helper()
	now := start
	cfg.Bucket = objstore.NewMemory()
	cfg.Now = func() time.Time {
		now = now.Add(time.Millisecond)
		return now
	}
	if cfg.Script == "" {
		cfg.Script, cfg.Classes = "shop", []string{"Shelf"}
	}
	f, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func newNode(t *testing.T, f *Fleet, name string) *Node {
	t.Helper()
	n, err := f.Node(t.Context(), name, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func activate(t *testing.T, n *Node, cell string) *Cell {
	t.Helper()
	c, err := n.Activate(t.Context(), cell, "aisle 9")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func capture(t *testing.T, c *Cell) []uint64 {
	t.Helper()
	txids, err := c.Capture()
	must(t, err)
	return txids
}

func dump(t *testing.T, c *Cell) map[string]DumpedTable {
	t.Helper()
	d, err := Dump(context.Background(), c.DB(), c.Scope())
	must(t, err)
	return d
}

// captured is one LTX file as the public LTX library reads it.
type captured struct {
	header ltx.Header
	pages  map[uint32][]byte
}

// decodeLTX verifies a whole file with the public LTX library.
func decodeLTX(t *testing.T, name string, b []byte) captured {
	t.Helper()
	dec := ltx.NewDecoder(bytes.NewReader(b))
	if err := dec.DecodeHeader(); err != nil {
		t.Fatalf("%s: header: %v", name, err)
	}
	got := captured{header: dec.Header(), pages: map[uint32][]byte{}}
	for {
		var h ltx.PageHeader
		page := make([]byte, got.header.PageSize)
		err := dec.DecodePage(&h, page)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%s: page: %v", name, err)
		}
		got.pages[h.Pgno] = page
	}
	if err := dec.Close(); err != nil {
		t.Fatalf("%s: trailer: %v", name, err)
	}
	return got
}

// localFiles decodes all captured files of a cell, in order.
func localFiles(t *testing.T, c *Cell) []captured {
	t.Helper()
	entries, err := os.ReadDir(c.LTXDir())
	must(t, err)
	var files []captured
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(c.LTXDir(), e.Name()))
		must(t, err)
		f := decodeLTX(t, e.Name(), b)
		want := fmt.Sprintf("%016x-%016x.ltx", uint64(f.header.MinTXID), uint64(f.header.MaxTXID))
		if e.Name() != want {
			t.Errorf("file %s holds txids of %s", e.Name(), want)
		}
		files = append(files, f)
	}
	return files
}

// assemble applies files page by page.
func assemble(t *testing.T, files []captured) []byte {
	t.Helper()
	var db []byte
	for _, f := range files {
		size := int(f.header.PageSize)
		if grown := int(f.header.Commit)*size - len(db); grown > 0 {
			db = append(db, make([]byte, grown)...)
		}
		db = db[:int(f.header.Commit)*size]
		for pgno, page := range f.pages {
			copy(db[(int(pgno)-1)*size:], page)
		}
	}
	return db
}

// checkpointedCopy returns the bytes the live database would have after a
// checkpoint, by checkpointing a copy of its files.
func checkpointedCopy(t *testing.T, c *Cell) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db.sqlite")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(c.db.path() + suffix)
		must(t, err)
		must(t, os.WriteFile(path+suffix, b, 0o644))
	}
	db, err := openDatabase(path, nil)
	must(t, err)
	var busy, frames, moved int
	must(t, db.QueryRow(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &frames, &moved))
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, db.Close())
	return b
}

// checkFiles holds the captured files of a cell against the database.
func checkFiles(t *testing.T, c *Cell) {
	t.Helper()
	files := localFiles(t, c)
	got, want := assemble(t, files), checkpointedCopy(t, c)
	if bytes.Equal(got, want) {
		return
	}
	t.Errorf("files give %d bytes, the database has %d", len(got), len(want))
	size := int(files[0].header.PageSize)
	for at := 0; at+size <= min(len(got), len(want)); at += size {
		if !bytes.Equal(got[at:at+size], want[at:at+size]) {
			t.Errorf("page %d differs", at/size+1)
		}
	}
}

// restoreDump restores a scope from the bucket alone and dumps it.
func restoreDump(t *testing.T, f *Fleet, scope string) map[string]DumpedTable {
	t.Helper()
	ctx := t.Context()
	files, err := chain.List(ctx, f.cfg.Bucket, scope)
	must(t, err)
	head, ok := chain.Derive(files)
	if !ok {
		t.Fatalf("the bucket holds nothing of %s", scope)
	}
	plan, err := chain.Plan(files, head.Epoch, head.TXID)
	must(t, err)
	path := filepath.Join(t.TempDir(), "db.sqlite")
	out, err := os.Create(path)
	must(t, err)
	_, _, err = chain.Restore(ctx, f.cfg.Bucket, plan, &databaseFile{file: out})
	must(t, err)
	must(t, out.Close())
	db, err := sql.Open("sqlite", path)
	must(t, err)
	defer db.Close()
	d, err := Dump(ctx, db, scope)
	must(t, err)
	return d
}

// checkBucket says whether the bucket restores to want.
func checkBucket(t *testing.T, f *Fleet, scope string, want map[string]DumpedTable) {
	t.Helper()
	if diff := cmp.Diff(want, restoreDump(t, f, scope)); diff != "" {
		t.Errorf("the bucket restores to another state (-want +got):\n%s", diff)
	}
}

// keys lists the bucket's keys.
func keys(t *testing.T, f *Fleet) []string {
	t.Helper()
	var keys []string
	for obj, err := range f.cfg.Bucket.List(t.Context(), "", "") {
		must(t, err)
		keys = append(keys, obj.Key)
	}
	return keys
}

// tree lists the files of a directory.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var paths []string
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			paths = append(paths, filepath.ToSlash(rel))
		}
		return err
	}))
	return paths
}

// readObject reads an object whole.
func readObject(ctx context.Context, s objstore.Store, key string) ([]byte, error) {
	b, _, err := objstore.ReadAll(ctx, s, key, 1<<26)
	return b, err
}
