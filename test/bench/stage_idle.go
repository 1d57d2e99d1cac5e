package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"celldexport/exporter"
	"celldexport/internal/celld"
	"celldexport/internal/objstore"
)

// idleFiles is the limit of open files that the idle stage runs under.
const idleFiles = 256

// idleStage exports thousands of small cells and then watches the exporter do
// nothing: memory, processor, open files. The bucket is in memory, and what it
// holds is not counted.
func idleStage(ctx context.Context, b *bench) ([]Line, error) {
	cells := b.flags.cells
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: idleFiles, Max: idleFiles}); err != nil {
		return nil, fmt.Errorf("limit open files to %d: %w", idleFiles, err)
	}
	dir, err := fastDir(b.dir)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r, err := newRigOn(ctx, dir, objstore.NewMemory())
	if err != nil {
		return nil, err
	}
	err = r.clones(ctx, cells)
	if err := errors.Join(err, r.fleet.Close()); err != nil {
		return nil, err
	}
	before, err := weigh()
	if err != nil {
		return nil, err
	}
	wall, cpu := wallClock(), cpuClock()
	e, err := start(ctx, exporter.Options{Settings: settingsFor(dir), Fleet: r.store})
	if err != nil {
		return nil, err
	}
	patience, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := e.settled(patience, cells); err != nil {
		return nil, errors.Join(err, e.halt())
	}
	took, used := wall(), cpuClock()-cpu
	idle, load, err := b.watchIdle(e)
	if err := errors.Join(err, e.halt()); err != nil {
		return nil, err
	}
	e = nil
	after, err := weigh()
	first := Line{What: "first export of all cells", NS: float64(took), Value: float64(cells) / used.Seconds(), Unit: "cells per second of processor"}
	lines := append([]Line{first}, idleLines(before, idle, after, load, cells)...)
	for i := range lines {
		lines[i].Stage, lines[i].On = "idle", fmt.Sprintf("%d idle resident cells", cells)
	}
	runtime.KeepAlive(r)
	return lines, err
}

// idleLoad is what doing nothing took: a share of a processor in percent over
// some time, with so many walks of the directory in it.
type idleLoad struct {
	share float64
	over  time.Duration
	walks int
}

// watchIdle looks on for a while, over at least one walk of the directory.
func (b *bench) watchIdle(e *running) (weight, idleLoad, error) {
	time.Sleep(2 * time.Second)
	idle, err := weigh()
	window := 32 * time.Second
	if b.flags.short {
		window = 12 * time.Second
	}
	// What was written shortly before a walk is read again by the next: idle
	// cells are those that two walks have seen as they are.
	walks := e.Status().Watch.Scans
	for settled := walks + 2; walks < settled; walks = e.Status().Watch.Scans {
		time.Sleep(time.Second)
	}
	cpu, wall := cpuClock(), wallClock()
	time.Sleep(window)
	used, took := cpuClock()-cpu, wall()
	load := idleLoad{share: 100 * float64(used) / float64(took), over: time.Duration(took), walks: e.Status().Watch.Scans - walks}
	if load.walks == 0 {
		// Walks are rarer the longer they take: the figure would leave them out.
		err = errors.Join(err, fmt.Errorf("no walk of the directory in %v", load.over))
	}
	return idle, load, err
}

// idleLines counts what the exporter held while idle. The bucket's share is
// what is still reachable after the exporter is gone.
func idleLines(before, idle, after weight, spent idleLoad, cells int) []Line {
	bucket := after.heap - before.heap
	rss := float64(idle.rss-before.rss-bucket) / float64(cells)
	heap := float64(idle.heap-after.heap) / float64(cells)
	load := Line{What: "processor, rounds each second, walks as they come", Value: spent.share, Unit: "% of a core", Note: fmt.Sprintf("%d walks in %v", spent.walks, spent.over.Round(time.Second))}
	memory := Line{What: "resident memory", Value: rss, Unit: "bytes/cell", Note: fmt.Sprintf("of which live heap %s bytes/cell; with everything fixed of the exporter", number(heap))}
	files := Line{What: fmt.Sprintf("open files under a limit of %d", idleFiles), Value: float64(idle.files), Unit: "files", Note: fmt.Sprintf("%d of them before; watches of directories are not files", before.files)}
	return []Line{
		load.atMost(spent.share, 1, "1 %"), memory.atMost(rss, 8<<10, "8,192 bytes"), files.atMost(float64(idle.files), idleFiles/2, "half the limit"),
	}
}

// fastDir is a directory in memory where there is one: the stage makes a
// hundred thousand small files.
func fastDir(otherwise string) (string, error) {
	dir, err := os.MkdirTemp("/dev/shm", "celldexport-bench-")
	if err != nil {
		return os.MkdirTemp(otherwise, "idle-")
	}
	return dir, nil
}

// clones makes n cells with the files of one.
func (r *rig) clones(ctx context.Context, n int) error {
	c, err := r.cell(ctx, "first", "CREATE TABLE items(id INTEGER PRIMARY KEY, sku TEXT, qty INT)",
		"INSERT INTO items VALUES(1, 'A-1', 1), (2, 'A-2', 2), (3, 'A-3', 3)")
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(c.LTXDir(), "*.ltx"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("the first cell has no files")
	}
	own := celld.Own{Node: rigNode, Epoch: c.Epoch()}.Append(nil)
	for range n - 1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		id := r.fleet.RandomCellID(rigClass)
		if err := r.put(ctx, celld.OwnKey(id), own); err != nil {
			return err
		}
		if err := r.clone(ctx, id, c.Epoch(), files); err != nil {
			return fmt.Errorf("clone %s: %w", id, err)
		}
	}
	return nil
}

func (r *rig) clone(ctx context.Context, id string, epoch uint64, files []string) error {
	scope, err := celld.ParseScope(id)
	if err != nil {
		return err
	}
	dir := celld.LTXDir(filepath.Join(r.dir, "watch"), scope, epoch)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o644); err != nil {
			return err
		}
		if err := r.put(ctx, celld.LTXKey(id, epoch, 0, uint64(i+1), uint64(i+1)), b); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) put(ctx context.Context, key string, b []byte) error {
	_, err := r.store.Put(ctx, key, bytes.NewReader(b), int64(len(b)), objstore.PutOptions{})
	return err
}

// weight is what the process takes.
type weight struct{ rss, heap, files int64 }

// weigh gives back to the system what is free and counts the rest.
func weigh() (weight, error) {
	w := weight{heap: liveHeap()}
	debug.FreeOSMemory()
	var err error
	if w.rss, err = statusBytes("VmRSS:"); err != nil {
		return w, err
	}
	open, err := os.ReadDir("/proc/self/fd")
	w.files = int64(len(open)) - 1 // the directory itself
	return w, err
}

// statusBytes reads a size from /proc/self/status.
func statusBytes(field string) (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no %s", field)
}
