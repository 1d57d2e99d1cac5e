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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"

	"celldexport/internal/ltxfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cellA = "Cart:00000000000000000000000000000000000000000000000000000000000000aa"

// put writes an LTX file name as celld does: under a temporary name first.
func put(t *testing.T, root, scope string, epoch, txid uint64) string {
	t.Helper()
	dir := filepath.Join(root, scope, "ltx", fmt.Sprintf("e%d", epoch), ".db.sqlite-litestream", "ltx", "0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, ltxfile.FileName(txid, txid))
	if err := os.WriteFile(name+".tmp", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		t.Fatal(err)
	}
	return name
}

// pending is what a tail reports of a cell: "e1:1,2,3 live".
func pending(tail *Tail, scope string) string {
	var parts []string
	for _, r := range tail.Cell(scope) {
		var txids []string
		for _, f := range r.Files {
			txids = append(txids, fmt.Sprint(f.TXID))
		}
		s := fmt.Sprintf("e%d:%s", r.Epoch, strings.Join(txids, ","))
		if r.Live {
			s += " live"
		}
		if r.Evicted {
			s += " evicted"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, " ")
}

// run starts the tail and waits until a condition holds.
func run(t *testing.T, cfg Config) *Tail {
	t.Helper()
	tail := New(cfg)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tail.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := await(t, "the end of the tail", done); err != nil {
			t.Error(err)
		}
	})
	until(t, "first walk", func() bool { return tail.Stats().Scans > 0 })
	return tail
}

// long is how long a test waits for what has to come.
const long = 90 * time.Second

// await is what comes out of a channel, or a failure when nothing does.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(long):
		t.Fatalf("%s did not come about", what)
		panic("not reached")
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(long); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

// Directories appear with their first files in them before a watch can be set.
func TestTAIL01NewDirectoriesRaceTheWatch(t *testing.T) {
	root := t.TempDir()
	tail := run(t, Config{Root: root, Watch: Inotify, Rescan: time.Hour})
	const cells = 300
	scope := func(i int) string { return fmt.Sprintf("Cart:%064x", i) }
	for i := range cells {
		for txid := range uint64(3) {
			put(t, root, scope(i), 1, txid+1)
		}
	}
	until(t, "all files of e1", func() bool { return tail.Stats().Pending == 3*cells })
	for i := range cells {
		put(t, root, scope(i), 2, 1)
	}
	until(t, "all files of e2", func() bool { return tail.Stats().Pending == 4*cells })
	if got, want := pending(tail, scope(7)), "e1:1,2,3 live e2:1 live"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if dirty := tail.Dirty(); len(dirty) != cells {
		t.Errorf("%d cells dirty, want %d", len(dirty), cells)
	}
}

// A whole cell directory is renamed into place already filled.
func TestTAIL01DirectoryRenamedIntoPlace(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	tail := run(t, Config{Root: root, Watch: Inotify, Rescan: time.Hour})
	put(t, other, cellA, 4, 1)
	put(t, other, cellA, 4, 2)
	if err := os.Rename(filepath.Join(other, cellA), filepath.Join(root, cellA)); err != nil {
		t.Fatal(err)
	}
	until(t, "the renamed cell", func() bool { return pending(tail, cellA) == "e4:1,2 live" })
	put(t, root, cellA, 4, 3)
	until(t, "a file after it", func() bool { return pending(tail, cellA) == "e4:1,2,3 live" })
}

func TestTAIL03TemporaryAndForeignNames(t *testing.T) {
	root := t.TempDir()
	first := put(t, root, cellA, 1, 1)
	dir := filepath.Dir(first)
	for _, name := range []string{"0000000000000002-0000000000000002.ltx.tmp", "000000000000000A-000000000000000A.ltx", "0000000000000003-0000000000000004.ltx", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, ltxfile.FileName(9, 9)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(first, filepath.Join(dir, ltxfile.FileName(5, 5))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".restore-x", ".cron:shop", "peerlog"} {
		put(t, root, name, 1, 1)
	}
	tail := New(Config{Root: root})
	if err := tail.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := pending(tail, cellA), "e1:1,5 live"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := tail.Cells(); !slices.Equal(got, []string{cellA}) {
		t.Errorf("cells %v", got)
	}
}

func TestAdvance(t *testing.T) {
	root := t.TempDir()
	for txid := range uint64(4) {
		put(t, root, cellA, 3, txid+1)
	}
	tail := New(Config{Root: root})
	scan := func() {
		t.Helper()
		if err := tail.Scan(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	scan()
	tail.Advance(cellA, 3, 2)
	scan()
	if got, want := pending(tail, cellA), "e3:3,4 live"; got != want {
		t.Errorf("after Advance: %s, want %s", got, want)
	}
}

// An eviction removes the LTX directory and keeps the image; a wake begins a
// new epoch.
func TestEvictAndWake(t *testing.T) {
	root := t.TempDir()
	put(t, root, cellA, 1, 1)
	tail := run(t, Config{Root: root, Watch: Inotify, Rescan: time.Hour})
	epochDir := filepath.Join(root, cellA, "ltx", "e1")
	if err := os.WriteFile(filepath.Join(epochDir, "db.evicted"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tail.Dirty()
	if err := os.RemoveAll(filepath.Join(epochDir, ".db.sqlite-litestream")); err != nil {
		t.Fatal(err)
	}
	until(t, "the eviction", func() bool { return pending(tail, cellA) == "e1: evicted" })
	if dirty := tail.Dirty(); !slices.Contains(dirty, cellA) {
		t.Errorf("an eviction does not make the cell dirty: %v", dirty)
	}
	put(t, root, cellA, 2, 1)
	until(t, "the wake", func() bool { return strings.HasSuffix(pending(tail, cellA), "e2:1 live") })
	tail.Advance(cellA, 2, 1)
	if got, want := pending(tail, cellA), "e2: live"; got != want {
		t.Errorf("older epochs stay: %s, want %s", got, want)
	}
}

// brokenWatcher stands in for kernels with faults.
type brokenWatcher struct {
	Watcher
	adds  atomic.Int64
	limit int64
	mute  bool
	extra chan error
}

func (w *brokenWatcher) Add(dir string) error {
	if w.adds.Add(1) > w.limit {
		return syscall.ENOSPC
	}
	return w.Watcher.Add(dir)
}

func (w *brokenWatcher) Events() <-chan fsnotify.Event {
	if w.mute {
		return nil
	}
	return w.Watcher.Events()
}

func (w *brokenWatcher) Errors() <-chan error {
	if w.extra != nil {
		return w.extra
	}
	return w.Watcher.Errors()
}

// Whatever fails in watching, polling finds every file.
func TestTAIL02WatchFaults(t *testing.T) {
	wrap := func(b *brokenWatcher) func() (Watcher, error) {
		return func() (Watcher, error) {
			w, err := Inotify()
			b.Watcher = w
			return b, err
		}
	}
	lost := &brokenWatcher{limit: 1 << 30, mute: true, extra: make(chan error, 1)}
	for name, c := range map[string]struct {
		cfg     Config
		trigger func()
		polling bool
	}{
		"no instance left": {cfg: Config{Watch: func() (Watcher, error) { return nil, syscall.EMFILE }}, polling: true},
		"no watch left":    {cfg: Config{Watch: wrap(&brokenWatcher{limit: 5}), Rescan: time.Hour}, polling: true},
		"no event comes":   {cfg: Config{Watch: wrap(&brokenWatcher{limit: 1 << 30, mute: true}), Rescan: 20 * time.Millisecond}},
		"queue overflows":  {cfg: Config{Watch: wrap(lost), Rescan: time.Hour}, trigger: func() { lost.extra <- fsnotify.ErrEventOverflow }},
		"never asked for":  {cfg: Config{}, polling: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Root = t.TempDir()
			c.cfg.Poll = 20 * time.Millisecond
			put(t, c.cfg.Root, cellA, 1, 1)
			tail := run(t, c.cfg)
			const cells = 20
			for i := range cells {
				put(t, c.cfg.Root, fmt.Sprintf("Cart:%064x", i), 1, 1)
			}
			put(t, c.cfg.Root, cellA, 1, 2)
			if c.trigger != nil {
				c.trigger()
			}
			until(t, "every file", func() bool { return tail.Stats().Pending == cells+2 })
			if got := tail.Stats().Polling; got != c.polling {
				t.Errorf("polling %v, want %v", got, c.polling)
			}
		})
	}
}

// refusingFS cannot read one directory.
type refusingFS struct {
	OS
	dir string
}

func (f refusingFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if strings.Contains(name, f.dir) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.OS.ReadDir(name)
}

func TestUnreadableDirectory(t *testing.T) {
	root := t.TempDir()
	put(t, root, cellA, 1, 1)
	put(t, root, "Cart:bad", 1, 1)
	tail := New(Config{Root: root, FS: refusingFS{dir: "Cart:bad"}})
	err := tail.Scan(t.Context())
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "Cart:bad") {
		t.Errorf("error does not name the directory: %v", err)
	}
	if got, want := pending(tail, cellA), "e1:1 live"; got != want {
		t.Errorf("the other cell: %s, want %s", got, want)
	}
	if s := tail.Stats(); s.Unreadable != 1 || s.LastError == "" {
		t.Errorf("stats %+v", s)
	}
	if err := New(Config{Root: filepath.Join(root, "absent")}).Scan(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent root: %v", err)
	}
}

func TestFacetsAreCounted(t *testing.T) {
	root := t.TempDir()
	put(t, root, cellA, 1, 1)
	facet := filepath.Join(cellA, "facets", strings.Repeat("0a", 16))
	put(t, root, facet, 1, 1)
	put(t, root, filepath.Join(facet, "facets", strings.Repeat("0b", 16)), 1, 1)
	tail := New(Config{Root: root})
	if err := tail.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := tail.Stats(); s.Facets != 2 || s.Cells != 1 || s.Pending != 1 {
		t.Errorf("stats %+v", s)
	}
}

// An unchanged directory is not read again; one changed within the clock's
// tick is.
func TestUnchangedDirectoriesAreNotRead(t *testing.T) {
	root := t.TempDir()
	put(t, root, cellA, 1, 1)
	counter := &countingFS{}
	now := time.Now()
	tail := New(Config{Root: root, FS: counter, Now: func() time.Time { return now }})
	for range 2 {
		if err := tail.Scan(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	racy := counter.reads.Load()
	now = now.Add(time.Hour)
	for range 3 {
		if err := tail.Scan(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// Root, epochs, files and facets are read once more, as the first readings
	// were too close to the changes they saw.
	if got := counter.reads.Load() - racy; got != 4 {
		t.Errorf("%d directory readings in three quiet walks, want 4", got)
	}
}

type countingFS struct {
	OS
	reads atomic.Int64
}

func (f *countingFS) ReadDir(name string) ([]fs.DirEntry, error) {
	f.reads.Add(1)
	return f.OS.ReadDir(name)
}
