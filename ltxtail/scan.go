package ltxtail

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"celldexport/internal/celld"
)

// maxFacetDepth is how deep facets nest below their root.
const maxFacetDepth = 3

// ErrRoot is wrapped by the error of a walk that could not even read the
// directory it starts from.
var ErrRoot = errors.New("watch directory cannot be read")

// ErrSilent is wrapped by the error of a walk that was given up because the
// directory did not answer: a call of the file system is still under way.
// Until it comes back every other method of the Tail may wait for it.
var ErrSilent = errors.New("watch directory does not answer")

// silence is how long after the end of its context a walk may take to notice
// it. It asks after every cell.
const silence = 500 * time.Millisecond

// Scan walks the whole tree once. A directory that is as it was when it was
// read is not read again before reread is over: it is only asked for its
// state, two calls for a cell. An unreadable directory is an error that names
// it; the rest is walked all the same.
//
// A walk that ctx ends counts as none, though what it saw is known: the error
// is that of ctx. A call of the file system cannot be ended, so the walk is
// left behind when it hangs in one; the error then wraps ErrSilent too.
func (t *Tail) Scan(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- t.scan(ctx, func() {}) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(silence):
		return fmt.Errorf("%w: %w", ErrSilent, ctx.Err())
	}
}

// breath is after how many cells a walk lets events through: a busy cell must
// not wait for ten thousand idle ones.
const breath = 64

func (t *Tail) scan(ctx context.Context, events func()) error {
	t.walking.Lock()
	defer t.walking.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	names, errs, err := t.roots()
	if err != nil {
		t.finishScan(1, err)
		return fmt.Errorf("%w: %w", ErrRoot, err)
	}
	for i, name := range names {
		if i%breath == breath-1 {
			events()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.scanOne(name); err != nil {
			errs = append(errs, err)
		}
	}
	err = errors.Join(errs...)
	t.finishScan(len(errs), err)
	return err
}

// roots returns the names of the cell directories, and the errors of those
// that went away.
func (t *Tail) roots() ([]string, []error, error) {
	t.mu.Lock()
	now, fresh, err := t.tree.lookAtRoot()
	names := t.tree.names
	t.mu.Unlock()
	if err != nil || fresh {
		return names, nil, err
	}
	entries, err := t.cfg.FS.ReadDir(t.cfg.Root)
	if err != nil {
		return nil, nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	errs := t.tree.setNames(entries, now)
	return t.tree.names, errs, nil
}

// scanOne looks at one cell. Facets come and go with what their root does, so
// they are counted again when there was something to read of it.
func (t *Tail) scanOne(name string) error {
	t.mu.Lock()
	read, err := t.tree.scanCell(name)
	t.mu.Unlock()
	if !read {
		return err
	}
	facets := countFacets(t.cfg.FS, filepath.Join(t.cfg.Root, name))
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.tree.cells[name]; c != nil {
		c.facets = facets
	}
	return err
}

func (t *Tail) finishScan(unreadable int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tree.stats.Scans++
	t.tree.stats.Unreadable = unreadable
	t.tree.stats.LastError = ""
	if err != nil {
		t.tree.stats.LastError = err.Error()
	}
}

// countFacets counts facet directories below a cell directory, nested ones
// too.
func countFacets(files FS, cellDir string) int {
	n := 0
	dirs := []string{cellDir}
	for depth := 0; depth < maxFacetDepth && len(dirs) > 0; depth++ {
		var next []string
		for _, dir := range dirs {
			entries, err := files.ReadDir(filepath.Join(dir, celld.FacetsDirName))
			if err != nil {
				continue
			}
			for _, e := range entries {
				if e.IsDir() {
					next = append(next, filepath.Join(dir, celld.FacetsDirName, e.Name()))
				}
			}
		}
		n += len(next)
		dirs = next
	}
	return n
}
