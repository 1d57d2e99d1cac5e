package ltxtail

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"celldexport/internal/celld"
	"celldexport/internal/ltxfile"
)

// maxFacetDepth is how deep facets nest below their root.
const maxFacetDepth = 3

// tmpSuffix marks a file that celld is still writing.
const tmpSuffix = ".tmp"

// Scan walks the whole tree once. Directories whose modification time did
// not change since their last reading are not read again. An unreadable
// directory is an error that names it; the rest is walked all the same.
func (t *Tail) Scan() error {
	t.mu.Lock()
	t.watch(t.cfg.Root)
	t.mu.Unlock()
	entries, err := t.fs.ReadDir(t.cfg.Root)
	if err != nil {
		t.finishScan(1, err)
		return fmt.Errorf("read watch directory: %w", err)
	}
	present := make(map[string]struct{}, len(entries))
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || skipped(e.Name()) {
			continue
		}
		present[e.Name()] = struct{}{}
		t.mu.Lock()
		if err := t.scanCell(e.Name()); err != nil {
			errs = append(errs, err)
		}
		t.mu.Unlock()
		t.countFacets(e.Name())
	}
	t.mu.Lock()
	for scope := range t.cells {
		if _, ok := present[scope]; !ok {
			t.dropCell(scope)
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
	t.stats.Scans++
	t.stats.Unreadable = unreadable
	t.stats.LastError = ""
	if err != nil {
		t.stats.LastError = err.Error()
	}
}

// skipped reports whether a name below the root is none of a cell's: celld's
// scratch areas begin with a dot (as do cron cells, which are never
// exported), peerlog holds other nodes' entries.
func skipped(name string) bool {
	return !celld.IsCellDir(name)
}

func (t *Tail) dropCell(scope string) {
	c := t.cells[scope]
	if c == nil {
		return
	}
	for _, r := range c.residencies {
		t.setShape(scope, r, false, false)
		r.dir, r.files = stamp{}, stamp{}
	}
	c.stamp = stamp{}
	if len(c.residencies) == 0 {
		delete(t.cells, scope)
	}
}

// scanCell reads a cell's directory as far as it changed. The newest epoch is
// followed, and those that already were; directories of older epochs are
// leftovers that celld never reads again either.
func (t *Tail) scanCell(scope string) error {
	cellDir := filepath.Join(t.cfg.Root, scope)
	ltxDir := filepath.Join(cellDir, celld.EpochsDirName)
	info, err := t.fs.Stat(ltxDir)
	if errors.Is(err, fs.ErrNotExist) {
		t.watch(cellDir)
		// It may have appeared before the watch did.
		if info, err = t.fs.Stat(ltxDir); errors.Is(err, fs.ErrNotExist) {
			t.dropCell(scope)
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("read cell directory: %w", err)
	}
	t.watch(ltxDir)
	t.unwatch(cellDir)
	c := t.cells[scope]
	if c == nil {
		c = &cell{residencies: make(map[uint64]*residency)}
		t.cells[scope] = c
	}
	if !c.stamp.fresh(info.ModTime()) {
		if err := t.readEpochs(scope, c, ltxDir, info.ModTime()); err != nil {
			return err
		}
	}
	var errs []error
	for _, r := range c.residencies {
		if err := t.scanResidency(scope, r); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// readEpochs finds the newest epoch directory of a cell.
func (t *Tail) readEpochs(scope string, c *cell, dir string, modified time.Time) error {
	read := t.cfg.Now()
	entries, err := t.fs.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read epoch directories: %w", err)
	}
	c.stamp = stamp{modified: modified, read: read}
	var newest uint64
	for _, e := range entries {
		epoch, ok := celld.ParseEpochName(e.Name())
		if !ok || !e.IsDir() {
			t.stats.Foreign++
			continue
		}
		newest = max(newest, epoch)
	}
	if newest == 0 {
		return nil
	}
	if _, ok := c.residencies[newest]; !ok {
		c.residencies[newest] = &residency{epoch: newest}
		t.markDirty(scope)
	}
	return nil
}

// scanResidency reads one epoch directory and its LTX directory.
func (t *Tail) scanResidency(scope string, r *residency) error {
	epochDir := filepath.Join(t.cfg.Root, scope, celld.EpochsDirName, celld.EpochName(r.epoch))
	levelDir := filepath.Join(epochDir, celld.LTXDirName)
	info, err := t.fs.Stat(levelDir)
	if errors.Is(err, fs.ErrNotExist) {
		// Watch every directory on the way, then look once more: whatever
		// was made meanwhile is seen by one or the other.
		dir := epochDir
		t.watch(dir)
		for part := range strings.SplitSeq(filepath.ToSlash(celld.LTXDirName), "/") {
			dir = filepath.Join(dir, part)
			if dir != levelDir {
				t.watch(dir)
			}
		}
		info, err = t.fs.Stat(levelDir)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.unwatch(levelDir)
		r.files = stamp{}
		t.setShape(scope, r, false, t.hasImage(epochDir))
		return nil
	case err != nil:
		return fmt.Errorf("read LTX directory: %w", err)
	}
	t.watch(levelDir)
	dir := levelDir
	for dir = filepath.Dir(dir); len(dir) >= len(epochDir); dir = filepath.Dir(dir) {
		t.unwatch(dir)
	}
	t.setShape(scope, r, true, false)
	if r.files.fresh(info.ModTime()) {
		return nil
	}
	return t.readFiles(scope, r, levelDir, info.ModTime())
}

func (t *Tail) hasImage(epochDir string) bool {
	for _, name := range []string{celld.EvictedName, celld.HibernatedName} {
		if _, err := t.fs.Stat(filepath.Join(epochDir, name)); err == nil {
			return true
		}
	}
	return false
}

// readFiles takes the names of an LTX directory.
func (t *Tail) readFiles(scope string, r *residency, dir string, modified time.Time) error {
	read := t.cfg.Now()
	entries, err := t.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read LTX directory: %w", err)
	}
	r.files = stamp{modified: modified, read: read}
	for _, e := range entries {
		first, txid, ok := ltxfile.ParseFileName(e.Name())
		if !ok || first != txid || e.IsDir() {
			if !strings.HasSuffix(e.Name(), tmpSuffix) {
				t.stats.Foreign++
			}
			continue
		}
		t.addPending(scope, r, txid)
	}
	return nil
}

func (t *Tail) addPending(scope string, r *residency, txid uint64) {
	if txid <= r.after {
		return
	}
	i, found := slices.BinarySearch(r.pending, txid)
	if !found {
		r.pending = slices.Insert(r.pending, i, txid)
	}
	t.markDirty(scope)
}

// setShape notes whether the residency is live and whether its image was
// kept. A directory that vanished takes its pending names with it: what was
// proven of them is in the bucket.
func (t *Tail) setShape(scope string, r *residency, live, evicted bool) {
	if r.live == live && r.evicted == evicted {
		return
	}
	r.live, r.evicted = live, evicted
	if !live {
		r.pending = nil
	}
	t.markDirty(scope)
}

// filePath is where the level-0 file of txid lies.
func (t *Tail) filePath(scope string, epoch, txid uint64) string {
	return filepath.Join(t.cfg.Root, scope, celld.EpochsDirName, celld.EpochName(epoch), celld.LTXDirName, ltxfile.FileName(txid, txid))
}

// parseRest reads a path below a cell directory: the epoch and txid of a
// level-0 file.
func parseRest(rest string) (epoch, txid uint64, ok bool) {
	dir, name := filepath.Split(rest)
	_, txid, ok = ltxfile.ParseFileName(name)
	if !ok {
		return 0, 0, false
	}
	dir, ok = strings.CutPrefix(filepath.ToSlash(dir), celld.EpochsDirName+"/")
	if !ok {
		return 0, 0, false
	}
	epochDir, level, _ := strings.Cut(strings.TrimSuffix(dir, "/"), "/")
	epoch, ok = celld.ParseEpochName(epochDir)
	return epoch, txid, ok && level == filepath.ToSlash(celld.LTXDirName)
}

// countFacets counts facet directories below a cell, nested ones too.
func (t *Tail) countFacets(scope string) {
	n := 0
	dirs := []string{filepath.Join(t.cfg.Root, scope)}
	for depth := 0; depth < maxFacetDepth && len(dirs) > 0; depth++ {
		var next []string
		for _, dir := range dirs {
			entries, err := t.fs.ReadDir(filepath.Join(dir, celld.FacetsDirName))
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
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.cells[scope]; c != nil {
		c.facets = n
	}
}
