package exporter

import (
	"context"
	"errors"
	"fmt"

	"celldexport/internal/ledger"
	"celldexport/ltxtail/proof"
	"celldexport/sinks/delivery"
)

// advance moves one stream through one round: ends the residency before,
// begins the new one, exports what is proven, and closes when it is over.
func (e *Exporter) advance(ctx context.Context, s *stream, v view, res proof.Result) error {
	if v.enters {
		if v.disk.Epoch > s.doc.Residency.Epoch {
			if err := e.endPrevious(ctx, s); err != nil {
				return err
			}
		}
		if !res.Verdict.Proves() || len(res.Units) == 0 {
			return e.undecided(ctx, s, v, res)
		}
		if err := e.begin(ctx, s, v, res); err != nil {
			return err
		}
	} else if len(res.Units) > 0 && res.Verdict.Proves() {
		if err := e.reopen(ctx, s); err != nil {
			return err
		}
	}
	if res.Verdict.Proves() {
		if err := e.export(ctx, s, res.Units); err != nil {
			return err
		}
	}
	return e.settle(ctx, s, v, res)
}

// undecided notes why a residency cannot begin yet.
func (e *Exporter) undecided(ctx context.Context, s *stream, v view, res proof.Result) error {
	switch res.Verdict {
	case proof.Fenced:
		// Nothing of the epoch was spooled and nothing ever will be.
		if s.doc.Residency.Epoch == v.disk.Epoch {
			if err := e.close(ctx, s); err != nil {
				return err
			}
		}
		s.status.set(e.now(), StateFenced, fmt.Sprintf("e%d is over before anything of it was proven; own.json shows e%d", v.disk.Epoch, res.Own.Epoch))
		e.tail.Advance(s.doc.Scope, v.disk.Epoch, lastTXID(v))
		e.park(s)
		return nil
	case proof.Owned, proof.Released, proof.Unasked:
		e.pending(s, v)
		return nil
	}
	return verdictError(s, v, res)
}

// pending notes that the bucket does not cover what waits.
func (e *Exporter) pending(s *stream, v view) {
	if len(v.target.Local) == 0 {
		e.rest(s)
		return
	}
	s.status.set(e.now(), StatePending, fmt.Sprintf("e%d: txid %d is not covered by the bucket yet", v.disk.Epoch, v.target.Local[0].TXID))
	e.later(s)
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
func (e *Exporter) settle(ctx context.Context, s *stream, v view, res proof.Result) error {
	r := &s.doc.Residency
	s.whole = false
	rest := v.target.Local
	for len(rest) > 0 && rest[0].TXID <= r.Spooled {
		rest = rest[1:]
	}
	switch {
	case res.Verdict == proof.Fenced || res.Verdict == proof.Released && len(res.Units) == 0:
		if err := e.close(ctx, s); err != nil {
			return err
		}
		e.over(s, v, res)
	case !res.Verdict.Proves() && res.Verdict != proof.Unasked:
		return verdictError(s, v, res)
	case len(res.Units) > 0 && (len(rest) > 0 || !v.disk.Live || res.Verdict == proof.Released):
		// There may be more to prove at once.
		s.whole = !v.disk.Live
		s.wait.reset()
		s.wait.due = e.rounds.n + 1
		e.waiting[s.doc.Scope] = s
		s.status.set(e.now(), StatePending, "more is pending than one round takes")
	case !v.disk.Live:
		if err := e.close(ctx, s); err != nil {
			return err
		}
		e.over(s, v, res)
	case len(rest) > 0:
		e.pending(s, view{disk: v.disk, target: proof.Target{Local: rest}})
	default:
		s.status.set(e.now(), StateExported, "")
		e.rest(s)
	}
	return nil
}

// over notes the end of a residency.
func (e *Exporter) over(s *stream, v view, res proof.Result) {
	r := s.doc.Residency
	if res.Verdict == proof.Fenced {
		s.status.set(e.now(), StateFenced, fmt.Sprintf("own.json shows e%d", res.Own.Epoch))
	} else {
		s.status.set(e.now(), StateEnded, fmt.Sprintf("e%d closed at txid %d", r.Epoch, r.Spooled))
	}
	e.tail.Advance(s.doc.Scope, r.Epoch, max(r.Spooled, lastTXID(v)))
	e.park(s)
}

// park takes a stream that is over off the rounds. It stays known until its
// directory changes.
func (e *Exporter) park(s *stream) {
	s.wait.reset()
	delete(e.waiting, s.doc.Scope)
}

func lastTXID(v view) uint64 {
	if n := len(v.disk.Files); n > 0 {
		return v.disk.Files[n-1].TXID
	}
	return 0
}

// endPrevious closes the residency before the one that begins. Its own.json
// has moved on, so nothing more of it can be proven; what was not spooled
// goes out with the image of the next one.
func (e *Exporter) endPrevious(ctx context.Context, s *stream) error {
	r := s.doc.Residency
	if r.Epoch == 0 || r.Closed {
		return nil
	}
	return e.close(ctx, s)
}

// close says in the ledger, once, that nothing more of the epoch will be
// spooled, and has the sinks certify what was. A higher epoch that is pinned
// already forbids the entry; the residency is over all the same.
func (e *Exporter) close(ctx context.Context, s *stream) error {
	r := &s.doc.Residency
	if r.Closed {
		return nil
	}
	if r.Pinned {
		doc, err := e.updateLedger(ctx, s, func(l *ledger.Stream) error {
			return l.Close(r.Epoch, r.End(), e.writer())
		})
		switch {
		case errors.Is(err, ledger.ErrFenced):
			e.log.Info("residency closed after a higher epoch was pinned", "cell", s.doc.Scope, "epoch", r.Epoch)
		case err != nil:
			return waiting(StateWaiting, "close e%d of %s in the ledger: %w", r.Epoch, s.doc.Scope, err)
		default:
			s.led = doc
		}
	}
	r.Closed = true
	if r.Linked {
		return e.spoolMark(s, delivery.FormClose)
	}
	e.touch(s)
	return nil
}

// reopen withdraws a close: the eviction was abandoned and the cell goes on
// in the same epoch.
func (e *Exporter) reopen(ctx context.Context, s *stream) error {
	r := &s.doc.Residency
	if !r.Closed {
		return nil
	}
	doc, err := e.updateLedger(ctx, s, func(l *ledger.Stream) error {
		return l.Withdraw(r.Epoch, e.writer())
	})
	if err != nil {
		return waiting(StateWaiting, "reopen e%d of %s in the ledger: %w", r.Epoch, s.doc.Scope, err)
	}
	s.led = doc
	r.Closed = false
	e.touch(s)
	return nil
}
