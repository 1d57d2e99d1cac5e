// Package ltxtail knows what is pending on the node's disk: which cells have
// which residencies (epoch directories), which level-0 LTX files of them wait
// to be exported, and which directories vanished. It keeps names, never
// bytes: a file is read when its transaction is proven (package proof).
//
// Directories are watched with inotify and walked again on a timer, so a lost
// event, an overflown queue or an exhausted watch limit costs latency and
// never a file. The tree is only ever read.
package ltxtail

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// File is a level-0 LTX file that waits on the node's disk. Locally a file
// always holds one transaction id (celld captures min == max).
type File struct {
	TXID uint64
	// Path is the file's path.
	Path string
}

// Residency is what the disk shows of one epoch of a cell.
type Residency struct {
	Epoch uint64
	// Files are the pending files above the position of Advance, ascending.
	Files []File
	// Live says that the LTX directory exists: the cell is resident, or its
	// process died and left it.
	Live bool
	// Evicted says that the cached image of an eviction lies there.
	Evicted bool
}

// Config sets a Tail up.
type Config struct {
	// Root is the node's data directory, CELLD_WATCH.
	Root string
	// FS reads it; nil is the operating system.
	FS FS
	// Watch opens a directory watcher; nil polls only.
	Watch func() (Watcher, error)
	// Rescan is the interval of full walks while watching works, Poll while
	// it does not. Zero values are 10 s and 500 ms.
	Rescan, Poll time.Duration
	// Now is the clock of directory readings; nil is time.Now.
	Now func() time.Time
	// Log takes one line per change of the watcher's health.
	Log *slog.Logger
}

// Tail follows one node's data directory. Its methods are safe for
// concurrent use, and but for Scan, Run and Open none of them waits for the
// file system.
type Tail struct {
	cfg  Config
	wake chan struct{}

	// walking holds one value during a walk, which comes before mu.
	walking chan struct{}
	// mu guards tree and readers. No call of the file system, of the watcher
	// or of anything else that may hang is made while it is held.
	mu      sync.Mutex
	tree    tree
	readers readers
	watches watches
}

// Stats counts what a Tail sees, for metrics and state.
type Stats struct {
	// Cells with at least one epoch directory; Facets are facet directories
	// below them, which are counted and not exported. They are counted when
	// their cell changes, and every ten minutes.
	Cells  int `json:"cells"`
	Facets int `json:"facets"`
	// Pending is the number of files waiting.
	Pending int `json:"pending"`
	// Watched directories; WatchErrors that could not be watched.
	Watched     int `json:"watched"`
	WatchErrors int `json:"watch_errors"`
	// Polling says that something cannot be watched and short polls stand in.
	Polling bool `json:"polling"`
	// Scans is the number of finished walks; Unreadable the directories that
	// the last one could not read or that did not answer, Foreign the names
	// that are none of celld's.
	Scans      int `json:"scans"`
	Unreadable int `json:"unreadable"`
	Foreign    int `json:"foreign"`
	// LastError is the last directory error, "" when the last walk had none;
	// RootError is that of the watch directory itself.
	LastError string `json:"last_error,omitempty"`
	RootError string `json:"root_error,omitempty"`
}

// New returns a Tail of cfg.Root. It reads nothing yet: Scan does.
func New(cfg Config) *Tail {
	cfg.Rescan = cmp.Or(cfg.Rescan, 10*time.Second)
	cfg.Poll = cmp.Or(cfg.Poll, 500*time.Millisecond)
	if cfg.FS == nil {
		cfg.FS = OS{}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	t := &Tail{cfg: cfg, wake: make(chan struct{}, 1), walking: make(chan struct{}, 1)}
	t.watches = watches{log: cfg.Log, watched: make(map[string]struct{})}
	t.tree = tree{
		clock: clock{now: cfg.Now, began: cfg.Now()}, watches: &t.watches, wake: t.wake,
		cells: make(map[string]*cell), dirty: make(map[string]struct{}),
	}
	t.readers = readers{
		tail: t, patience: patience, silent: make(map[string]*reader),
		queued: make(map[string]struct{}), changed: make(chan struct{}, 1),
	}
	return t
}

// Wake is signalled when a cell became dirty.
func (t *Tail) Wake() <-chan struct{} { return t.wake }

// Dirty returns the cells that changed since the last call, in name order.
func (t *Tail) Dirty() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := slices.Sorted(maps.Keys(t.tree.dirty))
	clear(t.tree.dirty)
	return names
}

// Cells returns every cell that has an epoch directory, in name order.
func (t *Tail) Cells() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.tree.cells))
}

// Cell returns the residencies known of a cell, by ascending epoch.
func (t *Tail) Cell(scope string) []Residency {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.tree.cells[scope]
	if c == nil {
		return nil
	}
	out := make([]Residency, 0, len(c.residencies))
	for _, r := range c.residencies {
		files := make([]File, len(r.pending))
		for i, txid := range r.pending {
			files[i] = File{TXID: txid, Path: r.filePath(txid)}
		}
		out = append(out, Residency{Epoch: r.epoch, Files: files, Live: r.live, Evicted: r.evicted})
	}
	return out
}

// Advance says that everything of (scope, epoch) up to txid is exported: its
// names are dropped and not reported again.
func (t *Tail) Advance(scope string, epoch, txid uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.tree.cells[scope]
	if c == nil {
		return
	}
	for len(c.residencies) > 0 && c.residencies[0].epoch < epoch {
		// A residency below one that is exported is a leftover.
		c.residencies[0].unwatch(&t.watches)
		c.residencies = slices.Delete(c.residencies, 0, 1)
	}
	if r := c.residency(epoch); r != nil && txid > r.after {
		r.after = txid
		n, _ := slices.BinarySearch(r.pending, txid+1)
		r.pending = slices.Clone(r.pending[n:])
	}
}

// Walked reports whether the directory was walked at least once, and whether
// all of it could be read the last time. Unlike Stats it looks at no cell.
func (t *Tail) Walked() (once, whole bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.tree.stats
	return s.Scans > 0, s.Scans > 0 && s.Unreadable == 0
}

// Stats returns the current counts.
func (t *Tail) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.tree.stats
	s.Cells = len(t.tree.cells)
	s.Watched, s.WatchErrors = t.watches.counts()
	for _, c := range t.tree.cells {
		s.Facets += c.facets
		s.Foreign += c.foreign
		for _, r := range c.residencies {
			s.Pending += len(r.pending)
			s.Foreign += r.foreign
		}
	}
	s.Polling = t.watches.polling()
	return s
}

// Open opens a pending file for reading.
func (t *Tail) Open(f File) (ReadFile, error) {
	r, err := t.cfg.FS.Open(f.Path)
	if err != nil {
		return nil, fmt.Errorf("open pending file: %w", err)
	}
	return r, nil
}
