package exporter

import (
	"slices"
	"time"

	"celldexport/envelope"
	"celldexport/envelope/rowset"
	"celldexport/exporter/state"
	"celldexport/internal/celld"
	"celldexport/internal/ledger"
	"celldexport/ltxtail"
	"celldexport/ltxtail/proof"
)

// stream is one stream while it is worked on. Its document moves ahead of the
// state database by at most one batch; a restart brings it back from the
// spool.
type stream struct {
	scope celld.Scope
	doc   *state.Stream
	// led is the stream's entry in the ledger as last read or written.
	led *ledger.Stream
	// openShadow is the shadow with its owner map, opened when needed, used
	// when that was last.
	openShadow
	used time.Time
	// plan is that of the last unit; while the schema stays it goes on.
	plan      *rowset.Plan
	described map[envelope.TableGeneration]bool
	status    Status
	wait      backoff
	// served is the round in which something of it was spooled last.
	served uint64
	// skip holds broken objects, unclosed the rounds in which a predecessor
	// was seen without its close.
	skip     map[proof.ObjectID]struct{}
	unclosed int
	// whole asks for a listing in the next round: at start, and after an
	// error that a probe cannot get around.
	whole bool
	// left is the epoch that is left to an exporter before us, 0 for none.
	left uint64
	// origin is where the files of an epoch begin.
	origin origin
	// turn is set while the stream was left behind: nothing but its own worker
	// touches it then.
	turn *turn
}

func newStream(scope celld.Scope, doc *state.Stream) *stream {
	if doc == nil {
		doc = &state.Stream{Scope: scope.String()}
	}
	s := &stream{scope: scope, doc: doc, whole: true, skip: make(map[proof.ObjectID]struct{})}
	s.described = make(map[envelope.TableGeneration]bool, len(doc.Described))
	for _, tg := range doc.Described {
		s.described[tg] = true
	}
	return s
}

// describe notes generations whose schema record is in the spool.
func (s *stream) describe(list []envelope.TableGeneration) {
	for _, tg := range list {
		if !s.described[tg] {
			s.described[tg] = true
			s.doc.Described = append(s.doc.Described, tg)
		}
	}
}

// enter starts a residency in the document: what was said of the epoch before
// does not hold for this one.
func (s *stream) enter(r state.Residency) {
	s.doc.Residency = r
	s.doc.Described = nil
	clear(s.described)
	s.plan = nil
	clear(s.skip)
	s.unclosed = 0
}

// spooledMark is the last position of the stream that a spool took: that of
// the shadow, which every unit moves.
func (s *stream) spooledMark() ledger.Mark {
	return ledger.Mark{Epoch: s.doc.Shadow.Epoch, TXID: s.doc.Shadow.TXID}
}

// view is what a round knows of a cell before it asks the bucket.
type view struct {
	disk ltxtail.Residency
	// enters says that the epoch is above the stream's: a residency begins.
	enters bool
	// left says that it is left to an exporter before us.
	left   bool
	target proof.Target
}

// paged reports whether the residency continues its predecessor's numbers
// from a marker instead of beginning with an image of its own.
func (v view) paged() bool { return v.enters && v.target.After > 0 }

// look decides which residency of a cell the round is about: the newest on
// disk, or the stream's own when the disk shows none that is as new.
func (s *stream) look(rs []ltxtail.Residency) (view, bool) {
	own := s.doc.Residency
	v := view{disk: ltxtail.Residency{Epoch: own.Epoch}}
	if n := len(rs); n > 0 && rs[n-1].Epoch >= own.Epoch {
		v.disk = rs[n-1]
	}
	if v.disk.Epoch == 0 {
		return v, false
	}
	v.enters = v.disk.Epoch > own.Epoch || !own.Based && !own.Closed
	v.target = proof.Target{
		Scope: s.scope.String(), Root: s.scope.Cell, Epoch: v.disk.Epoch,
		Skip: s.skip, Whole: s.whole || !v.disk.Live, Ask: s.wait.step > 0,
	}
	if v.enters {
		// A paged residency starts above txid 1, at its marker: what lies
		// below is the predecessor's. Whether it is one, the evidence says
		// before it begins.
		switch {
		case s.origin.epoch == v.disk.Epoch:
			v.target.After = s.origin.after
		case len(v.disk.Files) > 0 && v.disk.Files[0].TXID > 1:
			v.target.After = v.disk.Files[0].TXID - 1
		}
		// Whether the residency before is over is for own.json to say, also
		// when nothing of this one is captured.
		v.target.Ask = v.target.Ask || v.disk.Epoch > own.Epoch && own.Epoch > 0 && !own.Closed
		v.target.Local = v.disk.Files
		return v, true
	}
	v.target.After = own.Spooled
	i := slices.IndexFunc(v.disk.Files, func(f ltxtail.File) bool { return f.TXID > own.Spooled })
	if i >= 0 {
		v.target.Local = v.disk.Files[i:]
	}
	if own.Closed && len(v.target.Local) == 0 {
		return v, false
	}
	return v, len(v.target.Local) > 0 || v.target.Whole
}

// backoff spaces the rounds in which a stream that does not move is asked
// about: after 1, 2, 4 ... 60 rounds.
type backoff struct {
	due  uint64
	step uint64
}

const maxBackoff = 60

func (b *backoff) again(round uint64) {
	b.step = min(max(1, 2*b.step), maxBackoff)
	b.due = round + b.step
}

func (b *backoff) reset() { *b = backoff{} }

// State is what a stream is doing.
type State string

// The states of a stream.
const (
	// StateExported: everything pending is spooled.
	StateExported State = "exported"
	// StatePending: the bucket does not cover what is pending yet.
	StatePending State = "pending"
	// StateWaiting: something outside of the stream's data is missing; the reason
	// says what.
	StateWaiting State = "waiting"
	// StateFenced: another owner has the cell; the residency is closed.
	StateFenced State = "fenced"
	// StateEnded: the residency is over and closed.
	StateEnded State = "ended"
	// StateFull: the spool has no room; reading stops until sinks catch up.
	StateFull State = "full"
	// StateFailed: a file, object or page is broken; the reason names it.
	StateFailed State = "failed"
)

// Status is a stream's state with its reason and age.
type Status struct {
	State  State     `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

// set moves the status; its age starts anew only when the state changes.
func (s *Status) set(now time.Time, st State, reason string) {
	if s.State != st {
		s.Since = now
	}
	s.State, s.Reason = st, reason
}

// settled reports whether nothing more is to be done for the stream until
// its directory changes.
func (s Status) settled() bool {
	return s.State == StateExported || s.State == StateFenced || s.State == StateEnded
}
