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

// residency is what is kept of one epoch of a cell. Whoever reads the cell
// owns the stamp; the rest is changed with the lock of the Tail held, and but
// for after and pending by the reading only.
type residency struct {
	epoch   uint64
	after   uint64
	pending []uint64
	live    bool
	evicted bool
	// dir is the LTX directory, there or not.
	dir string
	// stamp is the state of the LTX directory while live, else that of the
	// epoch directory; foreign counts the names that are none of celld's.
	stamp   stamp
	foreign int
}

// epochDir is the directory that holds the LTX directory.
func (r *residency) epochDir() string { return r.dir[:len(r.dir)-len(celld.LTXDirName)-1] }

// filePath is where the level-0 file of txid lies.
func (r *residency) filePath(txid uint64) string {
	return filepath.Join(r.dir, ltxfile.FileName(txid, txid))
}

// finding is what a reading found of a residency. It becomes what is known of
// it once the whole cell was read.
type finding struct {
	of            *residency
	live, evicted bool
	// replaced says that another LTX directory is in the place of the one
	// known, which took its names with it.
	replaced bool
	// txids are those found, ascending; foreign counts the other names.
	txids   []uint64
	foreign int
}

// scanResidency reads one epoch directory and its LTX directory, unless they
// are as they were and not due, and reports whether it did.
func (rd *reading) scanResidency(r *residency, due bool) (read bool, err error) {
	if !r.live && !due && rd.stillGone(r) {
		return false, nil
	}
	f := finding{of: r, live: r.live, evicted: r.evicted, foreign: r.foreign}
	info, err := rd.stat(r.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = rd.scanGone(&f)
		read = true
	case err != nil:
		return true, fmt.Errorf("read LTX directory: %w", err)
	default:
		read, err = rd.scanLive(&f, markOf(info), due)
	}
	if read {
		rd.found = append(rd.found, f)
	}
	return read, err
}

// scanLive reads an LTX directory that was seen in state m.
func (rd *reading) scanLive(f *finding, m mark, due bool) (read bool, err error) {
	r := f.of
	fresh := r.live && !due && r.stamp.holds(m)
	if fresh && rd.watches.covers(r.dir) {
		return false, nil
	}
	switch {
	case !r.live:
		r.stamp = stamp{}
	case r.stamp.replaced(m):
		// The watch of the old one is none of the new one's.
		rd.watches.remove(r.dir)
		f.replaced = true
	}
	rd.watch(r.dir)
	for _, dir := range r.way() {
		rd.watches.remove(dir)
	}
	if fresh {
		return false, nil
	}
	f.live, f.evicted = true, false
	now := rd.clock.elapsed()
	r.stamp.see(m, now)
	return true, rd.readFiles(f, now)
}

// stillGone reports whether an epoch directory without captured files is as
// it was: whatever celld puts into it changes it.
func (rd *reading) stillGone(r *residency) bool {
	if !r.stamp.settled {
		return false
	}
	dir := r.epochDir()
	info, err := rd.stat(dir)
	return err == nil && r.stamp.holds(markOf(info)) && rd.watches.covers(dir)
}

// scanGone reads an epoch directory whose LTX directory is not there.
func (rd *reading) scanGone(f *finding) error {
	r := f.of
	rd.watches.remove(r.dir)
	if r.live {
		r.stamp, f.foreign = stamp{}, 0 // those of the LTX directory
	}
	dir := r.epochDir()
	info, err := rd.stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		r.unwatch(rd.watches)
		r.stamp = stamp{}
		f.live, f.evicted = false, false
		return nil
	}
	if err != nil {
		return fmt.Errorf("read epoch directory: %w", err)
	}
	m, now := markOf(info), rd.clock.elapsed()
	if r.stamp.replaced(m) {
		rd.watches.remove(dir)
	}
	r.stamp.see(m, now)
	// Watch every directory on the way, then look once more: whatever was
	// made meanwhile is seen by one or the other.
	for _, d := range r.way() {
		rd.watch(d)
	}
	if info, err = rd.stat(r.dir); err == nil {
		_, err := rd.scanLive(f, markOf(info), true)
		return err
	}
	image, sure := rd.hasImage(dir)
	f.live, f.evicted = false, image
	if _, err := rd.stat(filepath.Join(dir, celld.MetaDirName)); sure && errors.Is(err, fs.ErrNotExist) {
		r.stamp.read(now)
	}
	return nil
}

// way are the directories from the epoch's to the LTX directory, without it.
func (r *residency) way() []string {
	var dirs []string
	for dir := filepath.Dir(r.dir); len(dir) >= len(r.epochDir()); dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
	}
	slices.Reverse(dirs)
	return dirs
}

// unwatch ends the watches of a residency that is no more.
func (r *residency) unwatch(w *watches) {
	w.remove(r.dir)
	for _, dir := range r.way() {
		w.remove(dir)
	}
}

// hasImage reports whether the image of an eviction lies in an epoch
// directory, and whether that is sure.
func (rd *reading) hasImage(epochDir string) (found, sure bool) {
	sure = true
	for _, name := range []string{celld.EvictedName, celld.HibernatedName} {
		_, err := rd.stat(filepath.Join(epochDir, name))
		if err == nil {
			return true, true
		}
		sure = sure && errors.Is(err, fs.ErrNotExist)
	}
	return false, sure
}

// readFiles takes the names of an LTX directory.
func (rd *reading) readFiles(f *finding, now time.Duration) error {
	entries, err := rd.readDir(f.of.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read LTX directory: %w", err)
	}
	f.of.stamp.read(now)
	f.foreign = 0
	for _, e := range entries {
		first, txid, ok := ltxfile.ParseFileName(e.Name())
		if !ok || first != txid || e.IsDir() {
			if !strings.HasSuffix(e.Name(), tmpSuffix) {
				f.foreign++
			}
			continue
		}
		f.txids = append(f.txids, txid)
	}
	return nil
}
