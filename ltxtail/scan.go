package ltxtail

import (
	"errors"
	"fmt"
	"path/filepath"

	"celldexport/internal/celld"
)

// maxFacetDepth is how deep facets nest below their root.
const maxFacetDepth = 3

// ErrRoot is wrapped by the error of a walk that could not even read the
// directory it starts from.
var ErrRoot = errors.New("watch directory cannot be read")

// Scan walks the whole tree once. Directories whose modification time did
// not change since their last reading are not read again. An unreadable
// directory is an error that names it; the rest is walked all the same.
func (t *Tail) Scan() error {
	t.mu.Lock()
	t.watches.add(t.cfg.Root)
	t.mu.Unlock()
	entries, err := t.cfg.FS.ReadDir(t.cfg.Root)
	if err != nil {
		t.finishScan(1, err)
		return fmt.Errorf("%w: %w", ErrRoot, err)
	}
	present := make(map[string]struct{}, len(entries))
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || skipped(e.Name()) {
			continue
		}
		present[e.Name()] = struct{}{}
		t.mu.Lock()
		if err := t.tree.scanCell(e.Name()); err != nil {
			errs = append(errs, err)
		}
		t.mu.Unlock()
		facets := countFacets(t.cfg.FS, filepath.Join(t.cfg.Root, e.Name()))
		t.mu.Lock()
		if c := t.tree.cells[e.Name()]; c != nil {
			c.facets = facets
		}
		t.mu.Unlock()
	}
	t.mu.Lock()
	for scope := range t.tree.cells {
		if _, ok := present[scope]; !ok {
			t.tree.dropCell(scope)
		}
	}
	t.mu.Unlock()
	err = errors.Join(errs...)
	t.finishScan(len(errs), err)
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
