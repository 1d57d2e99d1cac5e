package ltxtail

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// deaf is a watcher on a file system that reports nothing, as overlay and
// network file systems do.
type deaf struct{ errors chan error }

func (deaf) Add(string) error              { return nil }
func (deaf) Remove(string) error           { return nil }
func (deaf) Events() <-chan fsnotify.Event { return nil }
func (d deaf) Errors() <-chan error        { return d.errors }
func (deaf) Close() error                  { return nil }

// busyFS counts what is asked of the file system.
type busyFS struct {
	OS
	calls atomic.Int64
}

func (f *busyFS) ReadDir(name string) ([]fs.DirEntry, error) {
	f.calls.Add(1)
	return f.OS.ReadDir(name)
}

func (f *busyFS) Stat(name string) (fs.FileInfo, error) {
	f.calls.Add(1)
	return f.OS.Stat(name)
}

// TestTAIL05 follows a tree from which no event comes: every file is found
// within the interval of walks, and a walk over idle cells asks little.
func TestTAIL05(t *testing.T) {
	for name, c := range map[string]struct {
		watch func() (Watcher, error)
		bound time.Duration
	}{
		"events never come":  {func() (Watcher, error) { return deaf{}, nil }, 10 * time.Second},
		"watching forbidden": {func() (Watcher, error) { return nil, os.ErrPermission }, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			const cells = 200
			scope := func(i int) string { return fmt.Sprintf("Cart:%064x", i) }
			for i := range cells {
				put(t, root, scope(i), 1, 1)
			}
			// The clock of the file system goes on outside of the bubble.
			real := time.Now()
			synctest.Test(t, func(t *testing.T) {
				files := &busyFS{}
				ahead := real.Sub(time.Now())
				tail := New(Config{Root: root, FS: files, Watch: c.watch, Now: func() time.Time { return time.Now().Add(ahead) }})
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- tail.Run(ctx) }()
				time.Sleep(2*c.bound + 3*time.Second) // past the reading that follows a fresh change
				synctest.Wait()
				if n := tail.Stats().Pending; n != cells {
					t.Errorf("%d files found, want %d", n, cells)
				}
				before, walks := files.calls.Load(), tail.Stats().Scans
				time.Sleep(10 * c.bound)
				synctest.Wait()
				walks = tail.Stats().Scans - walks
				if n := (files.calls.Load() - before) / int64(walks); walks < 9 || walks > 11 || n > 3*cells+10 {
					t.Errorf("%d walks of %d calls over %d idle cells, want ten of three per cell", walks, n, cells)
				}
				for round := range 3 {
					put(t, root, scope(round), 1, 2)
					put(t, root, scope(round), 2, 1)
					put(t, root, fmt.Sprintf("Order:%064x", round), 1, 1)
					time.Sleep(c.bound)
					synctest.Wait()
					if n := tail.Stats().Pending; n != cells+3*(round+1) {
						t.Errorf("%d files found after %v, want %d", n, c.bound, cells+3*(round+1))
					}
				}
				if err := os.RemoveAll(filepath.Join(root, scope(9))); err != nil {
					t.Error(err)
				}
				time.Sleep(c.bound)
				synctest.Wait()
				if got := pending(tail, scope(9)); got != "e1:" {
					t.Errorf("a directory that vanished: %q", got)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
