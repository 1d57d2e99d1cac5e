package objstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// List implements Store. Folders are read one by one as the loop reaches them;
// files that are no objects of the store are left out.
func (f *File) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		w := walk{file: f, ctx: ctx, prefix: prefix, after: after, yield: yield}
		if err := w.folder(top(prefix)); err != nil && !errors.Is(err, errStopped) {
			yield(Object{}, fmt.Errorf("list %s: %w", prefix, err))
		}
	}
}

// top is the folder that a listing of prefix begins in, and what the keys in
// it start with: the folders on the way there hold nothing of the listing,
// and may hold those of every cell of a fleet.
func top(prefix string) (path, start string) {
	start = prefix[:strings.LastIndexByte(prefix, '/')+1]
	if start == "" || CheckKey(start+"x") != nil {
		return "", ""
	}
	return folderPath(strings.TrimSuffix(start, "/")), start
}

// errStopped ends a walk whose loop was left.
var errStopped = errors.New("stopped")

// walk is one List.
type walk struct {
	file          *File
	ctx           context.Context
	prefix, after string
	yield         func(Object, error) bool
}

// entry is an object, or a folder of objects, found in a folder.
type entry struct {
	key    string // of a folder: what its keys start with, slash included
	path   string // relative to the directory
	folder bool
}

// wanted reports whether keys that start with start can be in the listing.
func (w *walk) wanted(start string) bool {
	if !strings.HasPrefix(start, w.prefix) && !strings.HasPrefix(w.prefix, start) {
		return false
	}
	return start > w.after || strings.HasPrefix(w.after, start)
}

// folder yields the objects below the folder at path, whose keys start with
// start, in byte order: a folder's place among its neighbours is that of its
// name with the slash.
func (w *walk) folder(path, start string) error {
	var entries []entry
	err := w.file.shared(func() (err error) {
		entries, err = w.read(nil, path, start)
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	for _, e := range entries {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if e.folder {
			err = w.folder(e.path, e.key)
		} else {
			err = w.object(e.key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// read appends the entries of the folder at path. A part cut into pieces
// appears as if it lay in the folder whole.
func (w *walk) read(entries []entry, path, start string) ([]entry, error) {
	names, err := os.ReadDir(filepath.Join(w.file.dir, path))
	if errors.Is(err, fs.ErrNotExist) && path != "" {
		return entries, nil // removed since it was seen
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDenied, err)
	}
	for _, name := range names {
		part, kind := parseName(name.Name(), name.IsDir())
		e := entry{key: start + part, path: filepath.Join(path, name.Name()), folder: kind == nameFolder}
		if e.folder {
			e.key += "/"
		}
		switch {
		case kind == nameForeign || !w.wanted(e.key):
		case kind == namePiece:
			if entries, err = w.read(entries, e.path, e.key); err != nil {
				return nil, err
			}
		case e.folder:
			entries = append(entries, e)
		case name.Type().IsRegular() && w.hit(e.key) && keyPath(e.key) == e.path:
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// hit reports whether an object of this key is in the listing.
func (w *walk) hit(key string) bool {
	return key > w.after && strings.HasPrefix(key, w.prefix) && CheckKey(key) == nil
}

func (w *walk) object(key string) error {
	file, obj, err := w.file.open(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted since it was seen
	}
	if err != nil {
		return err
	}
	file.Close()
	if !w.yield(obj, nil) {
		return errStopped
	}
	return nil
}
