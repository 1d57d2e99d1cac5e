package delivery

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// watchedFS tells of every change, can make it fail, and knows what of each
// file would survive a power cut.
type watchedFS struct {
	osFS
	mu sync.Mutex
	// before decides whether an operation fails; a write may be cut short
	// before it does.
	before func(op, name string) (short bool, err error)
	after  func()
	// durable is the synced length of each file, -1 while its name is not.
	durable map[string]int64
}

func newWatchedFS() *watchedFS {
	return &watchedFS{
		before:  func(string, string) (bool, error) { return false, nil },
		after:   func() {},
		durable: map[string]int64{},
	}
}

func (w *watchedFS) do(op, name string, fn func(short bool) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	short, err := w.before(op, name)
	if err == nil || short {
		if fail := fn(short); err == nil {
			err = fail
		}
	}
	w.after()
	return err
}

type watchedFile struct {
	File
	fs   *watchedFS
	name string
}

func (w *watchedFS) Create(name string) (File, error) {
	var f File
	err := w.do("create", name, func(bool) (err error) {
		f, err = w.osFS.Create(name)
		w.durable[name] = -1
		return err
	})
	if err != nil {
		return nil, err
	}
	return &watchedFile{f, w, name}, nil
}

func (w *watchedFS) Open(name string) (File, error) {
	f, err := w.osFS.Open(name)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.durable[name]; !ok {
		w.durable[name], _ = f.Size()
	}
	return &watchedFile{f, w, name}, nil
}

func (w *watchedFS) Remove(name string) error {
	return w.do("remove", name, func(bool) error {
		delete(w.durable, name)
		return w.osFS.Remove(name)
	})
}

func (w *watchedFS) SyncDir(dir string) error {
	return w.do("syncdir", dir, func(bool) error { return w.osFS.SyncDir(dir) })
}

func (f *watchedFile) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.fs.do("write", f.name, func(short bool) (err error) {
		if short {
			b = b[:len(b)/2]
		}
		n, err = f.File.WriteAt(b, off)
		return err
	})
	return n, err
}

func (f *watchedFile) Truncate(size int64) error {
	return f.fs.do("truncate", f.name, func(bool) error { return f.File.Truncate(size) })
}

func (f *watchedFile) Sync() error {
	return f.fs.do("sync", f.name, func(bool) error {
		size, err := f.File.Size()
		f.fs.durable[f.name] = size
		return err
	})
}

// copyTree copies dir as it is, or as a power cut would leave the spool's
// files: without what was not synced.
func (w *watchedFS) copyTree(t testing.TB, dir string, powerCut bool) string {
	t.Helper()
	to, err := os.MkdirTemp(filepath.Dir(dir), "copy")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if !powerCut {
		return to
	}
	for name, size := range w.durable {
		rel := strings.TrimPrefix(name, dir)
		if size < 0 {
			err = os.Remove(to + rel)
		} else {
			err = os.Truncate(to+rel, min(size, fileSize(to+rel)))
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return to
}

func fileSize(name string) int64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.Size()
}
