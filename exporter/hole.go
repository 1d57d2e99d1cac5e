package exporter

import (
	"fmt"
	"math"

	"celldexport/envelope"
)

// reportHole says in one gap that transactions are on neither the node's disk
// nor in the bucket while later ones are: bytes that are truly gone. It waits
// until looking again has become rare, so that a bucket that lists late is
// not taken for one that lost something. The stream goes on waiting: nothing
// above a hole is proven, and the next residency's image holds what it left. Of
// an epoch that is closed nothing is said any more.
func (rs *residencies) reportHole(s *stream, v view, next uint64) error {
	r := &s.doc.Residency
	first := r.Spooled + 1
	if v.enters || !r.Based || r.Closed || s.wait.step < maxBackoff || r.Hole == first {
		return nil
	}
	env := rs.entries.envelope(s, s.doc.CellName, s.doc.CommittedAt, envelope.Position{Epoch: r.Epoch, TXID: r.Spooled, Commit: s.recordPosition()})
	seq, err := rs.entries.spoolRecords(s, env, &envelope.Gap{
		From:   envelope.Position{Epoch: r.Epoch, TXID: r.Spooled, Commit: r.Spooled},
		To:     envelope.Position{Epoch: r.Epoch, TXID: next - 1, Commit: math.MaxUint64},
		Reason: fmt.Sprintf("txids %d to %d are on neither the node's disk nor in the bucket", first, next-1),
	})
	if err != nil {
		return err
	}
	r.Hole = first
	rs.journal.spooled(s, seq, 0)
	rs.metrics.outgoing.gaps.Inc()
	rs.log.Warn("transactions are gone", "cell", s.doc.Scope, "epoch", r.Epoch, "first", first, "last", next-1)
	return nil
}
