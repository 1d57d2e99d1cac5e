package ltxtail

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"celldexport/internal/celld"
)

// maxFacetDepth is how deep facets nest below their root.
const maxFacetDepth = 3

// reading looks at one cell, without a lock, and gathers what it finds; tree
// takes it over as a whole. So what is known of a cell is what some reading
// saw, however long a call of the file system takes. A cell has one reading at
// a time.
type reading struct {
	asker
	root  string
	clock *clock

	// scope is the cell being read, "" when none is.
	scope string
	// cell is what is known of the cell, nil when nothing is, and known its
	// residencies when the reading began. made is a residency that is new.
	cell  *cell
	known []*residency
	made  *residency
	// gone says that there is no directory of epochs; found is what there is
	// of residencies, foreign what else.
	gone    bool
	found   []finding
	foreign int
}

// takeUp begins with a cell, nil when it is not known.
func (rd *reading) takeUp(scope string, c *cell) {
	clear(rd.found) // what was read of the cell before is of no use any more
	rd.scope, rd.cell, rd.made, rd.gone = scope, c, nil, false
	rd.known, rd.found, rd.foreign = rd.known[:0], rd.found[:0], 0
	if c != nil {
		rd.known, rd.foreign = append(rd.known, c.residencies...), c.foreign
	}
}

// scanCell reads a cell's directory as far as it changed and reports whether
// there was anything to read. The newest epoch is followed, and those that
// already were; directories of older epochs are leftovers that celld never
// reads again either.
func (rd *reading) scanCell() (read bool, err error) {
	var dir string
	if rd.cell != nil {
		dir = rd.cell.dir
	} else {
		dir = filepath.Join(rd.root, rd.scope, celld.EpochsDirName)
	}
	info, err := rd.stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		rd.watch(filepath.Dir(dir))
		// It may have appeared before the watch did.
		if info, err = rd.stat(dir); errors.Is(err, fs.ErrNotExist) {
			rd.gone = true
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("read cell directory: %w", err)
	}
	m, now := markOf(info), rd.clock.elapsed()
	c := rd.cell
	if c == nil {
		c = &cell{dir: dir, due: now + reread}
		rd.cell = c
	}
	due := passed(c.due, now)
	if fresh := c.stamp.holds(m) && !due; !fresh || !rd.watches.covers(dir) {
		if c.stamp.replaced(m) {
			rd.watches.remove(dir)
		}
		rd.watch(dir)
		rd.watches.remove(filepath.Dir(dir))
		if !fresh {
			read = true
			c.stamp.see(m, now)
			if err := rd.readEpochs(now); err != nil || rd.gone {
				return true, err
			}
		}
	}
	changed, err := rd.scanResidencies(due)
	if due && err == nil {
		c.due = now + reread
	}
	return read || changed, err
}

func (rd *reading) scanResidencies(due bool) (read bool, err error) {
	var errs []error
	for _, r := range rd.known {
		changed, err := rd.scanResidency(r, due)
		read = read || changed
		if err != nil {
			errs = append(errs, err)
		}
	}
	return read, errors.Join(errs...)
}

// readEpochs finds the newest epoch directory of a cell.
func (rd *reading) readEpochs(now time.Duration) error {
	c := rd.cell
	entries, err := rd.readDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		rd.gone = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("read epoch directories: %w", err)
	}
	c.stamp.read(now)
	rd.foreign = 0
	var newest uint64
	for _, e := range entries {
		epoch, ok := celld.ParseEpochName(e.Name())
		if !ok || !e.IsDir() {
			rd.foreign++
			continue
		}
		newest = max(newest, epoch)
	}
	if newest == 0 || find(rd.known, newest) != nil {
		return nil
	}
	rd.made = &residency{epoch: newest, dir: filepath.Join(c.dir, celld.EpochName(newest), celld.LTXDirName)}
	rd.known = append(rd.known, rd.made)
	return nil
}

// countFacets counts facet directories below the cell's directory, nested ones
// too.
func (rd *reading) countFacets() int {
	n := 0
	dirs := []string{filepath.Join(rd.root, rd.scope)}
	for depth := 0; depth < maxFacetDepth && len(dirs) > 0; depth++ {
		var next []string
		for _, dir := range dirs {
			entries, err := rd.readDir(filepath.Join(dir, celld.FacetsDirName))
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
