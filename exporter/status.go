package exporter

import (
	"slices"
	"strings"
	"time"

	"celldexport/ltxtail"
	"celldexport/sinks/delivery"
)

// Summary is the exporter's account of itself, as in /state.
type Summary struct {
	Rounds uint64 `json:"rounds"`
	// DeliveryFailed says that the state directory failed and export
	// stopped, whoever writes or reads it; Failure says how, FailedSince
	// since when.
	DeliveryFailed bool      `json:"delivery_failed"`
	Failure        string    `json:"failure,omitempty"`
	FailedSince    time.Time `json:"failed_since,omitzero"`
	// RoundError is what kept the last round from its work, RoundErrorSince
	// when the first of the rounds that failed in a row did.
	RoundError      string        `json:"round_error,omitempty"`
	RoundErrorSince time.Time     `json:"round_error_since,omitzero"`
	Watch           ltxtail.Stats `json:"watch"`
	Spool           SpoolStatus   `json:"spool"`
	// Streams counts streams by state, Trouble lists those that do not go
	// on, the longest first, at most maxTrouble. Those that wait for the next
	// activation of their cell come last: they are many, and nothing is wrong.
	Streams map[State]int  `json:"streams"`
	Trouble []StreamStatus `json:"trouble,omitempty"`
	// Oldest is, for each state of those that do not go on, since when the
	// longest is in it, without those that wait for an activation.
	Oldest map[State]time.Time `json:"oldest,omitempty"`
	// Uncertified are streams whose epoch cannot be certified any more; the
	// next activation of the cell certifies again.
	Uncertified []string `json:"uncertified,omitempty"`
	// Sinks are how far each sink is; SinkError is what kept us from knowing.
	Sinks     []delivery.SinkStatus `json:"sinks"`
	SinkError string                `json:"sink_error,omitempty"`
	// Removed are sinks that the settings no longer name and for which
	// entries are kept.
	Removed []delivery.RemovedSink `json:"removed_sinks,omitempty"`
}

// SpoolStatus is the fill of the spool.
type SpoolStatus struct {
	Bytes   int64  `json:"bytes"`
	Limit   int64  `json:"limit"`
	Entries int    `json:"entries"`
	Last    uint64 `json:"last"`
	Applied uint64 `json:"applied"`
}

// StreamStatus is one stream in trouble.
type StreamStatus struct {
	Cell   string `json:"cell"`
	Epoch  uint64 `json:"epoch"`
	TXID   uint64 `json:"txid"`
	Status Status `json:"status"`
	left   bool
}

// trouble is the stream in the summary.
func (s *stream) trouble() StreamStatus {
	r := s.doc.Residency
	return StreamStatus{Cell: s.doc.Scope, Epoch: max(r.Epoch, s.left), TXID: r.Spooled, Status: s.account(), left: s.left != 0}
}

// maxTrouble bounds the streams listed in Status.
const maxTrouble = 100

// publish files the state of the rounds for other goroutines.
func (e *Exporter) publish(roundErr error) {
	e.rounds.turns.mu.Lock()
	defer e.rounds.turns.mu.Unlock()
	sum := Summary{Rounds: e.rounds.agenda.n, Watch: e.tail.Stats(), Streams: make(map[State]int), Oldest: make(map[State]time.Time)}
	if roundErr != nil {
		sum.RoundError = roundErr.Error()
	}
	sum.Spool.Bytes, sum.Spool.Entries = e.spool.Usage()
	sum.Spool.Limit, sum.Spool.Last, sum.Spool.Applied = e.settings.Export.SpoolBytes, e.spool.Last(), e.spool.Applied()
	for st, n := range e.rounds.idle.states {
		sum.Streams[st] += n
	}
	for scope := range e.rounds.idle.uncertified {
		sum.Uncertified = append(sum.Uncertified, scope)
	}
	for scope, s := range e.rounds.streams {
		st := s.account()
		sum.Streams[st.State]++
		if !st.settled() {
			sum.Trouble = append(sum.Trouble, s.trouble())
			if t := sum.Oldest[st.State]; s.left == 0 && (t.IsZero() || st.Since.Before(t)) {
				sum.Oldest[st.State] = st.Since
			}
		}
		if s.doc.Residency.Uncertified {
			sum.Uncertified = append(sum.Uncertified, scope)
		}
	}
	slices.SortFunc(sum.Trouble, func(a, b StreamStatus) int {
		if a.left != b.left {
			if a.left {
				return 1
			}
			return -1
		}
		if c := a.Status.Since.Compare(b.Status.Since); c != 0 {
			return c
		}
		return strings.Compare(a.Cell, b.Cell)
	})
	sum.Trouble = sum.Trouble[:min(len(sum.Trouble), maxTrouble)]
	slices.Sort(sum.Uncertified)
	sum.Uncertified = sum.Uncertified[:min(len(sum.Uncertified), maxTrouble)]
	e.metrics.observe(&sum)
	better, worse := e.report.file(sum, e.now())
	switch {
	case better && e.report.failed() == "":
		e.log.Info("rounds go through again")
	case worse && e.report.failed() == "":
		e.log.Error("no stream goes on: the round failed, and is tried again", "err", roundErr)
	}
}

// Status is the account of the last round. It may be called from any
// goroutine.
func (e *Exporter) Status() Summary {
	e.report.mu.Lock()
	sum, failed := e.report.status, e.report.failure
	e.report.mu.Unlock()
	sum.DeliveryFailed, sum.Failure, sum.FailedSince = failed.text != "", failed.text, failed.since
	sinks, err := e.delivery.Status()
	if err != nil {
		sum.SinkError = err.Error()
	}
	sum.Sinks, sum.Removed = sinks, e.delivery.Removed()
	return sum
}

// Unready is why the export does not do its work, "" when it does: the
// directory was not walked or no round went through yet, the state directory
// fails, or rounds have failed for a minute and for more than a few in a row.
func (e *Exporter) Unready() string { return e.report.unready(e.now(), max(time.Minute, 3*e.every)) }

// Ticked is when a round last ended or something moved inside one: a stream
// was done, bytes of a file or object came in, pages were written.
func (e *Exporter) Ticked() time.Time { return later(e.report.ages().ticked, e.pulse.last()) }
