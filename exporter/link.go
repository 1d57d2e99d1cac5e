package exporter

import (
	"celldexport/envelope"
	"celldexport/internal/ledger"
	"celldexport/sinks/delivery"
)

// entries writes spool entries that are no unit.
type entries struct {
	*kit
	journal *journal
}

// spoolLink writes the record that begins a residency, at (epoch, start, 0).
// It carries the time and the name of the unit that follows it: it has no
// commit of its own.
func (en *entries) spoolLink(s *stream, pin ledger.Epoch, committedAt int64, name *string) error {
	env := en.envelope(s, name, committedAt, envelope.Position{Epoch: pin.Epoch, TXID: pin.StartTXID})
	body := envelope.Link{StartTXID: pin.StartTXID, PrevEpoch: pin.PrevEpoch, PrevTXID: pin.PrevTXID, Mode: envelope.Mode(pin.Mode)}
	seq, err := en.spoolRecords(s, env, &body)
	if err != nil {
		return err
	}
	s.doc.Residency.Linked = true
	en.journal.spooled(s, seq, 0)
	return nil
}

// spoolRecords writes an entry that is no unit: one position, no pages.
func (en *entries) spoolRecords(s *stream, env envelope.Envelope, bodies ...envelope.Body) (uint64, error) {
	w, err := en.spool.Begin(en.entry(s, env, delivery.FormRecords))
	if err != nil {
		return 0, stateFailed(err)
	}
	for _, b := range bodies {
		enc, err := envelope.Encode(&envelope.Record{Envelope: env, Body: b})
		if err != nil {
			return 0, stateFailed(err)
		}
		if err := w.Record(&enc); err != nil {
			return 0, stateFailed(err)
		}
	}
	seq, err := w.Commit()
	return seq, stateFailed(err)
}

// spoolMark writes an entry without records.
func (en *entries) spoolMark(s *stream, form delivery.Form) error {
	r := s.doc.Residency
	env := en.envelope(s, s.doc.CellName, s.doc.CommittedAt, envelope.Position{Epoch: r.Epoch, TXID: r.Spooled, Commit: r.Spooled})
	w, err := en.spool.Begin(en.entry(s, env, form))
	if err != nil {
		return stateFailed(err)
	}
	seq, err := w.Commit()
	if err != nil {
		return stateFailed(err)
	}
	en.journal.spooled(s, seq, 0)
	return nil
}

// entry is the spool's description of records at one position.
func (en *entries) entry(s *stream, env envelope.Envelope, form delivery.Form) delivery.Unit {
	return delivery.Unit{
		Form: form, Stream: env.Stream, CellName: env.CellName, CommittedAt: env.CommittedAt, Node: env.Node,
		Scope: s.doc.Scope, Position: env.Position, MinTXID: env.Position.TXID, MaxTXID: env.Position.TXID,
		Uncertified: s.doc.Residency.Uncertified,
	}
}
