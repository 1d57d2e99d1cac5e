package exporter_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
)

// peak is the most memory that the process had, in bytes.
func (c *child) peak() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		return 0, fmt.Errorf("no VmHWM in\n%s", b)
	}
	kb, err := strconv.ParseInt(string(m[1]), 10, 64)
	return kb << 10, err
}

// certified is how many of n cells are certified to a txid of their first epoch.
func (f *farm) certified(n int, txid uint64) (whole int) {
	f.t.Helper()
	all := f.consumer()
	for i := range n {
		if len(all.Certified(f.source(i, 1, txid))) == 0 {
			whole++
		}
	}
	return whole
}

// A thousand cells are there at the start, and then many change nothing but
// the replicator's own table, again and again: memory stays low, internal
// tables never show, units without records make no objects, and the
// certificate moves past them all the same.
func TestTAIL06(t *testing.T) {
	t.Parallel()
	bucket := quickDir(t)
	store, err := objstore.NewFile(bucket)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldOn(t, store, celldsim.V03)
	a := w.host("node-a")
	f := newFarm(w, a, createItems+`; CREATE TABLE auto(id INTEGER PRIMARY KEY AUTOINCREMENT, v); CREATE VIEW seen AS SELECT * FROM items;
		CREATE VIRTUAL TABLE words USING fts5(body); INSERT INTO words VALUES('one word'); INSERT INTO auto(v) VALUES('a')`,
		insertTwo+`; CREATE INDEX by_qty ON items(qty); ANALYZE`)
	f.direct, a.settings.State = bucket, filepath.Join(quickDir(t), "state")
	const cells, busy, seconds, memory = 1000, 200, 3, 512 << 20
	head := f.mould.TXID()
	for i := range cells {
		f.own(i, 1)
		f.upload(i, 1, 1, head)
		f.capture(a.settings.Watch, i, 1, 1, head)
	}
	for range seconds {
		w.must(f.mould.Bump())
		_, err := f.mould.Capture()
		w.must(err)
	}
	f.grow()
	objects := func() (names []string) {
		names, err := filepath.Glob(filepath.Join(bucket, "export/changes/node-a/*/*/*/*/*.parquet"))
		w.must(err)
		return names
	}
	began := time.Now()
	c := a.startChildWith(childSpec{Bucket: bucket, Flush: 200 * time.Millisecond, Interval: 100 * time.Millisecond, Memory: memory})
	t.Cleanup(func() { _ = c.kill() })
	var got []string
	certified := 0
	for before := []string{}; certified < cells || !slices.Equal(before, got); {
		time.Sleep(1500 * time.Millisecond)
		before, got = got, objects()
		if time.Since(began) > 2*patience {
			t.Fatalf("no rest after %v, %d objects, %d cells are certified", time.Since(began), len(got), certified)
		}
		if len(got) > 0 && certified < cells && slices.Equal(before, got) {
			certified = f.certified(cells, head)
		}
	}
	t.Logf("%d cells after %v, in %d objects", cells, time.Since(began), len(got))
	for s := range uint64(seconds) {
		for i := range busy {
			f.upload(i, 1, head+s+1, head+s+1)
			f.capture(a.settings.Watch, i, 1, head+s+1, head+s+1)
		}
		time.Sleep(time.Second)
	}
	if now := objects(); len(now) > len(got)+1 {
		t.Errorf("%d new objects in %d s of units without records", len(now)-len(got), seconds)
	}
	rss, err := c.peak()
	w.must(err)
	t.Logf("peak of %d MiB", rss>>20)
	if rss > memory {
		t.Errorf("the exporter took %d MiB", rss>>20)
	}
	w.must(c.end())
	all := f.whole(busy, map[uint64]uint64{1: head + seconds})
	unsupported := 0
	for _, r := range all.Records {
		var table string
		switch b := r.Body.(type) {
		case *envelope.Rows:
			table = b.Table
		case *envelope.SnapshotRows:
			table = b.Table
		case *envelope.Schema:
			if table = b.Table; table == "words" && b.Unsupported {
				unsupported, table = unsupported+1, ""
			}
		}
		if table != "" && table != "items" && table != "auto" && table != "kv" {
			t.Fatalf("a %s record of table %s", r.Body.Kind(), table)
		}
	}
	if unsupported != cells {
		t.Errorf("%d schema records of a virtual table, want one for each of %d cells", unsupported, cells)
	}
	for i := range cells {
		if d := all.Certified(f.source(i, 1, head)); i >= busy && len(d) > 0 {
			t.Fatal(strings.Join(d, "; "))
		}
	}
}
