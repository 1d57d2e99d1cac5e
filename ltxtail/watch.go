package ltxtail

import (
	"context"
	"errors"
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
	var events <-chan fsnotify.Event
	var failures <-chan error
	if t.watches.watcher != nil {
		events, failures = t.watches.watcher.Events(), t.watches.watcher.Errors()
	}
	waiting := func() { handleWaiting(events, t.handle) }
	if err := t.scan(ctx, waiting); err != nil && ctx.Err() == nil {
		t.cfg.Log.Warn("first walk of the watch directory", "err", err)
	}
	every := t.interval()
	timer := time.NewTimer(every)
	defer timer.Stop()
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
			t.lost(ctx, err, waiting)
		case <-timer.C:
			took := t.walkAgain(ctx, waiting)
			timer.Reset(pause(every, took, every < t.cfg.Rescan))
		}
		if now := t.interval(); now != every {
			// Watching became incomplete: the next walk is due sooner.
			every = now
			timer.Reset(every)
		}
	}
}

// walkAgain walks the directory and says how long it took.
func (t *Tail) walkAgain(ctx context.Context, events func()) time.Duration {
	began := t.cfg.Now()
	before := t.Stats().LastError
	if err := t.scan(ctx, events); err != nil && ctx.Err() == nil && err.Error() != before {
		t.cfg.Log.Warn("walk of the watch directory", "err", err)
	}
	return t.cfg.Now().Sub(began)
}

// pause is how long to wait after a walk that took so long, when walks are
// wanted every so often: a walk over many cells must not become all that is
// done. Walks that only look for lost events take a hundred-and-fiftieth
// of the time at most, those that stand in for events a fifth.
func pause(every, took time.Duration, polling bool) time.Duration {
	if polling {
		return max(every, 4*took)
	}
	return max(every, min(149*took, time.Minute))
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
	defer t.mu.Unlock()
	t.watches.watcher = w
}

func (t *Tail) stopWatcher() {
	t.mu.Lock()
	w := t.watches.watcher
	t.watches.watcher = nil
	clear(t.watches.watched)
	t.mu.Unlock()
	if w != nil {
		_ = w.Close() // the descriptors are gone either way
	}
}

// interval is how long a change that no event reports may wait.
func (t *Tail) interval() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watches.polling() {
		return t.cfg.Poll
	}
	return t.cfg.Rescan
}

// lost takes an error of the watcher: events are missing, so everything is
// read again.
func (t *Tail) lost(ctx context.Context, err error, events func()) {
	t.mu.Lock()
	t.watches.note(err, !errors.Is(err, fsnotify.ErrEventOverflow))
	t.tree.unsettle()
	t.mu.Unlock()
	t.walkAgain(ctx, events)
}

// handleWaiting takes the events that wait, so many at most that the walk in
// between goes on whatever the node does.
func handleWaiting(events <-chan fsnotify.Event, handle func(fsnotify.Event)) {
	for range breath {
		select {
		case ev, ok := <-events:
			if !ok {
				return
			}
			handle(ev)
		default:
			return
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
		delete(t.watches.watched, ev.Name)
	}
	epoch, txid, ok := parseRest(rest)
	switch {
	case ok && ev.Has(fsnotify.Create):
		if c := t.tree.cells[scope]; c != nil {
			if r := c.residency(epoch); r != nil && r.live {
				t.tree.addPending(scope, r, txid)
				return
			}
		}
	case ok, ev.Op == fsnotify.Chmod, ev.Op == fsnotify.Write, strings.HasSuffix(rest, tmpSuffix):
		return // a file that is gone has its name until it is exported
	}
	if _, err := t.tree.scanCell(scope); err != nil {
		t.tree.stats.LastError = err.Error()
	}
}
