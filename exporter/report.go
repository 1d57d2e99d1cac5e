package exporter

import (
	"fmt"
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

// unready is why the export is not ready, "" when it is. Rounds that fail for
// no longer than patience do not count.
func (r *report) unready(now time.Time, patience time.Duration) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := r.status.RoundErrorSince
	switch {
	case r.failure.text != "":
		return "the state directory fails: " + r.failure.text
	case r.status.Watch.RootError != "":
		return r.status.Watch.RootError
	case !r.ready:
		return "the first scan is not done or the bucket has not answered"
	case !since.IsZero() && now.Sub(since) > patience:
		return fmt.Sprintf("no round has gone through for %v: %s", now.Sub(since).Round(time.Second), r.status.RoundError)
	}
	return ""
}

// file takes up the account of a round. It reports whether the round went
// through after one that did not, and whether it did not for another reason
// than the one before.
func (r *report) file(sum Summary, now time.Time) (better, worse bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.status
	better, worse = sum.RoundError == "" && was.RoundError != "", sum.RoundError != "" && sum.RoundError != was.RoundError
	if sum.RoundError != "" {
		sum.RoundErrorSince = was.RoundErrorSince
		if was.RoundErrorSince.IsZero() {
			sum.RoundErrorSince = now
		}
	}
	r.status, r.ticked = sum, now
	r.ready = r.ready || sum.Watch.Scans > 0 && sum.RoundError == "" && sum.Rounds > 0
	return better, worse
}

// ages is since when things do not go on; times are zero while they do.
type ages struct {
	failed, round, ticked time.Time
	streams               map[State]time.Time
}

func (r *report) ages() ages {
	r.mu.Lock()
	defer r.mu.Unlock()
	return ages{failed: r.failure.since, round: r.status.RoundErrorSince, ticked: r.ticked, streams: r.status.Oldest}
}
