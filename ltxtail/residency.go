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

// residency is what is kept of one epoch of a cell.
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

// scanResidency reads one epoch directory and its LTX directory, unless they
// are as they were and not due, and reports whether it did.
func (t *tree) scanResidency(scope string, r *residency, due bool) (read bool, err error) {
	if !r.live && !due && t.stillGone(r) {
		return false, nil
	}
	info, err := t.fs.Stat(r.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, t.scanGone(scope, r)
	case err != nil:
		return true, fmt.Errorf("read LTX directory: %w", err)
	}
	return t.scanLive(scope, r, markOf(info), due)
}

// scanLive reads an LTX directory that was seen in state m.
func (t *tree) scanLive(scope string, r *residency, m mark, due bool) (read bool, err error) {
	fresh := r.live && !due && r.stamp.holds(m)
	if fresh && t.watches.covers(r.dir) {
		return false, nil
	}
	switch {
	case !r.live:
		r.stamp = stamp{}
	case r.stamp.replaced(m):
		// The old one took its names with it, and its watch is none of the
		// new one's.
		t.watches.remove(r.dir)
		r.pending = nil
		t.markDirty(scope)
	}
	t.watches.add(r.dir)
	for _, dir := range r.way() {
		t.watches.remove(dir)
	}
	t.setShape(scope, r, true, false)
	if fresh {
		return false, nil
	}
	now := t.clock.elapsed()
	r.stamp.see(m, now)
	return true, t.readFiles(scope, r, now)
}

// stillGone reports whether an epoch directory without captured files is as
// it was: whatever celld puts into it changes it.
func (t *tree) stillGone(r *residency) bool {
	if !r.stamp.settled {
		return false
	}
	dir := r.epochDir()
	info, err := t.fs.Stat(dir)
	return err == nil && r.stamp.holds(markOf(info)) && t.watches.covers(dir)
}

// scanGone reads an epoch directory whose LTX directory is not there.
func (t *tree) scanGone(scope string, r *residency) error {
	t.watches.remove(r.dir)
	if r.live {
		r.stamp, r.foreign = stamp{}, 0 // those of the LTX directory
	}
	dir := r.epochDir()
	info, err := t.fs.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		t.unwatch(r)
		r.stamp = stamp{}
		t.setShape(scope, r, false, false)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read epoch directory: %w", err)
	}
	m, now := markOf(info), t.clock.elapsed()
	if r.stamp.replaced(m) {
		t.watches.remove(dir)
	}
	r.stamp.see(m, now)
	// Watch every directory on the way, then look once more: whatever was
	// made meanwhile is seen by one or the other.
	for _, d := range r.way() {
		t.watches.add(d)
	}
	if info, err = t.fs.Stat(r.dir); err == nil {
		_, err := t.scanLive(scope, r, markOf(info), true)
		return err
	}
	image, sure := t.hasImage(dir)
	t.setShape(scope, r, false, image)
	if _, err := t.fs.Stat(filepath.Join(dir, celld.MetaDirName)); sure && errors.Is(err, fs.ErrNotExist) {
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
func (t *tree) unwatch(r *residency) {
	t.watches.remove(r.dir)
	for _, dir := range r.way() {
		t.watches.remove(dir)
	}
}

// hasImage reports whether the image of an eviction lies in an epoch
// directory, and whether that is sure.
func (t *tree) hasImage(epochDir string) (found, sure bool) {
	sure = true
	for _, name := range []string{celld.EvictedName, celld.HibernatedName} {
		_, err := t.fs.Stat(filepath.Join(epochDir, name))
		if err == nil {
			return true, true
		}
		sure = sure && errors.Is(err, fs.ErrNotExist)
	}
	return false, sure
}

// readFiles takes the names of an LTX directory.
func (t *tree) readFiles(scope string, r *residency, now time.Duration) error {
	entries, err := t.fs.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read LTX directory: %w", err)
	}
	r.stamp.read(now)
	r.foreign = 0
	for _, e := range entries {
		first, txid, ok := ltxfile.ParseFileName(e.Name())
		if !ok || first != txid || e.IsDir() {
			if !strings.HasSuffix(e.Name(), tmpSuffix) {
				r.foreign++
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
