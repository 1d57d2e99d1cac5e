package ltxtail

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// The calls that a hangingFS can hold up.
const (
	stat    = "stat"
	readDir = "read"
)

// hangingFS is a file system of which some calls do not come back until a test
// lets them.
type hangingFS struct {
	OS
	mu    sync.Mutex
	gates map[string]gate
	// calls counts what was asked about a directory that hangs, waiting the
	// calls under way.
	calls   map[string]int
	waiting int
}

// gate holds up a call before it is made, or after with what it found then.
type gate struct {
	open chan struct{}
	late bool
}

func newHangingFS() *hangingFS {
	return &hangingFS{gates: make(map[string]gate), calls: make(map[string]int)}
}

func (f *hangingFS) hang(call, dir string, late bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gates[call+dir] = gate{make(chan struct{}), late}
}

func (f *hangingFS) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.gates {
		close(g.open)
	}
	clear(f.gates)
}

// asked is how many calls were held up about a directory, held how many are.
func (f *hangingFS) asked(call, dir string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call+dir]
}

func (f *hangingFS) held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}

func (f *hangingFS) pass(key string, do func()) {
	f.mu.Lock()
	g, hangs := f.gates[key]
	if hangs {
		f.calls[key]++
		f.waiting++
	}
	f.mu.Unlock()
	if !hangs {
		do()
		return
	}
	if g.late {
		do()
	}
	<-g.open
	if !g.late {
		do()
	}
	f.mu.Lock()
	f.waiting--
	f.mu.Unlock()
}

func (f *hangingFS) Stat(name string) (info fs.FileInfo, err error) {
	f.pass(stat+name, func() { info, err = f.OS.Stat(name) })
	return info, err
}

func (f *hangingFS) ReadDir(name string) (entries []fs.DirEntry, err error) {
	f.pass(readDir+name, func() { entries, err = f.OS.ReadDir(name) })
	return entries, err
}

// tick lets the clock of the file system go on, which the bubble's is not.
func tick() { _ = unix.Nanosleep(&unix.Timespec{Nsec: 11e6}, nil) }

// hung is a tail in a bubble over directories that hang. Its time is the
// bubble's: a call that hangs is the only thing that takes any.
type hung struct {
	*testing.T
	root   string
	fs     *hangingFS
	tail   *Tail
	events chan fsnotify.Event
	errors chan error
	stop   func()
}

// inBubble runs a test in a bubble, with some cells of one file each.
func inBubble(t *testing.T, cells int, test func(t *testing.T, h *hung)) {
	root := t.TempDir()
	for i := range cells {
		put(t, root, nth(i), 1, 1)
	}
	synctest.Test(t, func(t *testing.T) {
		h := &hung{T: t, root: root, fs: newHangingFS(), events: make(chan fsnotify.Event), errors: make(chan error)}
		h.tail = New(Config{Root: root, FS: h.fs, Watch: func() (Watcher, error) {
			return spoken{deaf: deaf{h.errors}, events: h.events}, nil
		}})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		h.stop = func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			h.stop = func() {}
		}
		run := func() { go func() { done <- h.tail.Run(ctx) }() }
		run()
		defer func() {
			h.fs.release()
			h.stop()
			synctest.Wait()
			if n := h.fs.held(); n != 0 {
				t.Errorf("%d calls are under way at the end", n)
			}
		}()
		h.pass(15 * time.Second) // until all is settled
		h.tail.Dirty()
		test(t, h)
	})
}

func nth(i int) string { return fmt.Sprintf("Cart:%064x", i) }

// pass lets time go by.
func (h *hung) pass(d time.Duration) {
	tick()
	time.Sleep(d)
	synctest.Wait()
}

// dir is a directory of a cell, by its path below it.
func (h *hung) dir(cell int, part string) string { return filepath.Join(h.root, nth(cell), part) }

const ltxDir = "ltx/e1/.db.sqlite-litestream/ltx/0"

// put makes a file and sends the events of some of what it made.
func (h *hung) put(cell int, epoch, txid uint64, events ...string) {
	h.Helper()
	put(h.T, h.root, nth(cell), epoch, txid)
	for _, part := range events {
		h.events <- fsnotify.Event{Op: fsnotify.Create, Name: h.dir(cell, part)}
	}
	synctest.Wait()
}

func (h *hung) want(cell int, want string) {
	h.Helper()
	if got := pending(h.tail, nth(cell)); got != want {
		h.Fatalf("cell %d: %q, want %q", cell, got, want)
	}
}

// A directory that hangs holds up its own cell: the others' files are seen by
// events and by the walk, the state names it, it is asked once, and all of it
// is seen when it is back.
func TestHangingDirectory(t *testing.T) {
	for _, c := range []struct{ call, part string }{
		{stat, "ltx"}, {readDir, "ltx"}, {stat, ltxDir}, {readDir, ltxDir},
		{stat, "ltx/e2/.db.sqlite-litestream/ltx/0"}, {readDir, "ltx/e2/.db.sqlite-litestream/ltx/0"},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %s %v", c.call, c.part, late), func(t *testing.T) {
				inBubble(t, 3, func(t *testing.T, h *hung) {
					dir := h.dir(1, c.part)
					h.fs.hang(c.call, dir, late)
					h.put(1, 1, 2)
					h.put(1, 2, 1, "ltx/e2")
					h.put(2, 2, 1, "ltx/e2") // stands behind the one that hangs
					h.put(0, 1, 2, ltxDir+"/0000000000000002-0000000000000002.ltx")
					h.want(0, "e1:1,2 live")
					h.pass(patience + patience/checks)
					h.want(2, "e1:1 live e2:1 live")
					h.want(1, "e1:1 live")
					if got := h.tail.Dirty(); !slices.Equal(got, []string{nth(0), nth(2)}) {
						t.Errorf("dirty: %v", got)
					}
					h.put(2, 2, 2)
					walks := h.tail.Stats().Scans
					h.pass(30 * time.Second)
					h.want(2, "e1:1 live e2:1,2 live")
					h.want(1, "e1:1 live")
					s := h.tail.Stats()
					if s.Scans < walks+2 || s.Unreadable != 1 || !strings.Contains(s.LastError, dir+": does not answer") {
						t.Errorf("after %d walks: %+v", walks, s)
					}
					if once, whole := h.tail.Walked(); !once || whole {
						t.Errorf("walked %v, whole %v", once, whole)
					}
					if n := h.fs.asked(c.call, dir); n != 1 {
						t.Errorf("asked %d times while it hangs", n)
					}
					h.put(1, 1, 3, ltxDir+"/0000000000000003-0000000000000003.ltx")
					h.want(1, "e1:1,3 live") // events need no directory to answer
					h.tail.Advance(nth(1), 1, 1)
					h.want(1, "e1:3 live")
					h.tail.Dirty()
					h.fs.release()
					synctest.Wait()
					h.want(1, "e1:2,3 live e2:1 live")
					if got := h.tail.Dirty(); !slices.Equal(got, []string{nth(1)}) {
						t.Errorf("dirty after the return: %v", got)
					}
					h.pass(10 * time.Second)
					if s := h.tail.Stats(); s.Unreadable != 0 || s.LastError != "" {
						t.Errorf("a walk after the return: %+v", s)
					}
				})
			})
		}
	}
}

// What hangs while the facets are counted has its files known already.
func TestHangingFacets(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, h *hung) {
		h.fs.hang(readDir, h.dir(0, "facets"), false)
		h.put(0, 1, 2)
		h.put(1, 1, 2)
		h.pass(20 * time.Second)
		h.want(0, "e1:1,2 live")
		h.want(1, "e1:1,2 live")
		if s := h.tail.Stats(); s.Unreadable != 1 || !strings.Contains(s.LastError, h.dir(0, "facets")) {
			t.Errorf("%+v", s)
		}
	})
}

// What a reading found late undoes nothing that was learned since: a listing
// of before is applied, then what there is.
func TestLateListing(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, h *hung) {
		h.fs.hang(readDir, h.dir(0, ltxDir), true)
		h.put(0, 1, 2)
		h.pass(20 * time.Second)
		h.tail.Advance(nth(0), 1, 2)
		h.want(0, "e1: live")
		if err := os.Rename(h.dir(0, ltxDir), filepath.Join(t.TempDir(), "away")); err != nil {
			t.Fatal(err)
		}
		h.put(0, 1, 2)
		h.put(0, 1, 4)
		h.fs.release()
		synctest.Wait()
		h.want(0, "e1:4 live")
	})
}

// A name that an event brought while the directory was found to be another one
// is not taken for one of the old directory.
func TestEventDuringAReading(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, h *hung) {
		if err := os.Rename(h.dir(0, ltxDir), filepath.Join(t.TempDir(), "away")); err != nil {
			t.Fatal(err)
		}
		h.put(0, 1, 2)
		h.fs.hang(readDir, h.dir(0, ltxDir), true)
		h.events <- fsnotify.Event{Op: fsnotify.Create, Name: h.dir(0, "ltx")}
		h.pass(time.Second) // less than has it left behind
		h.put(0, 1, 3, ltxDir+"/0000000000000003-0000000000000003.ltx")
		h.want(0, "e1:1,3 live")
		h.fs.release()
		synctest.Wait()
		h.want(0, "e1:2,3 live")
	})
}

// A residency below the one that is exported meanwhile does not come back, nor
// does its watch stay.
func TestAdvanceBeyondAHangingResidency(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, h *hung) {
		h.put(0, 2, 1, "ltx/e2")
		h.want(0, "e1:1 live e2:1 live")
		h.fs.hang(readDir, h.dir(0, ltxDir), true)
		h.put(0, 1, 2)
		h.pass(20 * time.Second)
		h.tail.Advance(nth(0), 2, 1)
		h.want(0, "e2: live")
		h.fs.release()
		synctest.Wait()
		h.want(0, "e2: live")
		if n := h.tail.Stats().Watched; n != 3 {
			t.Errorf("%d directories are watched, want root, epochs and LTX directory", n)
		}
	})
}

// Beyond a bound directories are waited for, and the state says so; events of
// the cells that answer go on, and all is seen when the others do.
func TestHundredHangingDirectories(t *testing.T) {
	const cells = 103
	inBubble(t, cells, func(t *testing.T, h *hung) {
		for i := 1; i <= 100; i++ {
			h.fs.hang(stat, h.dir(i, "ltx"), i%2 == 0)
		}
		h.put(102, 1, 2)
		h.pass(5 * time.Minute)
		if n := h.fs.held(); n != maxSilent+1 {
			t.Errorf("%d calls are under way, want %d", n, maxSilent+1)
		}
		if s := h.tail.Stats(); s.Unreadable != maxSilent+1 || !strings.Contains(s.LastError, "walks wait, 65 cells do not answer") {
			t.Errorf("%+v", s)
		}
		h.put(101, 1, 2, ltxDir+"/0000000000000002-0000000000000002.ltx")
		h.want(101, "e1:1,2 live")
		h.want(102, "e1:1 live")
		if _, whole := h.tail.Walked(); whole {
			t.Error("walked whole")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.tail.Scan(ctx); !errors.Is(err, ErrSilent) {
			t.Errorf("another walk: %v", err)
		}
		for i := 1; i <= 100; i++ {
			h.put(i, 1, 2)
		}
		h.fs.release()
		h.pass(time.Second)
		h.want(102, "e1:1,2 live")
		h.pass(time.Minute)
		for i := 1; i < cells; i++ {
			h.want(i, "e1:1,2 live")
		}
		if s := h.tail.Stats(); s.Unreadable != 0 || s.LastError != "" {
			t.Errorf("%+v", s)
		}
	})
}

// The root hangs: walks wait, nothing else does.
func TestHangingRoot(t *testing.T) {
	for _, call := range []string{stat, readDir} {
		t.Run(call, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, h *hung) {
				h.fs.hang(call, h.root, false)
				put(t, h.root, nth(7), 1, 1)
				walks := h.tail.Stats().Scans
				h.pass(time.Minute)
				h.put(0, 1, 2, ltxDir+"/0000000000000002-0000000000000002.ltx")
				h.put(1, 2, 1, "ltx/e2")
				h.want(0, "e1:1,2 live")
				h.want(1, "e1:1 live e2:1 live")
				h.tail.Advance(nth(0), 1, 2)
				if got := h.tail.Dirty(); len(got) != 2 {
					t.Errorf("dirty: %v", got)
				}
				s := h.tail.Stats()
				if s.Scans != walks || s.Unreadable != 1 || !strings.Contains(s.LastError, "read "+h.root+": does not answer") {
					t.Errorf("%+v", s)
				}
				h.fs.release()
				synctest.Wait()
				h.want(7, "e1:1 live")
				if s := h.tail.Stats(); s.Scans != walks+1 || s.Unreadable != 0 || s.LastError != "" {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// Scan answers with the cell that hangs when it has the time, and is given up
// when it has not.
func TestScanOfAHangingDirectory(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, h *hung) {
		h.stop()
		h.fs.hang(stat, h.dir(1, "ltx"), false)
		h.put(2, 1, 2)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.tail.Scan(short); !errors.Is(err, ErrSilent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a walk of a second: %v", err)
		}
		h.want(2, "e1:1 live")
		for range 2 {
			err := h.tail.Scan(t.Context())
			if err == nil || errors.Is(err, ErrSilent) || errors.Is(err, ErrRoot) || !strings.Contains(err.Error(), h.dir(1, "ltx")+": does not answer") {
				t.Errorf("a walk that has the time: %v", err)
			}
		}
		h.want(2, "e1:1,2 live")
		if n := h.fs.asked(stat, h.dir(1, "ltx")); n != 1 {
			t.Errorf("asked %d times", n)
		}
		h.fs.release()
		synctest.Wait()
		if err := h.tail.Scan(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Run ends though a directory hangs, and takes nothing with it.
func TestEndWithAHangingDirectory(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, h *hung) {
		h.fs.hang(readDir, h.dir(1, ltxDir), true)
		h.put(1, 1, 2, "ltx/e2")
		began := time.Now()
		h.stop()
		if took := time.Since(began); took > 2*patience {
			t.Errorf("Run ended after %v", took)
		}
		h.want(1, "e1:1 live")
		h.fs.release()
		synctest.Wait()
		h.want(1, "e1:1,2 live")
	})
}

// hangingWatcher does not come back from watching one directory.
type hangingWatcher struct {
	spoken
	dir  string
	open chan struct{}
}

func (w hangingWatcher) Add(dir string) error {
	if dir == w.dir {
		<-w.open
	}
	return nil
}

// A watcher that hangs is no watcher: everything is polled while it does.
func TestHangingWatcher(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, h *hung) {
		h.stop()
		w := hangingWatcher{spoken{deaf: deaf{}, events: h.events}, h.dir(1, ltxDir), make(chan struct{})}
		tail := New(Config{Root: h.root, FS: h.fs, Watch: func() (Watcher, error) { return w, nil }})
		h.tail = tail
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- tail.Run(ctx) }()
		open := sync.OnceFunc(func() { close(w.open) })
		defer func() {
			open()
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		h.pass(20 * time.Second) // past the pause after a walk of two seconds
		if s := tail.Stats(); !s.Polling || s.Unreadable != 1 || !strings.Contains(s.LastError, h.dir(1, ltxDir)) {
			t.Errorf("%+v", s)
		}
		h.put(2, 1, 2)
		tail.Advance(nth(0), 1, 1)
		h.pass(time.Second)
		h.want(2, "e1:1,2 live")
		h.want(1, "")
		open()
		h.pass(5 * time.Second)
		h.want(1, "e1:1 live")
		// Root, and two directories of each cell.
		if s := tail.Stats(); s.Polling || s.Unreadable != 0 || s.Watched != 7 {
			t.Errorf("when it is back: %+v", s)
		}
	})
}
