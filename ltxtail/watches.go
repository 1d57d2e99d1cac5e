package ltxtail

import (
	"errors"
	"io/fs"
	"log/slog"
)

// watches are the directories that a watcher reports on. Without a watcher
// nothing is watched. Their owner's lock guards them.
type watches struct {
	log     *slog.Logger
	watcher Watcher
	watched map[string]struct{}
	// errors counts directories that could not be watched.
	errors int
}

// add watches dir if it is not watched. It is called before dir is read, so
// that whatever appears in between is seen twice rather than never.
func (w *watches) add(dir string) {
	if w.watcher == nil {
		return
	}
	if _, ok := w.watched[dir]; ok {
		return
	}
	if err := w.watcher.Add(dir); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			w.note(err, true)
		}
		return
	}
	w.watched[dir] = struct{}{}
}

// covers reports whether dir is watched, or nothing is.
func (w *watches) covers(dir string) bool {
	if w.watcher == nil {
		return true
	}
	_, ok := w.watched[dir]
	return ok
}

// polling reports whether something is not watched.
func (w *watches) polling() bool { return w.watcher == nil || w.errors > 0 }

func (w *watches) remove(dir string) {
	if _, ok := w.watched[dir]; ok {
		delete(w.watched, dir)
		if w.watcher != nil {
			_ = w.watcher.Remove(dir) // a removed directory has no watch left
		}
	}
}

// note takes an error, counts it when it leaves something unwatched, and says
// once which kernel limits are the usual cause.
func (w *watches) note(err error, counts bool) {
	if w.errors == 0 {
		w.log.Warn("watching is incomplete, directories are walked instead; see fs.inotify.max_user_watches and max_queued_events", "err", err)
	}
	if counts {
		w.errors++
	}
}
