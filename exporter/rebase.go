package exporter

import (
	"context"
	"errors"
	"fmt"

	"celldexport/envelope"
	"celldexport/envelope/rowset"
	"celldexport/exporter/state"
	"celldexport/internal/chain"
	"celldexport/internal/ledger"
	"celldexport/ltxtail/proof"
	"celldexport/sinks/delivery"
)

// resume takes up an epoch that the ledger holds already. When our own start
// of it was cut short and its base is still there, it goes on; an epoch that
// another state directory began (ours was lost) is a re-base, and gets no
// watermark any more: what was sent before cannot be counted.
func (bs *bases) resume(ctx context.Context, s *stream, v view, led *ledger.Stream, pin ledger.Epoch, res proof.Result) error {
	if pin.Writer == bs.ledgers.writer() && len(res.Units) > 0 && res.Units[0].Min <= pin.StartTXID && pin.StartTXID == v.target.After+1 {
		sh := s.doc.Shadow
		b := basis{kind: keep, pin: &pin}
		if pin.Mode == string(envelope.ModeFresh) && sh.Epoch == 0 && sh.File != "" && bs.shadows.hasShadow(sh.File) {
			return bs.start(ctx, s, v, led, b, res)
		}
		if pin.PrevEpoch != nil && pin.PrevTXID != nil && sh.Epoch == *pin.PrevEpoch && sh.TXID == *pin.PrevTXID && bs.shadows.hasShadow(sh.File) {
			return bs.start(ctx, s, v, led, b, res)
		}
	}
	return bs.rebase(ctx, s, v, led, &pin)
}

// rebase makes the proven state of the bucket the shadow and sends it as a
// snapshot of the whole stream: continuity with what the consumer holds
// cannot be shown. pin is the ledger's entry when the epoch has one.
func (bs *bases) rebase(ctx context.Context, s *stream, v view, led *ledger.Stream, pin *ledger.Epoch) error {
	if err := bs.entries.room(); err != nil {
		return err
	}
	files, head, err := bs.provenHead(ctx, s, v)
	if err != nil {
		return err
	}
	if r := s.doc.Residency; r.Epoch == v.disk.Epoch && head < r.Spooled {
		return waiting(StatePending, "the listing of %s e%d ends at txid %d, while %d is exported: it lags", s.doc.Scope, r.Epoch, head, r.Spooled)
	}
	if v.paged() {
		if err := (origins{bs.kit}).skipsBelow(ctx, s, v.disk.Epoch, files); err != nil {
			return err
		}
	}
	plan, err := chain.Plan(files, v.disk.Epoch, head)
	if err != nil {
		return fmt.Errorf("re-base %s e%d: %w", s.doc.Scope, v.disk.Epoch, err)
	}
	return bs.rebaseTo(ctx, s, v.disk.Epoch, led, pin, shown{files: files, plan: plan, head: head})
}

// shown is what a re-base shows: the state at a proven txid, the objects that
// it is made from, and everything that was listed.
type shown struct {
	files, plan []chain.File
	head        uint64
}

// rebaseTo is rebase to a given state.
func (bs *bases) rebaseTo(ctx context.Context, s *stream, epoch uint64, led *ledger.Stream, pin *ledger.Epoch, to shown) error {
	files, head := to.files, to.head
	r := state.Residency{Spooled: head}
	at := envelope.Position{Epoch: epoch, TXID: head, Commit: head}
	if pin != nil {
		ours := pin.Writer == bs.ledgers.writer()
		r.Linked = !ours || s.doc.Residency.Epoch == epoch && s.doc.Residency.Linked
		r.Uncertified = !ours || s.doc.Residency.Epoch == epoch && s.doc.Residency.Uncertified
	}
	name := shadowName(s.doc.Scope, at)
	if err := bs.journal.releaseBase(ctx, s); err != nil {
		return err
	}
	info, err := bs.restore(ctx, s, name, to.plan)
	if err != nil {
		return err
	}
	base, err := bs.shadows.openShadow(state.Shadow{File: name})
	if err != nil {
		return err
	}
	defer base.close()
	id, err := bs.identify(ctx, s, led, rowset.ImageOf(base.base), ledger.Mark{Epoch: epoch, TXID: head})
	if err != nil {
		return err
	}
	first := pin == nil
	if first {
		prevEpoch, prevTXID := lowerHead(files, epoch).numbers()
		pin = &ledger.Epoch{Epoch: epoch, StartTXID: head, Mode: string(envelope.ModeClone), PrevEpoch: prevEpoch, PrevTXID: prevTXID, Writer: bs.ledgers.writer()}
	}
	if err := bs.enter(ctx, s, id, pinning{epoch: *pin, known: led != nil}, r); err != nil {
		return err
	}
	if !first {
		at.Commit = s.recordPosition()
	}
	bs.log.Info("re-base: the whole state goes out as a snapshot", "cell", s.doc.Scope, "epoch", epoch, "txid", head, "certifiable", !r.Uncertified)
	sh := state.Shadow{File: name, PageSize: info.PageSize, Commit: info.Commit, Epoch: epoch, TXID: head}
	return bs.spoolSnapshot(ctx, s, *pin, at, info.Timestamp, sh, base)
}

// provenHead lists the cell, then reads own.json: the highest position that
// the listing covers is proven if the cell is still ours.
func (bs *bases) provenHead(ctx context.Context, s *stream, v view) ([]chain.File, uint64, error) {
	files, err := chain.List(ctx, bs.fleet, s.doc.Scope)
	if err != nil {
		return nil, 0, err
	}
	own, verdict, err := bs.prover.ReadOwn(ctx, s.scope.Cell, v.disk.Epoch)
	if err != nil {
		return nil, 0, err
	}
	if !verdict.Proves() {
		return nil, 0, verdictError(s, v, proof.Result{Verdict: verdict, Own: own})
	}
	var inEpoch []chain.File
	for _, f := range files {
		if f.Epoch == v.disk.Epoch {
			inEpoch = append(inEpoch, f)
		}
	}
	cuts := chain.Extend(inEpoch, v.target.After)
	if len(cuts) == 0 {
		return nil, 0, waiting(StatePending, "e%d of %s has no contiguous objects in the bucket yet", v.disk.Epoch, s.doc.Scope)
	}
	return files, cuts[len(cuts)-1], nil
}

// lowerHead is the head, as listed, of the newest epoch below epoch that has
// objects; nil when there is none.
func lowerHead(files []chain.File, epoch uint64) *position {
	var lower []chain.File
	for _, f := range files {
		if f.Epoch < epoch {
			lower = append(lower, f)
		}
	}
	head, ok := chain.Derive(lower)
	if !ok {
		return nil
	}
	return &position{head.Epoch, head.TXID}
}

// recordPosition is the commit number of the next records that are no unit.
func (s *stream) recordPosition() uint64 {
	r := &s.doc.Residency
	n := s.doc.Life<<32 + r.Next
	r.Next++
	return r.Spooled + 1 + n
}

// planSnapshot decides the generations that a snapshot of base shows, and
// enters them in the ledger.
func (us *units) planSnapshot(ctx context.Context, s *stream, at envelope.Position, base *openShadow) (*rowset.Plan, error) {
	led, err := us.ledgers.ledgerOf(ctx, s)
	if err != nil {
		return nil, err
	}
	// The snapshot replaces whatever the consumer holds, so every generation
	// before it counts as carried; those that this very re-base entered
	// before a crash are decided anew.
	mark, before := ledger.Mark{Epoch: at.Epoch, TXID: at.TXID}, ledger.Mark{Epoch: at.Epoch, TXID: at.TXID - 1}
	// Our own spool does not tell which ends of tables were carried: a unit of
	// another exporter, on whose close we went on, may have been lost with its
	// state.
	opts := us.rowOptions(s)
	opts.RepeatEnds = true
	plan, err := rowset.NewPlan(base.base.Schema(), nil, led.Tables, mark, before, opts)
	if err != nil {
		return nil, err
	}
	return plan, us.enterPlan(ctx, s, plan)
}

// spoolSnapshot sends the state of base as a snapshot, after the link when
// the epoch has none yet, and makes it the stream's shadow.
func (bs *bases) spoolSnapshot(ctx context.Context, s *stream, pin ledger.Epoch, at envelope.Position, committedAt int64, sh state.Shadow, base *openShadow) error {
	img := rowset.ImageOf(base.base)
	name, _, err := rowset.Metadata(img, s.doc.Scope)
	if err != nil {
		return fmt.Errorf("read the cell's name: %w", err)
	}
	plan, err := bs.units.planSnapshot(ctx, s, at, base)
	if err != nil {
		return err
	}
	if !s.doc.Residency.Linked {
		if err := bs.entries.spoolLink(s, pin, committedAt, name); err != nil {
			return err
		}
	}
	if err := bs.at(StepSnapshot); err != nil {
		return err
	}
	env := bs.entries.envelope(s, name, committedAt, at)
	unit := bs.entries.entry(s, env, delivery.FormRecords)
	unit.PageSize, unit.Commit = sh.PageSize, sh.Commit
	w, err := bs.spool.Begin(unit)
	if err != nil {
		return stateFailed(err)
	}
	stats, err := plan.Snapshot(env, img, rowset.SnapshotID("base", env, 0), w.Record)
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	seq, err := w.Commit()
	if err != nil {
		return stateFailed(err)
	}
	bs.units.accepted(s, plan, stats)
	bs.metrics.rebases.Inc()
	s.doc.CellName, s.doc.CommittedAt = name, committedAt
	s.doc.Residency.Based = true
	bs.journal.replaceShadow(s, sh)
	bs.journal.spooled(s, seq, 0)
	bs.tail.Advance(s.doc.Scope, at.Epoch, at.TXID)
	if len(stats.Incomplete) == 0 {
		return nil
	}
	env.Position.Commit = s.recordPosition()
	seq, err = bs.entries.spoolRecords(s, env, &envelope.Bulk{Tables: stats.Incomplete})
	if err != nil {
		return cutShort(err)
	}
	bs.journal.spooled(s, seq, 0)
	return nil
}
