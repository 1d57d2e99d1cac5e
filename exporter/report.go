package exporter

import (
	"sync"
	"time"
)

// report is what other goroutines may see of the rounds. Nothing is called
// while its lock is held.
type report struct {
	mu      sync.Mutex
	ready   bool
	ticked  time.Time
	status  Summary
	failure failure
}

// failure is why the export stopped and since when; it is never taken back.
type failure struct {
	text  string
	since time.Time
}

// fail notes that the state directory failed. It reports whether that is news.
func (r *report) fail(err error, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure.text != "" {
		return false
	}
	r.failure = failure{err.Error(), now}
	return true
}

// failed reports why the state directory failed, "" while it did not.
func (r *report) failed() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure.text
}

// unready is why the export is not ready, "" when it is.
func (r *report) unready() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.failure.text != "":
		return "the state directory fails: " + r.failure.text
	case !r.ready:
		return "the first scan is not done or the bucket has not answered"
	}
	return ""
}
