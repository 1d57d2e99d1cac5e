package ltxtail

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"celldexport/internal/celld"
	"celldexport/internal/ltxfile"
)

// disorder plays a node and its exporter at random over directories that hang
// at random. Directories that go are moved away, so that no other gets their
// number: a tail cannot tell two directories of one number and time apart.
type disorder struct {
	*hung
	rnd   *rand.Rand
	trash string
	moved int
	// newest and last are the epoch of each cell and its last txid, exported
	// the positions that the tail was told of a residency that it knew, taken
	// the files that the node took away again, whose names may stay.
	newest, last []uint64
	exported     map[residencyOf]uint64
	taken        map[residencyOf]map[uint64]bool
}

type residencyOf struct {
	cell  int
	epoch uint64
}

const disordered = 4

func (d *disorder) epochDir(r residencyOf) string {
	return d.dir(r.cell, filepath.Join(celld.EpochsDirName, celld.EpochName(r.epoch)))
}

func (d *disorder) ltxDir(r residencyOf) string {
	return filepath.Join(d.epochDir(r), celld.LTXDirName)
}

// event is lost one time in three.
func (d *disorder) event(op fsnotify.Op, name string) {
	if d.rnd.IntN(3) > 0 {
		d.events <- fsnotify.Event{Op: op, Name: name}
		synctest.Wait()
	}
}

func (d *disorder) away(name string) {
	if _, err := os.Lstat(name); err != nil {
		return
	}
	d.moved++
	if err := os.Rename(name, filepath.Join(d.trash, fmt.Sprint(d.moved))); err != nil {
		d.Fatal(err)
	}
	d.event(fsnotify.Rename, name)
}

// any is a residency of a cell, one of the last two.
func (d *disorder) any() residencyOf {
	cell := d.rnd.IntN(disordered)
	return residencyOf{cell, max(1, d.newest[cell]-uint64(d.rnd.IntN(2)))}
}

func (d *disorder) write(r residencyOf, txid uint64) {
	if _, err := os.Stat(d.ltxDir(r)); err != nil {
		delete(d.taken, r) // another directory
	}
	delete(d.taken[r], txid)
	name := put(d.T, d.root, nth(r.cell), r.epoch, txid)
	d.event(fsnotify.Create, d.epochDir(r))
	d.event(fsnotify.Create, name)
}

func (d *disorder) advance(r residencyOf, txid uint64) {
	scope := nth(r.cell)
	knows := slices.ContainsFunc(d.tail.Cell(scope), func(k Residency) bool { return k.Epoch == r.epoch })
	d.tail.Advance(scope, r.epoch, txid)
	if knows {
		d.exported[r] = max(d.exported[r], txid)
	}
	for old := range d.exported {
		if old.cell == r.cell && old.epoch < r.epoch {
			delete(d.exported, old)
		}
	}
}

func (d *disorder) hang() {
	r := d.any()
	dirs := []string{d.dir(r.cell, celld.EpochsDirName), d.epochDir(r), d.ltxDir(r), d.dir(r.cell, celld.FacetsDirName), d.root}
	dir := dirs[d.rnd.IntN(len(dirs))]
	call := []string{stat, readDir}[d.rnd.IntN(2)]
	if !d.fs.hangs(call, dir) {
		d.fs.hang(call, dir, d.rnd.IntN(2) == 0)
	}
}

func (f *hangingFS) hangs(call, dir string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.gates[call+dir]
	return ok
}

func (d *disorder) step() string {
	switch n := d.rnd.IntN(100); {
	case n < 30:
		r := d.any()
		d.last[r.cell]++
		d.write(r, d.last[r.cell])
		return fmt.Sprint("write ", r, d.last[r.cell])
	case n < 36: // renamed over
		r := d.any()
		d.write(r, 1+d.rnd.Uint64N(d.last[r.cell]))
		return fmt.Sprint("write again ", r)
	case n < 40:
		r := d.any()
		if os.MkdirAll(d.ltxDir(r), 0o755) == nil {
			_ = os.WriteFile(filepath.Join(d.ltxDir(r), ltxfile.FileName(999, 999)+tmpSuffix), nil, 0o644)
		}
		return fmt.Sprint("temporary ", r)
	case n < 45:
		r, txid := d.any(), uint64(1)
		txid += d.rnd.Uint64N(d.last[r.cell])
		name := filepath.Join(d.ltxDir(r), ltxfile.FileName(txid, txid))
		if os.Remove(name) == nil {
			if d.taken[r] == nil {
				d.taken[r] = make(map[uint64]bool)
			}
			d.taken[r][txid] = true
			d.event(fsnotify.Remove, name)
		}
		return fmt.Sprint("remove file ", r, txid)
	case n < 52:
		r := d.any()
		d.advance(r, d.rnd.Uint64N(d.last[r.cell]+1))
		return fmt.Sprint("advance ", r)
	case n < 56:
		r := d.any()
		d.away(filepath.Join(d.epochDir(r), filepath.Dir(celld.LTXDirName)))
		return fmt.Sprint("LTX directory goes ", r)
	case n < 58:
		r := d.any()
		d.away(d.epochDir(r))
		return fmt.Sprint("epoch goes ", r)
	case n < 60:
		r := d.any()
		d.away(d.dir(r.cell, ""))
		return fmt.Sprint("cell goes ", r.cell)
	case n < 66:
		cell := d.rnd.IntN(disordered)
		d.newest[cell]++
		d.last[cell] = 1
		d.write(residencyOf{cell, d.newest[cell]}, 1)
		return fmt.Sprint("wake ", cell, d.newest[cell])
	case n < 78:
		d.hang()
		return "hang"
	case n < 84:
		d.fs.release()
		synctest.Wait()
		return "release"
	case n < 86:
		d.errors <- fsnotify.ErrEventOverflow
		synctest.Wait()
		return "events lost"
	default:
		d.pass(time.Duration(d.rnd.IntN(15_000)) * time.Millisecond)
		return "time"
	}
}

// check expects that the tail knows of every residency what a new one would
// find, but for what was exported, and nothing else.
func (d *disorder) check() {
	fresh := New(Config{Root: d.root})
	if err := fresh.Scan(d.Context()); err != nil {
		d.Fatal(err)
	}
	for cell := range disordered {
		scope := nth(cell)
		known := d.tail.Cell(scope)
		for r, txid := range d.exported {
			if r.cell == cell {
				fresh.Advance(scope, r.epoch, txid)
			}
		}
		for _, want := range fresh.Cell(scope) {
			if !slices.ContainsFunc(known, func(k Residency) bool { return k.Epoch == want.Epoch }) {
				d.Errorf("cell %d, epoch %d is not known", cell, want.Epoch)
			}
			d.same(residencyOf{cell, want.Epoch}, known, want)
		}
		for _, k := range known {
			r := residencyOf{cell, k.Epoch}
			d.same(r, known, d.onDisk(r))
		}
	}
}

// onDisk is what lies there of a residency and is not exported.
func (d *disorder) onDisk(r residencyOf) Residency {
	out := Residency{Epoch: r.epoch}
	entries, err := os.ReadDir(d.ltxDir(r))
	out.Live = err == nil
	for _, e := range entries {
		if _, txid, ok := ltxfile.ParseFileName(e.Name()); ok && txid > d.exported[r] {
			out.Files = append(out.Files, File{TXID: txid})
		}
	}
	return out
}

func (d *disorder) same(r residencyOf, known []Residency, want Residency) {
	for _, k := range known {
		if k.Epoch != r.epoch {
			continue
		}
		got, wanted := make(map[uint64]bool), make(map[uint64]bool)
		for _, f := range want.Files {
			wanted[f.TXID] = true
		}
		for _, f := range k.Files {
			got[f.TXID] = true
			if !wanted[f.TXID] && !d.taken[r][f.TXID] {
				d.Errorf("%v: %d is pending and not there", r, f.TXID)
			}
		}
		for txid := range wanted {
			if !got[txid] {
				d.Errorf("%v: %d is there and not pending", r, txid)
			}
		}
		if k.Live != want.Live {
			d.Errorf("%v: live %v, want %v", r, k.Live, want.Live)
		}
	}
}

// always holds at any moment, whatever hangs.
func (d *disorder) always() {
	for cell := range disordered {
		for _, k := range d.tail.Cell(nth(cell)) {
			if len(k.Files) > 0 && k.Files[0].TXID <= d.exported[residencyOf{cell, k.Epoch}] {
				d.Errorf("cell %d, epoch %d: %d is pending and exported", cell, k.Epoch, k.Files[0].TXID)
			}
		}
	}
	d.tail.Stats()
	d.tail.Walked()
	if d.rnd.IntN(4) == 0 {
		d.tail.Dirty()
	}
}

// In whatever order things happen, hang and come back: once all is back and
// was walked, a tail knows what a new one finds.
func TestHangingInAnyOrder(t *testing.T) {
	seeds := 20
	if testing.Short() {
		seeds = 5
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			trash := t.TempDir()
			inBubble(t, disordered, func(t *testing.T, h *hung) {
				d := &disorder{
					hung: h, rnd: rand.New(rand.NewPCG(seed, 1)), trash: trash,
					newest: []uint64{1, 1, 1, 1}, last: []uint64{1, 1, 1, 1},
					exported: make(map[residencyOf]uint64), taken: make(map[residencyOf]map[uint64]bool),
				}
				var done []string
				for range 120 {
					done = append(done, d.step())
					d.always()
				}
				tick()
				h.fs.release()
				synctest.Wait()
				if err := h.tail.Scan(t.Context()); err != nil {
					t.Error(err)
				}
				d.check()
				if s := h.tail.Stats(); s.Unreadable != 0 || s.LastError != "" {
					t.Errorf("%+v", s)
				}
				if t.Failed() {
					t.Logf("after:\n%s", strings.Join(done, "\n"))
				}
			})
		})
	}
}

// The same with the watcher of the operating system, in its time.
func TestHangingDirectoryIsWatched(t *testing.T) {
	root := t.TempDir()
	for i := range 3 {
		put(t, root, nth(i), 1, 1)
	}
	files := newHangingFS()
	tail := New(Config{Root: root, FS: files, Watch: Inotify, Rescan: time.Hour})
	tail.readers.patience = time.Second
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tail.Run(ctx) }()
	until(t, "first walk", func() bool { return tail.Stats().Scans > 0 })
	files.hang(stat, filepath.Join(root, nth(1), "ltx"), false)
	for i := range 3 {
		put(t, root, nth(i), 2, 1)
		put(t, root, nth(i), 1, 2)
	}
	until(t, "files of those that answer", func() bool {
		return pending(tail, nth(0)) == "e1:1,2 live e2:1 live" && pending(tail, nth(2)) == "e1:1,2 live e2:1 live"
	})
	until(t, "a word of the one that does not", func() bool {
		return strings.Contains(tail.Stats().LastError, nth(1)+"/ltx: does not answer")
	})
	until(t, "the file that an event told of", func() bool { return pending(tail, nth(1)) == "e1:1,2 live" })
	files.release()
	until(t, "the others", func() bool { return pending(tail, nth(1)) == "e1:1,2 live e2:1 live" })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
