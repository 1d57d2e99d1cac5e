package exporter

import (
	"context"
	"errors"
	"fmt"

	"celldexport/envelope"
	"celldexport/internal/celld"
	"celldexport/sinks/delivery"
)

// refusals tell the readers of a sink what its place refused for good: one
// gap for each epoch of a stream, for that sink only. Until it is
// acknowledged there, the sink gets no watermark of that epoch.
type refusals struct {
	*kit
	delivery *delivery.Engine
	rounds   *rounds
	journal  *journal
}

// report spools the gaps that are due.
func (rf *refusals) report(ctx context.Context) error {
	list, err := rf.delivery.Refusals()
	if err != nil {
		return stateFailed(err)
	}
	if len(list) == 0 {
		return nil
	}
	told, err := rf.tell(ctx, list)
	var own *stateError
	if err = stateFailed(err); errors.As(err, &own) {
		return err
	}
	// What was told before another error came between is not told again.
	if err := rf.journal.commit(ctx); err != nil {
		return err
	}
	for _, r := range told {
		rf.delivery.Reported(r)
	}
	return err
}

// tell spools gaps until one cannot be, and returns which were.
func (rf *refusals) tell(ctx context.Context, list []delivery.Refusal) (told []delivery.Refusal, err error) {
	for _, r := range list {
		s, err := rf.known(ctx, r.Scope)
		if err != nil {
			return told, err
		}
		if s == nil {
			rf.log.Error("records of a stream were refused that the state database does not know", "cell", r.Scope, "sink", r.Sink)
			continue
		}
		if s.turn != nil {
			continue // the next position may be taken; it is told later
		}
		if err := rf.spoolGap(s, r); err != nil {
			return told, err
		}
		told = append(told, r)
	}
	return told, nil
}

// known is a stream of which something was delivered; its class need not be
// exported any more. It is nil when there is no such stream.
func (rf *refusals) known(ctx context.Context, scope string) (*stream, error) {
	if s := rf.rounds.streams[scope]; s != nil {
		return s, nil
	}
	sc, err := celld.ParseScope(scope)
	if err != nil {
		return nil, err
	}
	for s := range rf.journal.batch.streams {
		if s.doc.Scope == scope {
			return s, nil
		}
	}
	doc, err := rf.dir.Load(ctx, scope)
	if err != nil || doc == nil {
		return nil, err
	}
	if rf.rounds.exports(sc.Class()) {
		return rf.rounds.stream(ctx, scope)
	}
	return newStream(sc, doc), nil
}

// spoolGap spools the gap of one refusal. In the stream's own epoch it takes
// the next position that is no unit; an older epoch is closed, so nothing
// else comes behind its last position.
func (rf *refusals) spoolGap(s *stream, r delivery.Refusal) error {
	at := r.Last
	at.Commit++
	uncertified := false
	if s.doc.ID == r.Stream && s.doc.Residency.Epoch == r.Epoch {
		at.TXID, at.Commit = s.doc.Residency.Spooled, s.recordPosition()
		uncertified = s.doc.Residency.Uncertified
	}
	env := envelope.Envelope{
		Stream: r.Stream, CellName: r.CellName, Position: at, CommittedAt: r.CommittedAt, Node: r.Node,
		Origin: envelope.Live, Fragment: 1, Fragments: 1,
	}
	enc, err := envelope.Encode(&envelope.Record{Envelope: env, Body: &envelope.Gap{From: r.From, To: r.To, Reason: r.Reason}})
	if err != nil {
		return err
	}
	w, err := rf.spool.Begin(delivery.Unit{
		Form: delivery.FormRecords, Stream: r.Stream, CellName: r.CellName, CommittedAt: r.CommittedAt, Node: r.Node,
		Scope: r.Scope, Position: at, MinTXID: at.TXID, MaxTXID: at.TXID, Sink: r.Sink, Uncertified: uncertified,
	})
	if err != nil {
		return err
	}
	if err := w.Record(&enc); err != nil {
		return err
	}
	seq, err := w.Commit()
	if err != nil {
		return err
	}
	rf.journal.spooled(s, seq, 0)
	rf.metrics.outgoing.gaps.Inc()
	rf.log.Error("a sink's place refused records for good: a gap tells its readers", "sink", r.Sink, "cell", r.Scope,
		"epoch", r.Epoch, "records", r.Records, "through", r.To.String(), "reason", r.Reason)
	return nil
}

// round reports what was refused, works on the cells, and then sends sinks the
// streams that they lack.
func (e *Exporter) round(ctx context.Context) error {
	e.rounds.turns.mu.Lock()
	defer e.rounds.turns.mu.Unlock()
	if err := e.refusals.report(ctx); err != nil {
		return err
	}
	if err := e.rounds.round(ctx); err != nil {
		return err
	}
	return e.catchUps.round(ctx)
}

// mostTellings bounds how often deliver begins anew: a place may refuse more
// each time.
const mostTellings = 3

// deliver sends what is in the spool, and tells in the same go what is
// refused on the way. What a place refuses of that, too, is left to later.
func (e *Exporter) deliver(ctx context.Context) error {
	var untold delivery.Untold
	due := 0
	for range mostTellings {
		if err := e.delivery.Flush(ctx); err != nil {
			return err
		}
		list, err := e.delivery.Refusals()
		if err != nil {
			return err
		}
		due, untold = len(list), e.delivery.Untold()
		if due == 0 && untold == (delivery.Untold{}) {
			return nil
		}
		if due == 0 && untold.Watermarks == 0 {
			break // a gap waits until its place may take it
		}
		if err := e.refusals.tellNow(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("a sink's place refuses also what tells of refused records: the gaps of %d epochs, the watermarks of %d; %d more gaps were due", untold.Gaps, untold.Watermarks, due)
}

// tellNow spools what is to be told, durably.
func (rf *refusals) tellNow(ctx context.Context) error {
	rf.rounds.turns.mu.Lock()
	defer rf.rounds.turns.mu.Unlock()
	if err := rf.report(ctx); err != nil {
		return err
	}
	return rf.journal.checkpoint(ctx)
}
