package exporter

import (
	"time"
)

// idleAfter is how long the shadow of a stream stays open without a unit.
const idleAfter = time.Minute

// idlers are the streams that rest: everything else of them is on disk.
type idlers struct {
	by     map[string]idler
	states map[State]int
	// uncertified are those whose epoch cannot be certified any more.
	uncertified map[string]struct{}
}

// idler is what must not be lost of a stream that rests.
type idler struct {
	status Status
	whole  bool
}

func newIdlers() idlers {
	return idlers{by: make(map[string]idler), states: make(map[State]int), uncertified: make(map[string]struct{})}
}

func (il *idlers) put(scope string, s *stream) {
	il.by[scope] = idler{status: s.status, whole: s.whole}
	il.states[s.status.State]++
	if s.doc.Residency.Uncertified {
		il.uncertified[scope] = struct{}{}
	}
}

// wake gives a stream that was loaded again what was kept of it.
func (il *idlers) wake(scope string, s *stream) bool {
	was, ok := il.by[scope]
	if !ok {
		return false
	}
	s.status, s.whole = was.status, was.whole
	il.states[was.status.State]--
	delete(il.by, scope)
	delete(il.uncertified, scope)
	return true
}

// retire lets go of streams with nothing left to do: a node holds many more
// cells than change in a minute. Their document, shadow and owner map are on
// disk, their ledger and plan are made again with the next unit.
func (rd *rounds) retire() {
	now := rd.now()
	for scope, s := range rd.streams {
		if !rd.rests(s) || s.shadow != nil && now.Sub(s.used) < idleAfter {
			continue
		}
		rd.shadows.dropBase(s)
		delete(rd.streams, scope)
		rd.idle.put(scope, s)
	}
}

// rests reports whether everything of a stream is done and on disk, and
// nothing is known of it that its document does not hold.
func (rd *rounds) rests(s *stream) bool {
	_, waits := rd.agenda.waiting[s.doc.Scope]
	_, behind := rd.journal.batch.streams[s]
	return s.status.settled() && s.turn == nil && !waits && !behind && len(s.skip) == 0 && s.unclosed == 0
}
