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
// happens to the watcher ends it, polling takes over. A directory that does
// not answer is left behind with its goroutine, which ends when it does; only
// while the root does not, or too many others, Run waits for them to return.
func (t *Tail) Run(ctx context.Context) error {
	watcher := t.startWatcher()
	defer t.stopWatcher()
	defer t.rest()
	var events <-chan fsnotify.Event
	var failures <-chan error
	if watcher != nil {
		events, failures = watcher.Events(), watcher.Errors()
	}
	walks := walks{tail: t, ended: make(chan time.Duration, 1), every: t.interval(), timer: time.NewTimer(time.Hour)}
	defer walks.timer.Stop()
	walks.begin(ctx)
	for {
		select {
		case <-ctx.Done():
			walks.wait()
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
			t.lost(err)
			walks.begin(ctx)
		case took := <-walks.ended:
			walks.end(ctx, took)
		case <-walks.timer.C:
			walks.begin(ctx)
		case <-t.readers.changed:
		}
		walks.adjust()
	}
}

// walks are those that Run makes, one after the other.
type walks struct {
	tail *Tail
	// under says that one is under way, again that the next is due at its end.
	under, again bool
	// ended brings how long one took.
	ended chan time.Duration
	// timer is when the next one begins, every the time between two.
	timer *time.Timer
	every time.Duration
	// said is the last error that was logged.
	said string
}

// begin walks the directory, once more if it is being walked.
func (w *walks) begin(ctx context.Context) {
	if w.under {
		w.again = true
		return
	}
	w.under, w.again = true, false
	go func() { w.ended <- w.walk(ctx) }()
}

// walk walks the directory and says how long it took.
func (w *walks) walk(ctx context.Context) time.Duration {
	t := w.tail
	began := t.cfg.Now()
	switch err := t.scan(ctx); {
	case err == nil:
		w.said = ""
	case ctx.Err() == nil && err.Error() != w.said:
		w.said = err.Error()
		t.cfg.Log.Warn("walk of the watch directory", "err", err)
	}
	return t.cfg.Now().Sub(began)
}

func (w *walks) end(ctx context.Context, took time.Duration) {
	w.under = false
	if w.again {
		w.begin(ctx)
		return
	}
	w.timer.Reset(pause(w.every, took, w.every < w.tail.cfg.Rescan))
}

// adjust has the next walk come sooner when watching became incomplete.
func (w *walks) adjust() {
	if now := w.tail.interval(); now != w.every {
		w.every = now
		if !w.under {
			w.timer.Reset(now)
		}
	}
}

func (w *walks) wait() {
	if w.under {
		<-w.ended
	}
}

// rest waits until nothing is read any more, but for what was left behind and
// what somebody else's walk reads.
func (t *Tail) rest() {
	for {
		t.mu.Lock()
		r := t.readers.current
		walked := t.readers.walk != nil
		t.mu.Unlock()
		if r == nil || walked {
			return
		}
		<-r.over
	}
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

// startWatcher returns nil when directories cannot be watched.
func (t *Tail) startWatcher() Watcher {
	if t.cfg.Watch == nil {
		return nil
	}
	w, err := t.cfg.Watch()
	if err != nil {
		// EMFILE means the limit of inotify instances (128 by default) that
		// all processes of this user share.
		t.cfg.Log.Warn("directories cannot be watched, polling instead; see fs.inotify.max_user_instances", "err", err, "poll", t.cfg.Poll)
		return nil
	}
	t.watches.use(w)
	return w
}

// stopWatcher ends watching. A watcher that hangs in a call may not close
// before that comes back.
func (t *Tail) stopWatcher() {
	w, calling := t.watches.use(nil)
	switch {
	case w == nil:
	case calling:
		go func() { _ = w.Close() }()
	default:
		_ = w.Close() // the descriptors are gone either way
	}
}

// interval is how long a change that no event reports may wait.
func (t *Tail) interval() time.Duration {
	if t.watches.polling() {
		return t.cfg.Poll
	}
	return t.cfg.Rescan
}

// lost takes an error of the watcher: events are missing, so everything is to
// be read again.
func (t *Tail) lost(err error) {
	t.watches.note(err, !errors.Is(err, fsnotify.ErrEventOverflow))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tree.lost++
}

// handle takes one event: a file renamed into an LTX directory becomes
// pending at once, any other change below a cell has the cell read again.
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
		t.watches.forget(ev.Name)
	}
	epoch, txid, ok := parseRest(rest)
	switch {
	case ok && ev.Has(fsnotify.Create):
		if c := t.tree.cells[scope]; c != nil {
			if r := c.residency(epoch); r != nil && r.live {
				t.tree.addPending(scope, r, txid)
				t.readers.named(scope)
				return
			}
		}
	case ok, ev.Op == fsnotify.Chmod, ev.Op == fsnotify.Write, strings.HasSuffix(rest, tmpSuffix):
		return // a file that is gone has its name until it is exported
	}
	t.readers.enqueue(scope)
}
