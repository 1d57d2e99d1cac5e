package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"celldexport/diffpage"
	"celldexport/diffpage/shadow"
	"celldexport/internal/ltxfile"
)

// What a diff may hold: a fixed part, which is its budgets and the decoder's
// buffers, and so many bytes for each page of the database, of which eight are
// the owner map.
const (
	diffBudget   = 128 << 10
	diffFixed    = 1 << 20
	diffPageMost = 12
)

// diffs follows the units of a scene without the rest of an exporter.
type diffs struct {
	shadow *shadow.Shadow
	base   *diffpage.Base
	temp   string
	files  int // that were followed
}

// TestSmallPages takes a database of many small pages through every rewrite
// and bounds what the diff holds for each page. It measures what collections
// leave while nothing else lives, so that it takes seconds where an exporter
// would need gigabytes to show the same.
func TestSmallPages(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newScene(t.Context(), t.TempDir(), self, sizes{database: 10 << 20, page: 512, row: 200})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	d := diffs{temp: t.TempDir()}
	if d.shadow, err = shadow.Create(filepath.Join(d.temp, "shadow.db")); err != nil {
		t.Fatal(err)
	}
	defer d.shadow.Close()
	if d.base, err = diffpage.NewBase(d.shadow, diffpage.WithMemory(diffBudget), diffpage.WithTempDir(d.temp)); err != nil {
		t.Fatal(err)
	}
	rows := int64(len(tables)) * (s.sizes.database / s.sizes.row / int64(len(tables)))
	changes := map[string]int64{"fill": rows, "update": rows, "delete": rows}
	if _, err := d.follow(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, u := range append([]unit{s.fill()}, units...) {
		if u.lost {
			continue // its rows are shown without a diff
		}
		if err := s.commit(t.Context(), u.sql); err != nil {
			t.Fatal(err)
		}
		before := int64(d.shadow.Commit())
		var seen int64
		took, err := held(func() (err error) {
			seen, err = d.follow(t.Context(), s)
			return err
		})
		if err != nil {
			t.Fatalf("unit %s: %v", u.name, err)
		}
		pages := max(before, int64(d.shadow.Commit()))
		t.Logf("unit %s: %d pages, %d changes, %d bytes held, %.1f a page", u.name, pages, seen, took, float64(took)/float64(pages))
		if pages < 40_000 {
			t.Errorf("unit %s: %d pages show nothing", u.name, pages)
		}
		if took > diffFixed+diffPageMost*pages {
			t.Errorf("unit %s: %d bytes were held for %d pages, the limit is %d and %d a page", u.name, took, pages, diffFixed, diffPageMost)
		}
		if want, ok := changes[u.name]; ok && seen != want {
			t.Errorf("unit %s: %d changes, want %d", u.name, seen, want)
		}
	}
}

// held is the most that a collection left while f ran, above what one left
// before, in bytes.
func held(f func() error) (int64, error) {
	debug.FreeOSMemory()
	before := live()
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	watched := watchHeap("")
	err := f()
	return watched().Live - before, err
}

func live() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// follow diffs what the cell has captured since and counts the changes of rows.
func (d *diffs) follow(ctx context.Context, s *scene) (n int64, err error) {
	files, err := filepath.Glob(filepath.Join(s.cell.LTXDir(), "*.ltx"))
	if err != nil || len(files) <= d.files {
		return 0, errors.Join(err, errors.New("no unit was captured"))
	}
	for _, path := range files[d.files:] {
		d.files++
		more, err := d.unit(ctx, path)
		if n += more; err != nil {
			return n, fmt.Errorf("%s: %w", path, err)
		}
	}
	return n, nil
}

func (d *diffs) unit(ctx context.Context, path string) (n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	head := make([]byte, ltxfile.HeaderSize)
	if _, err := f.ReadAt(head, 0); err != nil {
		return 0, err
	}
	h, err := ltxfile.ParseHeader(head)
	if err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	images := shadow.NewImages(h.PageSize, diffBudget, d.temp)
	_, err = ltxfile.DecodeInto(f, info.Size(), images.Slot, images.Add)
	if err != nil {
		return 0, errors.Join(err, images.Close())
	}
	c, err := d.base.Diff(images, h.Commit)
	if err != nil {
		return 0, errors.Join(err, images.Close())
	}
	defer c.Close()
	runtime.GC() // what is left of the diff counts
	for _, name := range tables {
		if c.Before().ByName(name) == nil && c.After().ByName(name) == nil {
			continue
		}
		if err := c.Rows(name, func(diffpage.Op, diffpage.Row, diffpage.Row) error { n++; return ctx.Err() }); err != nil {
			return n, err
		}
	}
	if err := c.Accept(); err != nil {
		return n, err
	}
	return n, d.shadow.Flush()
}
