package exporter

import (
	"context"
	"errors"
	"fmt"

	"celldexport/envelope"
	"celldexport/envelope/rowset"
	"celldexport/exporter/state"
	"celldexport/sinks/delivery"
)

// catchUps send a sink the streams that it lacks: it was added to a state
// that has a history, or was detached for a time. Each goes out as a snapshot
// of the whole stream for that sink alone, at the speed of its
// acknowledgements, and never takes the room that changes need. Streams whose
// residency is over wait for the next one.
type catchUps struct {
	*kit
	delivery *delivery.Engine
	rounds   *rounds
	bases    *bases
	// after is the scope that the pass over open residencies is at; found
	// says that something of the pass was behind, clean that a whole pass
	// found nothing.
	after string
	found bool
	clean bool
}

const (
	// rebasesUnderWay bounds the snapshots on their way to one sink.
	rebasesUnderWay = 4
	// residenciesLooked bounds how many a round looks at.
	residenciesLooked = 500
)

// round spools some snapshots for sinks that lag.
func (cu *catchUps) round(ctx context.Context) error {
	lagging, err := cu.delivery.Lagging()
	if err != nil {
		return stateFailed(err)
	}
	if len(lagging) == 0 {
		cu.after, cu.found, cu.clean = "", false, true
		return nil
	}
	if cu.after == "" {
		cu.found, cu.clean = false, false
	}
	for _, underWay := range lagging {
		cu.found = cu.found || underWay > 0
	}
	if used, _ := cu.spool.Usage(); used >= cu.settings.Export.SpoolBytes/2 {
		cu.clean = false
		return nil
	}
	return cu.pass(ctx, lagging)
}

// lacking is pending once a round has looked.
func (cu *catchUps) lacking() bool {
	cu.rounds.turns.mu.Lock()
	defer cu.rounds.turns.mu.Unlock()
	return cu.rounds.agenda.n > 0 && cu.pending()
}

// pending reports whether open streams may wait to be sent to a sink.
func (cu *catchUps) pending() bool { return !cu.clean }

// pass goes on with the pass over the open residencies.
func (cu *catchUps) pass(ctx context.Context, lagging map[string]int) error {
	looked := 0
	for r, err := range cu.dir.Residencies(ctx, cu.after) {
		if err != nil {
			return stateFailed(err)
		}
		if looked++; looked > residenciesLooked || ctx.Err() != nil {
			return cu.rounds.journal.commit(ctx)
		}
		if waits, err := cu.look(ctx, r, lagging); err != nil || waits {
			return errors.Join(err, cu.rounds.journal.commit(ctx))
		}
		cu.after = r.Scope
		if err := cu.rounds.journal.commitIfLarge(ctx); err != nil {
			return err
		}
	}
	cu.clean = !cu.found
	cu.after, cu.found = "", false
	return cu.rounds.journal.commit(ctx)
}

// look sends one stream to the sinks that lack it. waits is true when a sink
// has as many on their way as it may.
func (cu *catchUps) look(ctx context.Context, r state.Residing, lagging map[string]int) (waits bool, err error) {
	for sink := range lagging {
		behind, err := cu.delivery.Behind(sink, r.ID)
		if err != nil {
			return false, stateFailed(err)
		}
		if !behind {
			continue
		}
		cu.found, cu.clean = true, false
		if lagging[sink] >= rebasesUnderWay {
			return true, nil
		}
		sent, err := cu.give(ctx, r, sink)
		if err != nil {
			return false, err
		}
		if sent {
			lagging[sink]++
		}
	}
	return false, nil
}

// give sends a stream in a turn of its own. It reports whether it was sent, and
// returns only failures of our own state; what was left behind is seen to be
// under way in a later round.
func (cu *catchUps) give(ctx context.Context, r state.Residing, sink string) (bool, error) {
	s, err := cu.rounds.stream(ctx, r.Scope)
	if err != nil {
		return false, stateFailed(err)
	}
	if s == nil || s.turn != nil {
		return false, nil
	}
	var sent bool
	done, err := cu.rounds.turns.give(ctx, s, func(ctx context.Context) (err error) {
		sent, err = cu.send(ctx, s, r, sink)
		var own *stateError
		if err == nil || errors.As(err, &own) {
			return cu.rounds.journal.fail(err)
		}
		cu.log.Warn("a stream cannot be sent to a sink that lacks it yet", "cell", r.Scope, "sink", sink, "err", err)
		return nil
	})
	return done && sent, err
}

// send spools the stream's state for one sink. It reports false when the
// residency is not one that goes on.
func (cu *catchUps) send(ctx context.Context, s *stream, r state.Residing, sink string) (bool, error) {
	res := s.doc.Residency
	if s.doc.ID != r.ID || res.Closed || !res.Based || !res.Linked {
		return false, nil
	}
	if err := cu.rounds.journal.openBase(s); err != nil {
		return false, err
	}
	plan, err := cu.plan(ctx, s)
	if err != nil {
		return false, err
	}
	if s.turn != nil {
		// Others may have been sent since: it is looked at again.
		if room, err := cu.room(sink); err != nil || !room {
			return false, err
		}
	}
	return true, cu.spoolFor(s, sink, plan)
}

// room reports whether a sink may be sent one more stream.
func (cu *catchUps) room(sink string) (bool, error) {
	lagging, err := cu.delivery.Lagging()
	if err != nil {
		return false, stateFailed(err)
	}
	underWay, lags := lagging[sink]
	used, _ := cu.spool.Usage()
	return lags && underWay < rebasesUnderWay && used < cu.settings.Export.SpoolBytes/2, nil
}

// plan is that of the state as it is: no generation opens or closes.
func (cu *catchUps) plan(ctx context.Context, s *stream) (*rowset.Plan, error) {
	led, err := cu.bases.ledgers.ledgerOf(ctx, s)
	if err != nil {
		return nil, err
	}
	mark := s.spooledMark()
	sc := s.base.Schema()
	opts := cu.bases.units.rowOptions(s)
	opts.RepeatEnds = true // the sink may have passed over some
	plan, err := rowset.NewPlan(sc, sc, led.Tables, mark, mark, opts)
	if err != nil {
		return nil, err
	}
	if plan.Changed() {
		return nil, errors.New("its next unit opens or closes table generations: it is sent after that")
	}
	return plan, nil
}

// spoolFor writes the snapshot at the next position that is no unit.
func (cu *catchUps) spoolFor(s *stream, sink string, plan *rowset.Plan) error {
	at := envelope.Position{Epoch: s.doc.Residency.Epoch, TXID: s.doc.Residency.Spooled, Commit: s.recordPosition()}
	env := cu.bases.entries.envelope(s, s.doc.CellName, s.doc.CommittedAt, at)
	unit := cu.bases.entries.entry(s, env, delivery.FormRecords)
	unit.Sink = sink
	w, err := cu.spool.Begin(unit)
	if err != nil {
		return stateFailed(err)
	}
	stats, err := plan.Snapshot(env, rowset.ImageOf(s.base), rowset.SnapshotID("base", env, 0), w.Record)
	if err != nil {
		return errors.Join(fmt.Errorf("encode the state: %w", err), w.Abort())
	}
	seq, err := w.Commit()
	if err != nil {
		return stateFailed(err)
	}
	cu.rounds.journal.spooled(s, seq, 0)
	cu.delivery.Rebasing(sink, env.Stream, seq)
	cu.metrics.outgoing.rebases.WithLabelValues(sink).Inc()
	cu.log.Info("a stream goes out whole to a sink that lacked it", "cell", s.doc.Scope, "sink", sink, "epoch", at.Epoch, "txid", at.TXID)
	if len(stats.Incomplete) == 0 {
		return nil
	}
	env.Position.Commit = s.recordPosition()
	return cutShort(cu.bulk(s, env, sink, stats.Incomplete))
}

// bulk names, in that sink only, the tables that the snapshot could not show.
func (cu *catchUps) bulk(s *stream, env envelope.Envelope, sink string, tables []envelope.TableGeneration) error {
	enc, err := envelope.Encode(&envelope.Record{Envelope: env, Body: &envelope.Bulk{Tables: tables}})
	if err != nil {
		return stateFailed(err)
	}
	unit := cu.bases.entries.entry(s, env, delivery.FormRecords)
	unit.Sink = sink
	w, err := cu.spool.Begin(unit)
	if err != nil {
		return stateFailed(err)
	}
	if err := w.Record(&enc); err != nil {
		return stateFailed(err)
	}
	seq, err := w.Commit()
	if err != nil {
		return stateFailed(err)
	}
	cu.rounds.journal.spooled(s, seq, 0)
	return nil
}
