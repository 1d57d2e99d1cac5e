package ltxtail

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watcher reports changes in directories. It is what Tail needs of fsnotify;
// tests stand in for kernels that run out of watches or lose events.
type Watcher interface {
	Add(dir string) error
	Remove(dir string) error
	Events() <-chan fsnotify.Event
	Errors() <-chan error
	Close() error
}

// eventBuffer is how many events may wait: ten thousand writes and renames
// in a burst were kept whole with this many.
const eventBuffer = 4096

// Inotify opens the operating system's watcher.
func Inotify() (Watcher, error) {
	w, err := fsnotify.NewBufferedWatcher(eventBuffer)
	if err != nil {
		return nil, err
	}
	return inotify{w}, nil
}

type inotify struct{ *fsnotify.Watcher }

func (w inotify) Events() <-chan fsnotify.Event { return w.Watcher.Events }
func (w inotify) Errors() <-chan error          { return w.Watcher.Errors }

// Run watches and rescans until ctx ends. It returns nil then; nothing that
// happens to the watcher ends it, polling takes over.
func (t *Tail) Run(ctx context.Context) error {
	t.startWatcher()
	defer t.stopWatcher()
	if err := t.Scan(); err != nil {
		t.cfg.Log.Warn("first walk of the watch directory", "err", err)
	}
	timer := time.NewTimer(t.interval())
	defer timer.Stop()
	var events <-chan fsnotify.Event
	var failures <-chan error
	if t.watcher != nil {
		events, failures = t.watcher.Events(), t.watcher.Errors()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			t.handle(ev)
		case err, ok := <-failures:
			if !ok {
				failures = nil
				continue
			}
			t.noteWatchError(err)
			t.forgetStamps()
			t.rescan()
		case <-timer.C:
			t.rescan()
			timer.Reset(t.interval())
		}
	}
}

func (t *Tail) rescan() {
	before := t.Stats().LastError
	if err := t.Scan(); err != nil && err.Error() != before {
		t.cfg.Log.Warn("walk of the watch directory", "err", err)
	}
}

func (t *Tail) startWatcher() {
	if t.cfg.Watch == nil {
		return
	}
	w, err := t.cfg.Watch()
	if err != nil {
		// EMFILE means the limit of inotify instances (128 by default) that
		// all processes of this user share.
		t.cfg.Log.Warn("directories cannot be watched, polling instead; see fs.inotify.max_user_instances", "err", err, "poll", t.cfg.Poll)
		return
	}
	t.mu.Lock()
	t.watcher = w
	t.mu.Unlock()
}

func (t *Tail) stopWatcher() {
	t.mu.Lock()
	w := t.watcher
	t.watcher = nil
	clear(t.watched)
	t.mu.Unlock()
	if w != nil {
		_ = w.Close() // the descriptors are gone either way
	}
}

func (t *Tail) interval() time.Duration {
	if t.Stats().Polling {
		return t.cfg.Poll
	}
	return t.cfg.Rescan
}

// noteWatchError counts a failure and says once which kernel limit it is.
func (t *Tail) noteWatchError(err error) {
	t.mu.Lock()
	first := t.stats.WatchErrors == 0
	if !errors.Is(err, fsnotify.ErrEventOverflow) {
		t.stats.WatchErrors++
	}
	t.mu.Unlock()
	if first {
		t.cfg.Log.Warn("watching is incomplete, polling instead; see fs.inotify.max_user_watches and max_queued_events", "err", err)
	}
}

// forgetStamps makes the next walk read everything: events were lost.
func (t *Tail) forgetStamps() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.cells {
		c.stamp = stamp{}
		for _, r := range c.residencies {
			r.dir, r.files = stamp{}, stamp{}
		}
	}
}

// watch adds a watch on dir if there is none. It is called with t.mu held and
// before dir is read, so that whatever appears in between is seen twice
// rather than never.
func (t *Tail) watch(dir string) {
	if t.watcher == nil {
		return
	}
	if _, ok := t.watched[dir]; ok {
		return
	}
	if err := t.watcher.Add(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		first := t.stats.WatchErrors == 0
		t.stats.WatchErrors++
		if first {
			t.cfg.Log.Warn("a directory cannot be watched, polling instead; see fs.inotify.max_user_watches", "err", err)
		}
		return
	}
	t.watched[dir] = struct{}{}
}

func (t *Tail) unwatch(dir string) {
	if _, ok := t.watched[dir]; ok {
		delete(t.watched, dir)
		if t.watcher != nil {
			_ = t.watcher.Remove(dir) // a removed directory has no watch left
		}
	}
}

// handle takes one event: a file renamed into an LTX directory becomes
// pending at once, any other change below a cell has the cell walked again.
func (t *Tail) handle(ev fsnotify.Event) {
	rel, err := filepath.Rel(t.cfg.Root, ev.Name)
	if err != nil || rel == "." || strings.HasPrefix(rel, "..") {
		return
	}
	scope, rest, _ := strings.Cut(filepath.ToSlash(rel), "/")
	if skipped(scope) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
		delete(t.watched, ev.Name)
	}
	if epoch, txid, ok := parseRest(rest); ok && ev.Has(fsnotify.Create) {
		if c := t.cells[scope]; c != nil {
			if r := c.residencies[epoch]; r != nil && r.live {
				t.addPending(scope, r, txid)
				return
			}
		}
	} else if ev.Op == fsnotify.Chmod || ev.Op == fsnotify.Write || strings.HasSuffix(rest, tmpSuffix) {
		return
	}
	if err := t.scanCell(scope); err != nil {
		t.stats.LastError = err.Error()
	}
}
