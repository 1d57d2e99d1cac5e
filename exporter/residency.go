package exporter

import (
	"context"
	"errors"
	"fmt"

	"celldexport/internal/ledger"
	"celldexport/ltxtail/proof"
	"celldexport/sinks/delivery"
)

// residencies takes streams through their lives on this node.
type residencies struct {
	*kit
	units   *units
	bases   *bases
	closes  *closes
	agenda  *agenda
	entries *entries
	journal *journal
	before  *before
}

// closes ends residencies in the ledger and in the spool, and takes it back.
type closes struct {
	*kit
	ledgers *ledgers
	journal *journal
	entries *entries
}

// advance moves one stream through one round: ends the residency before,
// begins the new one, exports what is proven, and closes when it is over.
func (rs *residencies) advance(ctx context.Context, s *stream, v view, res proof.Result) error {
	if s.doc.Bound() {
		if err := rs.bases.scripts.holds(ctx, s.scope, s.doc.ID.Script); err != nil {
			return err
		}
	}
	if v.enters {
		if v.disk.Epoch > s.doc.Residency.Epoch && movedOn(res.Verdict) {
			if err := rs.endPrevious(ctx, s); err != nil {
				return err
			}
		}
		if !res.Verdict.Proves() || len(res.Units) == 0 {
			return rs.undecided(ctx, s, v, res)
		}
		if begun, err := rs.bases.begin(ctx, s, v, res); err != nil || !begun {
			return err
		}
	} else if len(res.Units) > 0 && res.Verdict.Proves() {
		if s.doc.Residency.Closed && res.Verdict == proof.Released {
			// Closed and given up: what came since is its successor's.
			rs.over(s, v, res)
			return nil
		}
		if err := rs.closes.reopen(ctx, s); err != nil {
			return err
		}
	}
	ended := s.doc.Residency.Closed && res.Verdict == proof.Released
	if res.Verdict.Proves() && !ended && len(res.Units) == 0 && len(s.skip) > 0 && v.disk.Live {
		return rs.getOver(ctx, s, v)
	}
	if res.Verdict.Proves() {
		if err := rs.units.export(ctx, s, res.Units); err != nil {
			return err
		}
	}
	return rs.settle(ctx, s, v, res)
}

// getOver tries to go on after an object that is broken. Until that works the
// stream's state keeps naming it.
func (rs *residencies) getOver(ctx context.Context, s *stream, v view) error {
	leaped, err := rs.bases.leap(ctx, s, v)
	if err != nil {
		return err
	}
	if leaped {
		s.whole = true
		s.wait.reset()
		s.status.set(rs.now(), StatePending, "re-based on a full image above a broken file")
	}
	rs.agenda.later(s)
	return nil
}

// undecided notes why a residency cannot begin yet.
func (rs *residencies) undecided(ctx context.Context, s *stream, v view, res proof.Result) error {
	switch res.Verdict {
	case proof.Fenced:
		// Nothing of the epoch was spooled and nothing ever will be.
		if s.doc.Residency.Epoch == v.disk.Epoch {
			if err := rs.closes.close(ctx, s); err != nil {
				return err
			}
		}
		s.status.set(rs.now(), StateFenced, fmt.Sprintf("e%d is over before anything of it was proven; own.json shows e%d", v.disk.Epoch, res.Own.Epoch))
		rs.tail.Advance(s.doc.Scope, v.disk.Epoch, lastTXID(v))
		rs.agenda.park(s)
		return nil
	case proof.Owned, proof.Released, proof.Unasked:
		if v.left {
			rs.before.pass(s, v)
			return nil
		}
		return rs.pending(s, v)
	}
	return verdictError(s, v, res)
}

// pending notes that the bucket does not cover what waits.
func (rs *residencies) pending(s *stream, v view) error {
	if len(v.target.Local) == 0 {
		rs.agenda.rest(s)
		return nil
	}
	next := v.target.Local[0].TXID
	reason := fmt.Sprintf("e%d: txid %d is not covered by the bucket yet", v.disk.Epoch, next)
	switch hole := v.target.After + 1; {
	case next == hole+1:
		reason = fmt.Sprintf("e%d: txid %d is neither on the node's disk nor in the bucket, and txid %d waits for it", v.disk.Epoch, hole, next)
	case next > hole:
		reason = fmt.Sprintf("e%d: txids %d to %d are neither on the node's disk nor in the bucket, and txid %d waits for them", v.disk.Epoch, hole, next-1, next)
	}
	s.status.set(rs.now(), StatePending, reason)
	var err error
	if next > v.target.After+1 {
		err = rs.reportHole(s, v, next)
	}
	rs.agenda.later(s)
	return err
}

func verdictError(s *stream, v view, res proof.Result) error {
	switch res.Verdict {
	case proof.Missing:
		return waiting(StateWaiting, "own.json of %s is missing while e%d is on disk: the cell was deleted, or its owner is recorded elsewhere", s.doc.Scope, v.disk.Epoch)
	case proof.Behind:
		return waiting(StateWaiting, "own.json of %s shows e%d, the disk e%d: nothing is proven until they agree", s.doc.Scope, res.Own.Epoch, v.disk.Epoch)
	default:
		return waiting(StateWaiting, "own.json of %s shows e%d with node %q: another node uses our epoch", s.doc.Scope, res.Own.Epoch, res.Own.Node)
	}
}

// settle decides what follows after the proven units are spooled.
func (rs *residencies) settle(ctx context.Context, s *stream, v view, res proof.Result) error {
	r := &s.doc.Residency
	s.whole = false
	rest := v.target.Local
	for len(rest) > 0 && rest[0].TXID <= r.Spooled {
		rest = rest[1:]
	}
	switch {
	case res.Verdict == proof.Fenced || res.Verdict == proof.Released && len(res.Units) == 0:
		if err := rs.closes.close(ctx, s); err != nil {
			return err
		}
		rs.over(s, v, res)
	case !res.Verdict.Proves() && res.Verdict != proof.Unasked:
		return verdictError(s, v, res)
	case len(res.Units) > 0 && (len(rest) > 0 || !v.disk.Live || res.Verdict == proof.Released):
		// There may be more to prove at once.
		s.whole = !v.disk.Live
		s.wait.reset()
		s.wait.due = rs.agenda.n + 1
		rs.agenda.waiting[s.doc.Scope] = s
		s.status.set(rs.now(), StatePending, "more is pending than one round takes")
	case !v.disk.Live:
		if err := rs.closes.close(ctx, s); err != nil {
			return err
		}
		rs.over(s, v, res)
	case len(rest) > 0:
		return rs.pending(s, view{disk: v.disk, target: proof.Target{After: r.Spooled, Local: rest}})
	default:
		s.status.set(rs.now(), StateExported, "")
		rs.agenda.rest(s)
	}
	return nil
}

// over notes the end of a residency.
func (rs *residencies) over(s *stream, v view, res proof.Result) {
	r := s.doc.Residency
	if res.Verdict == proof.Fenced {
		s.status.set(rs.now(), StateFenced, fmt.Sprintf("own.json shows e%d", res.Own.Epoch))
	} else {
		s.status.set(rs.now(), StateEnded, fmt.Sprintf("e%d closed at txid %d", r.Epoch, r.Spooled))
	}
	rs.tail.Advance(s.doc.Scope, r.Epoch, max(r.Spooled, lastTXID(v)))
	rs.agenda.park(s)
}

// park takes a stream that is over off the rounds. It stays known until its
// directory changes.
func (ag *agenda) park(s *stream) {
	s.wait.reset()
	delete(ag.waiting, s.doc.Scope)
}

func lastTXID(v view) uint64 {
	if n := len(v.disk.Files); n > 0 {
		return v.disk.Files[n-1].TXID
	}
	return 0
}

// movedOn reports whether own.json showed the epoch on disk or a higher one. A
// directory alone shows nothing: celld claims an epoch before it makes its
// directory, but not everything that is named like one was made by celld.
func movedOn(v proof.Verdict) bool {
	return v.Proves() || v == proof.Fenced || v == proof.Foreign
}

// endPrevious closes the residency before the one that begins. Its own.json
// has moved on, so nothing more of it can be proven; what was not spooled
// goes out with the image of the next one.
func (rs *residencies) endPrevious(ctx context.Context, s *stream) error {
	r := s.doc.Residency
	if r.Epoch == 0 || r.Closed {
		return nil
	}
	return rs.closes.close(ctx, s)
}

// close says in the ledger, once, that nothing more of the epoch will be
// spooled, and has the sinks certify what was. A higher epoch that is pinned
// already forbids the entry; the residency is over all the same.
func (cl *closes) close(ctx context.Context, s *stream) error {
	r := &s.doc.Residency
	if r.Closed {
		return nil
	}
	if r.Pinned {
		doc, err := cl.ledgers.updateLedger(ctx, s, func(l *ledger.Stream) error {
			return l.Close(r.Epoch, r.End(), cl.ledgers.writer())
		})
		switch {
		case errors.Is(err, ledger.ErrFenced):
			cl.log.Info("residency closed after a higher epoch was pinned", "cell", s.doc.Scope, "epoch", r.Epoch)
		case err != nil:
			return waiting(StateWaiting, "close e%d of %s in the ledger: %w", r.Epoch, s.doc.Scope, err)
		default:
			s.led = doc
		}
	}
	if r.Linked {
		// An entry that cannot be written now is tried again: until then the
		// residency is not closed.
		if err := cl.entries.spoolMark(s, delivery.FormClose); err != nil {
			return err
		}
	}
	r.Closed = true
	cl.journal.shadows.departed = true
	cl.journal.touch(s)
	return nil
}

// reopen makes sure that the ledger lets more of the epoch be spooled: it
// withdraws the close when the eviction was abandoned and the cell goes on in
// the same epoch. A close that the document does not know of was entered just
// before a crash.
func (cl *closes) reopen(ctx context.Context, s *stream) error {
	r := &s.doc.Residency
	if !r.Closed {
		led, err := cl.ledgers.ledgerOf(ctx, s)
		if err != nil {
			return err
		}
		if pin, ok := led.Epoch(r.Epoch); !ok || pin.Closed == nil {
			return nil
		}
	}
	if err := cl.withdraw(ctx, s, r.Epoch); err != nil {
		return err
	}
	r.Closed = false
	cl.journal.touch(s)
	return nil
}

// withdraw takes the close of an epoch of ours out of the ledger.
func (cl *closes) withdraw(ctx context.Context, s *stream, epoch uint64) error {
	doc, err := cl.ledgers.updateLedger(ctx, s, func(l *ledger.Stream) error {
		return l.Withdraw(epoch, cl.ledgers.writer())
	})
	if err != nil {
		return waiting(StateWaiting, "reopen e%d of %s in the ledger: %w", epoch, s.doc.Scope, err)
	}
	s.led = doc
	return nil
}
