package rowset

import (
	"fmt"

	"celldexport/envelope"
)

// SnapshotID is the id of the n-th snapshot, from 0, that is made of the state
// at an envelope's position: "<prefix>-<committed_at>-<txid>-<n>".
func SnapshotID(prefix string, env envelope.Envelope, n int) string {
	return fmt.Sprintf("%s-%d-%d-%d", prefix, env.CommittedAt, env.Position.TXID, n)
}

// Encode hands out the records of one unit, in the order in which they are
// sent: schema records of generations that close, that open and that are
// described for the first time, the snapshots of those that the consumer does
// not hold and their end, the row changes, and one bulk record for tables
// whose changes cannot be shown.
//
// env carries stream, position, time and node; records of snapshots get the
// origin snapshot, the others live. described says which generations the
// stream's epoch has a schema record of; it is only read, what is new is in
// Stats.Described. What out is given is valid until it returns; its error ends
// the work and is returned.
func (p *Plan) Encode(env envelope.Envelope, src Source, described map[envelope.TableGeneration]bool, out func(*envelope.Encoded) error) (stats Stats, err error) {
	w := p.newWriter(env, SnapshotID("ddl", env, 0), out)
	defer w.close(&err)
	before, after := src.Before().Encoding, src.After().Encoding
	for _, t := range p.tables {
		switch {
		case t.shape.form == formNone:
			w.skip(t, t.opened)
			continue
		case !t.show && !src.Touched(t.stored):
			continue
		}
		c := w.collector(t, before, after, false)
		if t.show {
			err = c.all(src)
		} else {
			err = c.changes(src)
		}
		if err != nil {
			return w.stats, err
		}
		w.tables = append(w.tables, c.out)
	}
	err = w.unit(p.closed, described)
	return w.stats, err
}

// Snapshot hands out a re-base: what closes, then the schema and all rows of
// every exported table, empty ones too, as the stream-scope snapshot called
// id. Its records have the origin snapshot, or repair when env says so. A row
// larger than a record rides alone in a fragment above the limit; tables that
// still cannot be shown are left out and named in Stats.Incomplete.
func (p *Plan) Snapshot(env envelope.Envelope, img Image, id string, out func(*envelope.Encoded) error) (stats Stats, err error) {
	w := p.newWriter(env, id, out)
	defer w.close(&err)
	if env.Origin == envelope.Repair {
		w.shown = envelope.Repair
	}
	for _, c := range p.closed {
		if err := w.dropped(c, w.shown); err != nil {
			return w.stats, err
		}
	}
	for _, t := range p.tables {
		if err := w.schema(t, w.shown); err != nil {
			return w.stats, err
		}
	}
	enc := img.After().Encoding
	for _, t := range p.tables {
		if t.shape.form == formNone {
			w.skip(t, true)
			continue
		}
		if err := w.rebase(t, enc, img); err != nil {
			return w.stats, err
		}
	}
	err = w.end(envelope.ScopeStream)
	return w.stats, err
}
