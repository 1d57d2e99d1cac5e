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

// tree is what is known of the node's directory. Its owner's lock guards it.
type tree struct {
	root    string
	fs      FS
	now     func() time.Time
	watches *watches
	wake    chan<- struct{}

	cells map[string]*cell
	dirty map[string]struct{}
	stats Stats
}

// cell is what is kept of one cell directory.
type cell struct {
	residencies map[uint64]*residency
	facets      int
	// stamp is the state of the cell's ltx directory at its last reading.
	stamp stamp
}

type residency struct {
	epoch   uint64
	after   uint64
	pending []uint64
	live    bool
	evicted bool
	// dir and files are the states of the epoch and of the LTX directory at
	// their last reading.
	dir, files stamp
}

func (t *tree) markDirty(scope string) {
	t.dirty[scope] = struct{}{}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// tmpSuffix marks a file that celld is still writing.
const tmpSuffix = ".tmp"

// forgetStamps makes the next walk read everything.
func (t *tree) forgetStamps() {
	for _, c := range t.cells {
		c.stamp = stamp{}
		for _, r := range c.residencies {
			r.dir, r.files = stamp{}, stamp{}
		}
	}
}

// skipped reports whether a name below the root is none of a cell's: celld's
// scratch areas begin with a dot (as do cron cells, which are never
// exported), peerlog holds other nodes' entries.
func skipped(name string) bool {
	return !celld.IsCellDir(name)
}

func (t *tree) dropCell(scope string) {
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
func (t *tree) scanCell(scope string) error {
	cellDir := filepath.Join(t.root, scope)
	ltxDir := filepath.Join(cellDir, celld.EpochsDirName)
	info, err := t.fs.Stat(ltxDir)
	if errors.Is(err, fs.ErrNotExist) {
		t.watches.add(cellDir)
		// It may have appeared before the watch did.
		if info, err = t.fs.Stat(ltxDir); errors.Is(err, fs.ErrNotExist) {
			t.dropCell(scope)
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("read cell directory: %w", err)
	}
	t.watches.add(ltxDir)
	t.watches.remove(cellDir)
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
func (t *tree) readEpochs(scope string, c *cell, dir string, modified time.Time) error {
	read := t.now()
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
func (t *tree) scanResidency(scope string, r *residency) error {
	epochDir := filepath.Join(t.root, scope, celld.EpochsDirName, celld.EpochName(r.epoch))
	levelDir := filepath.Join(epochDir, celld.LTXDirName)
	info, err := t.fs.Stat(levelDir)
	if errors.Is(err, fs.ErrNotExist) {
		// Watch every directory on the way, then look once more: whatever
		// was made meanwhile is seen by one or the other.
		dir := epochDir
		t.watches.add(dir)
		for part := range strings.SplitSeq(filepath.ToSlash(celld.LTXDirName), "/") {
			dir = filepath.Join(dir, part)
			if dir != levelDir {
				t.watches.add(dir)
			}
		}
		info, err = t.fs.Stat(levelDir)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.watches.remove(levelDir)
		r.files = stamp{}
		t.setShape(scope, r, false, t.hasImage(epochDir))
		return nil
	case err != nil:
		return fmt.Errorf("read LTX directory: %w", err)
	}
	t.watches.add(levelDir)
	dir := levelDir
	for dir = filepath.Dir(dir); len(dir) >= len(epochDir); dir = filepath.Dir(dir) {
		t.watches.remove(dir)
	}
	t.setShape(scope, r, true, false)
	if r.files.fresh(info.ModTime()) {
		return nil
	}
	return t.readFiles(scope, r, levelDir, info.ModTime())
}

func (t *tree) hasImage(epochDir string) bool {
	for _, name := range []string{celld.EvictedName, celld.HibernatedName} {
		if _, err := t.fs.Stat(filepath.Join(epochDir, name)); err == nil {
			return true
		}
	}
	return false
}

// readFiles takes the names of an LTX directory.
func (t *tree) readFiles(scope string, r *residency, dir string, modified time.Time) error {
	read := t.now()
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

func (t *tree) addPending(scope string, r *residency, txid uint64) {
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
func (t *tree) setShape(scope string, r *residency, live, evicted bool) {
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
func (t *tree) filePath(scope string, epoch, txid uint64) string {
	return filepath.Join(t.root, scope, celld.EpochsDirName, celld.EpochName(epoch), celld.LTXDirName, ltxfile.FileName(txid, txid))
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
