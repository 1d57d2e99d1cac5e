package ltxtail

import (
	"errors"
	"io/fs"
	"log/slog"
	"sync"
)

// watches are the directories that a watcher reports on. Without a watcher
// nothing is watched.
//
// The watcher is called without the lock, by one goroutine at a time: what is
// watched is then what the last call about a directory said.
type watches struct {
	log *slog.Logger

	// mu guards what follows. It may be taken with the lock of the Tail held.
	mu      sync.Mutex
	watcher Watcher
	watched map[string]struct{}
	// unwanted are directories that the watcher is still to be rid of.
	unwanted []string
	// calling says that a call of the watcher is under way, adding is the
	// directory that it is to watch, "" when that is gone by now.
	calling bool
	adding  string
	// errors counts directories that could not be watched; missed says that
	// one is not because the watcher does not answer.
	errors int
	missed bool
}

// add watches dir if it is not watched, and is rid of what is unwanted first:
// that may be an older directory of this name.
func (w *watches) add(dir string) {
	if err := w.tryAdd(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.note(err, true)
	}
}

func (w *watches) tryAdd(dir string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop()
	if _, ok := w.watched[dir]; ok || w.watcher == nil {
		return nil
	}
	if w.calling {
		w.missed = true
		return nil
	}
	watcher := w.watcher
	w.calling, w.adding = true, dir
	w.mu.Unlock()
	err := watcher.Add(dir)
	w.mu.Lock()
	if err == nil && w.adding == dir && w.watcher == watcher {
		w.watched[dir] = struct{}{}
	}
	w.calling, w.adding = false, ""
	return err
}

// flush ends the watches that are unwanted.
func (w *watches) flush() {
	w.mu.Lock()
	w.drop()
	w.mu.Unlock()
}

// drop is flush with the lock held, which it gives up around calls. While the
// watcher does not answer nothing is dropped, nor added.
func (w *watches) drop() {
	for len(w.unwanted) > 0 && !w.calling && w.watcher != nil {
		last := len(w.unwanted) - 1
		dir, watcher := w.unwanted[last], w.watcher
		w.unwanted = w.unwanted[:last]
		w.calling = true
		w.mu.Unlock()
		_ = watcher.Remove(dir) // a removed directory has no watch left
		w.mu.Lock()
		w.calling = false
	}
}

// covers reports whether dir is watched, or nothing is.
func (w *watches) covers(dir string) bool {
	w.mu.Lock()
	ok := w.watcher == nil
	if !ok {
		_, ok = w.watched[dir]
	}
	w.mu.Unlock()
	return ok
}

// polling reports whether something is not watched.
func (w *watches) polling() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watcher == nil || w.errors > 0 || w.missed
}

// counts returns the number of watched directories, and of those that could
// not be watched.
func (w *watches) counts() (watched, failed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watched), w.errors
}

// remove gives up the watch of dir. It calls nothing.
func (w *watches) remove(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.watched[dir]; ok {
		delete(w.watched, dir)
		w.unwanted = append(w.unwanted, dir)
	}
}

// forget takes an event that says that a directory and its watch are gone.
func (w *watches) forget(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watched, dir)
	if w.adding == dir {
		w.adding = ""
	}
}

// miss notes that the watcher does not answer: whatever happens, no event may
// tell of it.
func (w *watches) miss() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missed = true
}

// hope has the next walk find out whether something is missed.
func (w *watches) hope() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missed = w.calling
}

// use begins with a watcher, nil to end with the one there was, which it
// returns, and whether a call of it is under way.
func (w *watches) use(watcher Watcher) (before Watcher, calling bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, calling = w.watcher, w.calling
	w.watcher, w.unwanted, w.adding = watcher, nil, ""
	clear(w.watched)
	return before, calling
}

// note takes an error, counts it when it leaves something unwatched, and says
// once which kernel limits are the usual cause.
func (w *watches) note(err error, counts bool) {
	w.mu.Lock()
	first := w.errors == 0
	if counts {
		w.errors++
	}
	w.mu.Unlock()
	if first {
		w.log.Warn("watching is incomplete, directories are walked instead; see fs.inotify.max_user_watches and max_queued_events", "err", err)
	}
}
