package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"celldexport/internal/objstore"
)

// names lists the files below dir.
func names(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestFileNames holds the layout, which stored objects depend on.
func TestFileNames(t *testing.T) {
	dir := t.TempDir()
	f := newFile(t, dir)
	long := strings.Repeat("n", 250)
	for key, name := range map[string]string{
		"export/changes/node-a.example.com/2026/11/30/05/1-ab.parquet": "export/changes/node-a.example.com/2026/11/30/05/1-ab.parquet",
		"cells/Cart:1/own.json":               "cells/Cart:1/own.json",
		"cells/Cart:1/ltx/e1/0000/1-1.ltx":    "cells/Cart:1/ltx/e1/0000/1-1.ltx",
		"exportd/ledger/Cart:a%2Fb/root.json": "exportd/ledger/Cart:a%2Fb/root.json",
		"log/n/g/bundle/e1-00000001.ltxb":     "log/n/g/bundle/e1-00000001.ltxb~f",
		"plain":                               "plain~f",
		"folder.json/x.json":                  "folder.json~d/x.json",
		"til~de/x~.json":                      "til~~de/x~~.json",
		"l/" + long:                           "l/" + long[:240] + "~+/" + long[240:] + "~f",
	} {
		if _, err := objstore.PutBytes(t.Context(), f, key, []byte(key), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != key {
			t.Errorf("%s is not the content of %s: %v", key, name, err)
		}
		if err := f.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if left := names(t, dir); !slices.Equal(left, []string{"~lock"}) {
		t.Errorf("left behind: %q", left)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("empty folders stay: %v (%v)", entries, err)
	}
}

// TestFileForeign puts files among the objects that no key leads to.
func TestFileForeign(t *testing.T) {
	dir := t.TempDir()
	f := newFile(t, dir)
	if _, err := objstore.PutBytes(t.Context(), f, "d/ours.json", []byte("x"), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README", "d/README", "d/one~tilde.json", "d/x.json~f", "d/~f", "d.json/x.json", "d~d/x.json", "short~+/x.json", "a\xffb.json", "~tmp/foreign"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("foreign"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("ours.json", filepath.Join(dir, "d/link.json")); err != nil {
		t.Fatal(err)
	}
	var listed []string
	for obj, err := range f.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, obj.Key)
		if _, _, err := objstore.ReadAll(t.Context(), f, obj.Key, 100); err != nil {
			t.Errorf("listed but not readable: %v", err)
		}
	}
	if !slices.Equal(listed, []string{"d/ours.json"}) {
		t.Errorf("listed %q", listed)
	}
}

// TestFileETags holds that ETags follow the content and survive the process.
func TestFileETags(t *testing.T) {
	dir := t.TempDir()
	f := newFile(t, dir)
	first, err := objstore.PutBytes(t.Context(), f, "k.json", []byte("one"), objstore.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, again, err := objstore.ReadAll(t.Context(), newFile(t, dir), "k.json", 10)
	if err != nil || again.ETag != first.ETag {
		t.Errorf("another process sees ETag %q, not %q (%v)", again.ETag, first.ETag, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "k.json"), []byte("changed by hand"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := objstore.PutBytes(t.Context(), f, "k.json", []byte("two"), objstore.PutOptions{IfMatch: first.ETag}); !errors.Is(err, objstore.ErrPrecondition) {
		t.Errorf("a change by hand was not noticed: %v", err)
	}
}

// TestFileSweepsTheDead holds that temporary files of processes that died are
// removed, and those in use are not.
func TestFileSweepsTheDead(t *testing.T) {
	dir := t.TempDir()
	f := newFile(t, dir)
	put := func(key string) {
		t.Helper()
		if _, err := objstore.PutBytes(t.Context(), f, key, []byte("x"), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put("first")
	dead, used := filepath.Join(dir, "~tmp", "dead"), filepath.Join(dir, "~tmp", "used")
	for _, name := range []string{dead, used} {
		if err := os.WriteFile(name, []byte("half an obj"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	holder, err := os.Open(used)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := syscall.Flock(int(holder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	put("second")
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dead process's file is still there: %v", err)
	}
	if _, err := os.Stat(used); err != nil {
		t.Errorf("a file in use was removed: %v", err)
	}
}

// body fails, or does something, when it is read.
type body struct {
	*bytes.Reader
	read func() error
}

func (b body) ReadAt(p []byte, off int64) (int, error) {
	if err := b.read(); err != nil {
		return 0, err
	}
	return b.Reader.ReadAt(p, off)
}

// TestFilePutLeavesNothing fails a Put at several places.
func TestFilePutLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	f := newFile(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	for name, read := range map[string]func() error{
		"an unreadable body":     func() error { return io.ErrClosedPipe },
		"canceled in the middle": func() error { cancel(); return nil },
	} {
		_, err := f.Put(ctx, "k", body{bytes.NewReader([]byte("abc")), read}, 3, objstore.PutOptions{})
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if left := names(t, dir); !slices.Equal(left, []string{"~lock"}) {
			t.Errorf("%s left %q", name, left)
		}
		ctx, cancel = context.WithCancel(t.Context())
	}
	cancel()
}

func TestFileGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bucket")
	f := newFile(t, dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := objstore.PutBytes(t.Context(), f, "k", nil, objstore.PutOptions{}); !errors.Is(err, objstore.ErrDenied) || errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("put: %v", err)
	}
	for _, err := range f.List(t.Context(), "", "") {
		if !errors.Is(err, objstore.ErrDenied) {
			t.Errorf("list: %v", err)
		}
	}
}
