package ltxtail

import (
	"cmp"
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
	clock   clock
	watches *watches
	wake    chan<- struct{}

	// names are the cell directories of the root, in name order, as of its
	// last reading; stamp is its state then, due when it is read anyway.
	names []string
	stamp stamp
	due   time.Duration

	cells map[string]*cell
	dirty map[string]struct{}
	stats Stats
	// met counts the cells that were ever new.
	met int
}

// clock counts from the start of the tree.
type clock struct {
	now   func() time.Time
	began time.Time
}

func (c *clock) elapsed() time.Duration { return c.now().Sub(c.began) }

// passed reports whether a time came. One that lies too far ahead is of
// before the clock was set back.
func passed(due, now time.Duration) bool { return now >= due || due-now > reread }

// cell is what is kept of one cell directory.
type cell struct {
	// residencies are those followed, by ascending epoch.
	residencies []*residency
	facets      int
	// dir is the directory of the epochs, stamp its state when it was read,
	// foreign the number of names in it that are none of celld's.
	dir     string
	stamp   stamp
	foreign int
	// due is when everything of the cell is read, whatever the stamps say.
	due time.Duration
}

// residency returns what is known of an epoch, nil when it is not followed.
func (c *cell) residency(epoch uint64) *residency {
	for _, r := range c.residencies {
		if r.epoch == epoch {
			return r
		}
	}
	return nil
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

// unsettle makes the next walk read everything.
func (t *tree) unsettle() {
	t.stamp.settled = false
	for _, c := range t.cells {
		c.stamp.settled = false
		for _, r := range c.residencies {
			r.stamp.settled = false
		}
	}
}

// skipped reports whether a name below the root is none of a cell's: celld's
// scratch areas begin with a dot (as do cron cells, which are never
// exported), peerlog holds other nodes' entries.
func skipped(name string) bool {
	return !celld.IsCellDir(name)
}

// lookAtRoot reports whether the root is as it was when it was read. If not,
// now is when its reading begins.
func (t *tree) lookAtRoot() (now time.Duration, fresh bool, err error) {
	info, err := t.fs.Stat(t.root)
	if err != nil {
		return 0, false, err
	}
	m, now := markOf(info), t.clock.elapsed()
	if t.stamp.replaced(m) {
		t.watches.remove(t.root)
	}
	t.watches.add(t.root)
	if t.stamp.holds(m) && !passed(t.due, now) {
		return now, true, nil
	}
	t.stamp.see(m, now)
	return now, false, nil
}

// setNames takes the names that a reading of the root, begun at now, found,
// and looks at the cells that are gone from it.
func (t *tree) setNames(entries []fs.DirEntry, now time.Duration) (errs []error) {
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() && !skipped(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	t.names = names
	t.stamp.read(now)
	t.due = now + reread
	for scope, c := range t.cells {
		if _, ok := slices.BinarySearch(names, scope); ok || c.stamp == (stamp{}) {
			continue
		}
		// It may be newer than the reading.
		if _, err := t.scanCell(scope); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func (t *tree) dropCell(scope string) {
	c := t.cells[scope]
	if c == nil {
		return
	}
	for _, r := range c.residencies {
		t.unwatch(r)
		t.setShape(scope, r, false, false)
		r.stamp, r.foreign = stamp{}, 0
	}
	t.watches.remove(c.dir)
	c.stamp, c.foreign = stamp{}, 0
	if len(c.residencies) == 0 {
		delete(t.cells, scope)
	}
}

// newCell begins to follow a cell. Cells that are met together are due for
// their whole reading one after the other.
func (t *tree) newCell(scope, dir string) *cell {
	const slices = 60
	c := &cell{dir: dir, due: t.clock.elapsed() + reread*time.Duration(t.met%slices+1)/slices}
	t.met++
	t.cells[scope] = c
	return c
}

// scanCell reads a cell's directory as far as it changed and reports whether
// there was anything to read. The newest epoch is followed, and those that
// already were; directories of older epochs are leftovers that celld never
// reads again either.
func (t *tree) scanCell(scope string) (read bool, err error) {
	c := t.cells[scope]
	var dir string
	if c != nil {
		dir = c.dir
	} else {
		dir = filepath.Join(t.root, scope, celld.EpochsDirName)
	}
	info, err := t.fs.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		t.watches.add(filepath.Dir(dir))
		// It may have appeared before the watch did.
		if info, err = t.fs.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			t.dropCell(scope)
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("read cell directory: %w", err)
	}
	if c == nil {
		c = t.newCell(scope, dir)
	}
	m, now := markOf(info), t.clock.elapsed()
	due := passed(c.due, now)
	if fresh := c.stamp.holds(m) && !due; !fresh || !t.watches.covers(dir) {
		if c.stamp.replaced(m) {
			t.watches.remove(dir)
		}
		t.watches.add(dir)
		t.watches.remove(filepath.Dir(dir))
		if !fresh {
			read = true
			c.stamp.see(m, now)
			if err := t.readEpochs(scope, c, now); err != nil {
				return true, err
			}
		}
	}
	var errs []error
	for _, r := range c.residencies {
		changed, err := t.scanResidency(scope, r, due)
		read = read || changed
		if err != nil {
			errs = append(errs, err)
		}
	}
	if due && len(errs) == 0 {
		c.due = now + reread
	}
	return read, errors.Join(errs...)
}

// readEpochs finds the newest epoch directory of a cell.
func (t *tree) readEpochs(scope string, c *cell, now time.Duration) error {
	entries, err := t.fs.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		t.dropCell(scope)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read epoch directories: %w", err)
	}
	c.stamp.read(now)
	c.foreign = 0
	var newest uint64
	for _, e := range entries {
		epoch, ok := celld.ParseEpochName(e.Name())
		if !ok || !e.IsDir() {
			c.foreign++
			continue
		}
		newest = max(newest, epoch)
	}
	if newest == 0 || c.residency(newest) != nil {
		return nil
	}
	r := &residency{epoch: newest, dir: filepath.Join(c.dir, celld.EpochName(newest), celld.LTXDirName)}
	i, _ := slices.BinarySearchFunc(c.residencies, newest, func(r *residency, epoch uint64) int {
		return cmp.Compare(r.epoch, epoch)
	})
	c.residencies = slices.Insert(c.residencies, i, r)
	t.markDirty(scope)
	return nil
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
