package ltxtail

import (
	"cmp"
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
	clock   clock
	watches *watches
	wake    chan<- struct{}

	// names are the cell directories of the root, in name order, as of its
	// last reading; stamp is its state then, due when it is read anyway. They
	// belong to the walk.
	names []string
	stamp stamp
	due   time.Duration

	cells map[string]*cell
	dirty map[string]struct{}
	stats Stats
	// met counts the cells that were ever new.
	met int
	// lost counts how often events were lost, each of which has everything
	// read again; the root was since it was read for that of rootLost.
	lost, rootLost int
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
	// residencies are those followed, by ascending epoch; there says that the
	// directory of the epochs is. foreign is the number of names in it that
	// are none of celld's.
	residencies []*residency
	there       bool
	facets      int
	foreign     int
	// lost is that of the tree when the last reading began, or never.
	lost int

	// What follows belongs to the reading: dir is the directory of the epochs,
	// stamp its state when it was read, due when everything of the cell is
	// read, whatever the stamps say.
	dir   string
	stamp stamp
	due   time.Duration
}

// never is what no tree has lost.
const never = -1

// residency returns what is known of an epoch, nil when it is not followed.
func (c *cell) residency(epoch uint64) *residency { return find(c.residencies, epoch) }

func find(rs []*residency, epoch uint64) *residency {
	for _, r := range rs {
		if r.epoch == epoch {
			return r
		}
	}
	return nil
}

// unsettle makes the reading that begins read everything.
func (c *cell) unsettle() {
	c.stamp.settled = false
	for _, r := range c.residencies {
		r.stamp.settled = false
	}
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

// skipped reports whether a name below the root is none of a cell's: celld's
// scratch areas begin with a dot (as do cron cells, which are never
// exported), peerlog holds other nodes' entries.
func skipped(name string) bool {
	return !celld.IsCellDir(name)
}

// beginRoot has the root read if events were lost since it last was.
func (t *tree) beginRoot() {
	if t.rootLost != t.lost {
		t.stamp.settled, t.rootLost = false, t.lost
	}
}

// lookAtRoot reports whether the root is as it was when it was read. If not,
// now is when its reading begins. It touches only what belongs to the walk.
func (t *tree) lookAtRoot(a *asker, root string) (now time.Duration, fresh bool, err error) {
	info, err := a.stat(root)
	if err != nil {
		return 0, false, err
	}
	m, now := markOf(info), t.clock.elapsed()
	if t.stamp.replaced(m) {
		t.watches.remove(root)
	}
	a.watch(root)
	if t.stamp.holds(m) && !passed(t.due, now) {
		return now, true, nil
	}
	t.stamp.see(m, now)
	return now, false, nil
}

// setNames takes the names that a reading of the root, begun at now, found. It
// returns the cells that are gone from it, though they may be newer.
func (t *tree) setNames(entries []fs.DirEntry, now time.Duration) (gone []string) {
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
		if _, ok := slices.BinarySearch(names, scope); !ok && c.there {
			gone = append(gone, scope)
		}
	}
	return gone
}

// begin has a reading take a cell up.
func (t *tree) begin(rd *reading, scope string) {
	c := t.cells[scope]
	if c != nil && c.lost != t.lost {
		c.unsettle()
		c.lost = t.lost
	}
	rd.takeUp(scope, c)
}

// take makes what a reading found what is known, but for what was exported
// since it began. It reports whether names were dropped, among which may be
// some that an event told of meanwhile.
func (t *tree) take(rd *reading) (dropped bool) {
	if rd.gone {
		if rd.cell != nil {
			t.watches.remove(rd.cell.dir)
		}
		return t.dropCell(rd.scope)
	}
	c := rd.cell
	if c == nil {
		return false
	}
	if t.cells[rd.scope] == nil {
		t.addCell(rd.scope, c)
	}
	c.there, c.foreign = true, rd.foreign
	if r := rd.made; r != nil {
		i, _ := slices.BinarySearchFunc(c.residencies, r.epoch, func(r *residency, epoch uint64) int {
			return cmp.Compare(r.epoch, epoch)
		})
		c.residencies = slices.Insert(c.residencies, i, r)
		t.markDirty(rd.scope)
	}
	for _, r := range rd.known {
		if c.residency(r.epoch) != r {
			r.unwatch(t.watches) // it became a leftover meanwhile
		}
	}
	for i := range rd.found {
		dropped = t.takeFinding(rd.scope, &rd.found[i]) || dropped
	}
	return dropped
}

// takeFinding is take for one residency.
func (t *tree) takeFinding(scope string, f *finding) (dropped bool) {
	r := f.of
	if f.replaced {
		dropped = len(r.pending) > 0
		r.pending = nil
		t.markDirty(scope)
	}
	dropped = t.setShape(scope, r, f.live, f.evicted) || dropped
	r.foreign = f.foreign
	for _, txid := range f.txids {
		t.addPending(scope, r, txid)
	}
	return dropped
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
// kept. A directory that vanished takes its pending names with it, if there
// were any: what was proven of them is in the bucket.
func (t *tree) setShape(scope string, r *residency, live, evicted bool) (dropped bool) {
	if r.live == live && r.evicted == evicted {
		return false
	}
	r.live, r.evicted = live, evicted
	if !live {
		dropped = len(r.pending) > 0
		r.pending = nil
	}
	t.markDirty(scope)
	return dropped
}

func (t *tree) dropCell(scope string) (dropped bool) {
	c := t.cells[scope]
	if c == nil {
		return false
	}
	for _, r := range c.residencies {
		r.unwatch(t.watches)
		dropped = t.setShape(scope, r, false, false) || dropped
		r.stamp, r.foreign = stamp{}, 0
	}
	t.watches.remove(c.dir)
	c.there, c.stamp, c.foreign = false, stamp{}, 0
	if len(c.residencies) == 0 {
		delete(t.cells, scope)
	}
	return dropped
}

// suspect has the next reading of a cell read everything, and whoever asks look
// at it.
func (t *tree) suspect(scope string) {
	if c := t.cells[scope]; c != nil {
		c.lost = never
		t.markDirty(scope)
	}
}

// addCell begins to follow a cell. Cells that are met together are due for
// their whole reading one after the other.
func (t *tree) addCell(scope string, c *cell) {
	const slices = 60
	c.due -= reread - reread*time.Duration(t.met%slices+1)/slices
	c.lost = t.lost
	t.met++
	t.cells[scope] = c
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
