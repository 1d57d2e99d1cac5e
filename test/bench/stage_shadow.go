package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"celldexport/diffpage"
	"celldexport/diffpage/shadow"
)

// countingFile counts what is read of a shadow.
type countingFile struct {
	*os.File
	read int64
}

func (c *countingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.File.ReadAt(p, off)
	c.read += int64(n)
	return n, err
}

// shadowStage counts the bytes that diffs read of the shadow, per byte of
// page that the unit changed.
func shadowStage(ctx context.Context, b *bench) ([]Line, error) {
	d, err := openDatabase(filepath.Join(b.dir, "shadow.db"))
	if err != nil {
		return nil, err
	}
	defer d.close()
	if err := d.exec(ctx, eightColumns, fill(tableRows)); err != nil {
		return nil, err
	}
	var lines []Line
	more := append(changes(),
		change{"100,000 rows deleted", 100000, "DELETE FROM t WHERE id BETWEEN 100001 AND 200000"},
		change{"VACUUM", 0, "VACUUM"})
	for _, c := range more {
		u, err := d.unit(ctx, c.sql)
		if err != nil {
			return nil, err
		}
		read, err := shadowReads(d.path, u, int64(c.rows))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		l := Line{Stage: "shadow", What: "bytes read per byte of changed page, " + c.name, On: u.String(), Value: float64(read) / float64(u.bytes()), Unit: "x"}
		if c.rows > 0 && c.rows < 100000 {
			l = l.atMost(l.Value, 1.05, "1.05 x")
		} else {
			l.Note = "frees or moves pages: without goal"
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// shadowReads is what one unit, from its file to its records, reads.
func shadowReads(path string, u *unit, rows int64) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return 0, errors.Join(err, file.Close())
	}
	counted := &countingFile{File: file}
	sh, err := shadow.New(counted, path, info.Size())
	if err != nil {
		return 0, errors.Join(err, file.Close())
	}
	s, err := subjectOn(sh, u)
	if err != nil {
		return 0, err
	}
	counted.read = 0
	err = s.whole(rows)()
	return counted.read, errors.Join(err, s.close())
}

// ownersStage weighs the map from pages to tables.
func ownersStage(ctx context.Context, b *bench) ([]Line, error) {
	_, sh, err := tableBase(ctx, filepath.Join(b.dir, "owners.db"), tableRows)
	if err != nil {
		return nil, err
	}
	defer sh.Close()
	before := liveHeap()
	base, err := diffpage.NewBase(sh)
	if err != nil {
		return nil, err
	}
	held := float64(liveHeap()-before) / float64(sh.Commit())
	kept, err := base.MarshalOwners("tag")
	if err != nil {
		return nil, err
	}
	runtime.KeepAlive(base)
	r, err := b.interleave(cpuClock, func() error {
		_, err := diffpage.NewBase(sh)
		return err
	}, func() error {
		_, err := diffpage.OpenBase(sh, "tag", kept)
		return err
	})
	if err != nil {
		return nil, err
	}
	on := fmt.Sprintf("%d pages", sh.Commit())
	bytes := int(sh.Commit()) * int(sh.PageSize())
	memory := Line{Stage: "owners", What: "memory of an open base", On: on, Value: held, Unit: "bytes/page"}
	return []Line{
		memory.judged(held < 9, "8 bytes/page"),
		{Stage: "owners", What: "kept beside the shadow", On: on, Value: float64(len(kept)) / float64(sh.Commit()), Unit: "bytes/page"},
		Line{Stage: "owners", What: "built from all pages", On: on}.took(r[0], int(sh.Commit()), "page").mbps(bytes),
		Line{Stage: "owners", What: "taken up again", On: on}.took(r[1], int(sh.Commit()), "page").versus("built", r[1].against(r[0])),
	}, nil
}

// liveHeap is what is reachable, in bytes.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
