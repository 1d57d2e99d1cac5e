package ltxtail

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"celldexport/internal/ltxfile"
)

// oddFS is a file system with faults of its own: times of directories that
// never change, calls that fail, things that happen between two calls.
type oddFS struct {
	OS
	// frozen is the time of everything, unless zero.
	frozen time.Time
	// slow is how long a Stat takes, asking is called before.
	slow   time.Duration
	asking func(name string)
	// before is called before a directory is read.
	before func(dir string) error
	mu     sync.Mutex
	read   []string
	asked  []string
}

func (f *oddFS) ReadDir(name string) ([]fs.DirEntry, error) {
	f.mu.Lock()
	f.read = append(f.read, name)
	f.mu.Unlock()
	if f.before != nil {
		if err := f.before(name); err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
	return f.OS.ReadDir(name)
}

func (f *oddFS) Stat(name string) (fs.FileInfo, error) {
	f.mu.Lock()
	f.asked = append(f.asked, name)
	f.mu.Unlock()
	if f.asking != nil {
		f.asking(name)
	}
	time.Sleep(f.slow)
	info, err := f.OS.Stat(name)
	if err != nil || f.frozen.IsZero() {
		return info, err
	}
	return frozenInfo{info, f.frozen}, nil
}

type frozenInfo struct {
	fs.FileInfo
	modified time.Time
}

func (i frozenInfo) ModTime() time.Time { return i.modified }

// walker walks a tree at times that a test chooses.
type walker struct {
	*testing.T
	tail *Tail
	fs   *oddFS
	root string
	now  time.Time
}

func newWalker(t *testing.T, watch func() (Watcher, error)) *walker {
	w := &walker{T: t, fs: &oddFS{}, root: t.TempDir(), now: time.Now()}
	w.tail = New(Config{Root: w.root, FS: w.fs, Now: func() time.Time { return w.now }})
	if watch != nil {
		w.tail.cfg.Watch = watch
		w.tail.startWatcher()
		t.Cleanup(w.tail.stopWatcher)
	}
	return w
}

// after walks after some time and expects what the tail reports of cellA.
func (w *walker) after(d time.Duration, want string) {
	w.Helper()
	w.now = w.now.Add(d)
	w.fs.read, w.fs.asked = nil, nil
	if err := w.tail.Scan(w.Context()); err != nil {
		w.Fatal(err)
	}
	if got := pending(w.tail, cellA); got != want {
		w.Fatalf("after %v: %q, want %q", d, got, want)
	}
}

// settle walks until nothing needs to be read any more.
func (w *walker) settle(want string) {
	w.Helper()
	w.after(racy+time.Millisecond, want)
	w.after(racy+time.Millisecond, want)
	w.after(time.Second, want)
	if len(w.fs.read) > 0 {
		w.Fatalf("a quiet tree is read: %q", w.fs.read)
	}
}

// The times of directories say nothing: what happens close to a change that
// was seen is found at once all the same, everything else when it is due.
func TestTimesThatNeverChange(t *testing.T) {
	w := newWalker(t, nil)
	w.fs.frozen = time.Now().Add(-time.Hour) // an old time is no reason to trust it
	put(t, w.root, cellA, 1, 1)
	w.after(0, "e1:1 live")
	put(t, w.root, cellA, 1, 2)
	w.after(time.Second, "e1:1,2 live")
	put(t, w.root, cellA, 2, 1)
	w.after(time.Second, "e1:1,2 live e2:1 live")
	w.settle("e1:1,2 live e2:1 live")
	put(t, w.root, cellA, 1, 3)
	put(t, w.root, cellA, 3, 1)
	put(t, w.root, "Cart:other", 1, 1)
	w.after(time.Second, "e1:1,2 live e2:1 live") // else nothing was saved
	w.after(reread, "e1:1,2,3 live e2:1 live e3:1 live")
	if n := len(w.tail.Cells()); n != 2 {
		t.Errorf("%d cells, want the new one too", n)
	}
}

// Whole readings are spread: no walk reads everything again at once.
func TestWholeReadingsAreSpread(t *testing.T) {
	w := newWalker(t, nil)
	w.fs.frozen = time.Now()
	put(t, w.root, cellA, 1, 1)
	const cells = 120
	for i := range cells - 1 {
		put(t, w.root, fmt.Sprintf("Cart:%064x", i), 1, 1)
	}
	w.after(0, "e1:1 live")
	w.settle("e1:1 live")
	const walks = int(reread / (10 * time.Second))
	total := make(map[string]int)
	for range walks {
		w.after(10*time.Second, "e1:1 live")
		// Epochs, files and facets of each of the cells due, and the root.
		if n := len(w.fs.read); n > 3*2*cells/walks+1 {
			t.Fatalf("%d directories read in one walk", n)
		}
		for _, dir := range w.fs.read {
			total[dir]++
		}
		if n := len(w.fs.asked); n > 3*cells {
			t.Fatalf("%d questions for %d cells", n, cells)
		}
	}
	for dir, n := range total {
		if strings.HasSuffix(dir, "/0") && n != 1 {
			t.Errorf("%s was read %d times", dir, n)
		}
	}
	if len(total) != 3*cells+1 {
		t.Errorf("%d directories read in %v, want all %d", len(total), reread, 3*cells+1)
	}
}

// The clock is set back: what is not seen by the times of directories is not
// put off by as much.
func TestClockSetBack(t *testing.T) {
	w := newWalker(t, nil)
	put(t, w.root, cellA, 1, 1)
	w.after(0, "e1:1 live")
	w.settle("e1:1 live")
	put(t, w.root, cellA, 1, 2)
	w.after(-24*time.Hour, "e1:1,2 live")
	w.settle("e1:1,2 live")
	w.fs.frozen = time.Now()
	w.after(time.Second, "e1:1,2 live")
	w.settle("e1:1,2 live")
	put(t, w.root, cellA, 1, 3)
	w.after(-24*time.Hour, "e1:1,2,3 live")
}

// Another directory is in the place of one that was read, with the same time.
func TestReplacedDirectories(t *testing.T) {
	for name, at := range map[string]func(root string) string{
		"files": func(root string) string {
			return filepath.Join(root, cellA, "ltx", "e1", ".db.sqlite-litestream", "ltx", "0")
		},
		"epochs": func(root string) string { return filepath.Join(root, cellA, "ltx") },
		"cell":   func(root string) string { return filepath.Join(root, cellA) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWalker(t, Inotify)
			w.fs.frozen = time.Now()
			other := t.TempDir()
			put(t, w.root, cellA, 1, 1)
			put(t, other, cellA, 1, 2)
			w.after(0, "e1:1 live")
			w.settle("e1:1 live")
			if err := os.Rename(at(w.root), filepath.Join(other, "away")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(at(other), at(w.root)); err != nil {
				t.Fatal(err)
			}
			w.after(time.Second, "e1:2 live")
			w.quietEvents()
			put(t, w.root, cellA, 1, 3)
			w.event("0000000000000003-0000000000000003.ltx")
		})
	}
}

// quietEvents throws away the events that wait.
func (w *walker) quietEvents() {
	for {
		select {
		case <-w.tail.watches.watcher.Events():
		case <-time.After(50 * time.Millisecond):
			return
		}
	}
}

// event waits for one about a name: the directory it is in is watched.
func (w *walker) event(name string) {
	w.Helper()
	for end := time.After(long); ; {
		select {
		case ev := <-w.tail.watches.watcher.Events():
			if filepath.Base(ev.Name) == name {
				return
			}
		case <-end:
			w.Fatalf("no event of %s: the directory is not watched", name)
		}
	}
}

// A directory that could not be read is read at the next walk, although its
// state is the same then.
func TestReadingsThatFail(t *testing.T) {
	w := newWalker(t, nil)
	put(t, w.root, cellA, 1, 1)
	w.after(0, "e1:1 live")
	w.settle("e1:1 live")
	put(t, w.root, cellA, 1, 2)
	put(t, w.root, cellA, 2, 1)
	put(t, w.root, "Cart:other", 1, 1)
	for _, dir := range []string{w.root, filepath.Join(w.root, cellA, "ltx"), filepath.Join(w.root, cellA, "ltx", "e1", ".db.sqlite-litestream", "ltx", "0")} {
		w.now = w.now.Add(time.Minute)
		w.fs.before = func(name string) error {
			if name == dir {
				return syscall.EMFILE
			}
			return nil
		}
		if err := w.tail.Scan(w.Context()); !errors.Is(err, syscall.EMFILE) {
			t.Fatalf("reading %s: %v", dir, err)
		}
	}
	w.fs.before = nil
	w.after(time.Second, "e1:1,2 live e2:1 live")
	if n := len(w.tail.Cells()); n != 2 {
		t.Errorf("%d cells, want 2", n)
	}
}

// A cell is deleted between the question and the reading.
func TestDeletedWhileWalking(t *testing.T) {
	for _, part := range []string{"..", "ltx", "ltx/e1/.db.sqlite-litestream/ltx/0"} {
		t.Run(filepath.Base(part), func(t *testing.T) {
			w := newWalker(t, nil)
			put(t, w.root, cellA, 1, 1)
			w.after(0, "e1:1 live")
			put(t, w.root, cellA, 1, 2)
			put(t, w.root, cellA, 2, 1)
			dir := filepath.Join(w.root, cellA, part)
			w.fs.before = func(name string) error {
				if name == dir {
					return os.RemoveAll(filepath.Join(w.root, cellA))
				}
				return nil
			}
			w.now = w.now.Add(time.Second)
			if err := w.tail.Scan(w.Context()); err != nil {
				t.Fatal(err)
			}
			w.fs.before = nil
			w.now = w.now.Add(time.Second)
			if err := w.tail.Scan(w.Context()); err != nil {
				t.Fatal(err)
			}
			if got := pending(w.tail, cellA); strings.Contains(got, "live") {
				t.Errorf("a deleted cell is live: %s", got)
			}
			put(t, w.root, cellA, 7, 1)
			w.now = w.now.Add(time.Second)
			if err := w.tail.Scan(w.Context()); err != nil {
				t.Fatal(err)
			}
			if got := pending(w.tail, cellA); !strings.HasSuffix(got, "e7:1 live") {
				t.Errorf("it is back: %s", got)
			}
		})
	}
}

// A cell that was evicted asks for two questions a walk; whatever then
// happens in its directory is seen by the next one.
func TestEvictedCellsAreQuiet(t *testing.T) {
	for _, image := range []string{"db.evicted", "db.hibernated"} {
		t.Run(image, func(t *testing.T) {
			w := newWalker(t, func() (Watcher, error) { return deaf{}, nil })
			put(t, w.root, cellA, 1, 1)
			w.after(0, "e1:1 live")
			w.settle("e1:1 live")
			epoch := filepath.Join(w.root, cellA, "ltx", "e1")
			if err := os.WriteFile(filepath.Join(epoch, image), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(epoch, ".db.sqlite-litestream")); err != nil {
				t.Fatal(err)
			}
			w.after(time.Second, "e1: evicted")
			w.settle("e1: evicted")
			if n := len(w.fs.asked); n != 3 {
				t.Errorf("asked %q, want of root, epochs and epoch only", w.fs.asked)
			}
			if err := os.Remove(filepath.Join(epoch, image)); err != nil {
				t.Fatal(err)
			}
			w.after(time.Second, "e1:")
			w.settle("e1:")
			// The eviction is given up: the directories come one by one.
			if err := os.MkdirAll(filepath.Join(epoch, ".db.sqlite-litestream", "ltx"), 0o755); err != nil {
				t.Fatal(err)
			}
			w.after(time.Minute, "e1:")
			w.after(time.Minute, "e1:")
			put(t, w.root, cellA, 1, 2)
			w.after(time.Minute, "e1:2 live")
		})
	}
}

// Directories of residencies that ended are not watched for ever.
func TestWatchesOfOldResidenciesEnd(t *testing.T) {
	w := newWalker(t, Inotify)
	put(t, w.root, cellA, 1, 1)
	w.after(0, "e1:1 live")
	if err := os.RemoveAll(filepath.Join(w.root, cellA, "ltx", "e1", ".db.sqlite-litestream")); err != nil {
		t.Fatal(err)
	}
	put(t, w.root, cellA, 2, 1)
	w.after(time.Second, "e1: e2:1 live")
	w.tail.Advance(cellA, 2, 1)
	// Root, epochs and the LTX directory.
	if n := w.tail.Stats().Watched; n != 3 {
		t.Errorf("%d directories are watched, want 3", n)
	}
	if err := os.RemoveAll(filepath.Join(w.root, cellA)); err != nil {
		t.Fatal(err)
	}
	w.after(time.Second, "e2:")
	if n := w.tail.Stats().Watched; n != 1 {
		t.Errorf("%d directories are watched, want the root", n)
	}
}

// Foreign names are counted once however often a directory is read.
func TestForeignNamesAreCountedOnce(t *testing.T) {
	w := newWalker(t, nil)
	file := put(t, w.root, cellA, 1, 1)
	for _, name := range []string{filepath.Join(filepath.Dir(file), "notes.txt"), filepath.Join(w.root, cellA, "ltx", "notes.txt")} {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		w.after(reread, "e1:1 live")
		if n := w.tail.Stats().Foreign; n != 2 {
			t.Errorf("%d foreign names, want 2", n)
		}
	}
}

// spoken is a watcher whose events a test sends.
type spoken struct {
	deaf
	events chan fsnotify.Event
}

func (s spoken) Events() <-chan fsnotify.Event { return s.events }

// A file of a busy cell becomes pending while a walk over many others is
// under way on a slow disk.
func TestWalkLetsEventsThrough(t *testing.T) {
	root := t.TempDir()
	const cells, slow = 400, time.Millisecond
	for i := range cells {
		put(t, root, fmt.Sprintf("Cart:%064x", i), 1, 1)
	}
	scope := fmt.Sprintf("Cart:%064x", 0)
	synctest.Test(t, func(t *testing.T) {
		walks := make(chan struct{}, 1)
		files := &oddFS{slow: slow, asking: func(name string) {
			if name == root {
				walks <- struct{}{}
			}
		}}
		events := make(chan fsnotify.Event, 8)
		tail := New(Config{Root: root, FS: files, Watch: func() (Watcher, error) { return spoken{events: events}, nil }})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- tail.Run(ctx) }()
		<-walks
		<-walks
		time.Sleep(10 * time.Second) // past that walk, and before the next
		for i := range cells {
			// Whatever is read of them again is no news.
			tail.Advance(fmt.Sprintf("Cart:%064x", i), 1, 1)
		}
		for _, into := range []time.Duration{0, 200 * time.Millisecond, 500 * time.Millisecond} {
			<-walks
			time.Sleep(into)
			for len(tail.wake) > 0 {
				<-tail.Wake()
			}
			began := time.Now()
			events <- fsnotify.Event{Op: fsnotify.Create, Name: filepath.Join(root, scope, "ltx", "e1", ".db.sqlite-litestream", "ltx", "0", ltxfile.FileName(9, 9))}
			<-tail.Wake()
			if took := time.Since(began); took > 2*breath*slow+10*slow {
				t.Errorf("%v into a walk an event waited %v", into, took)
			}
		}
		go func() {
			for range walks {
			}
		}()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		close(walks)
	})
}
