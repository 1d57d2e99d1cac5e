package rowset

import (
	"slices"

	"celldexport/diffpage/schema"
	"celldexport/envelope"
)

// writer puts the records of one unit or re-base together.
type writer struct {
	plan *Plan
	env  envelope.Envelope
	id   string
	// shown is the origin of snapshots.
	shown  envelope.Origin
	out    func(*envelope.Encoded) error
	stats  Stats
	tables []*collected
	listed []envelope.TableGeneration
	*Scratch
}

func (p *Plan) newWriter(env envelope.Envelope, id string, out func(*envelope.Encoded) error) *writer {
	w := &writer{plan: p, env: env, id: id, out: out, shown: envelope.Snapshot}
	w.env.Fragment, w.env.Fragments, w.env.Origin = 1, 1, envelope.Live
	if w.Scratch = p.opt.Scratch; w.Scratch == nil {
		w.Scratch = new(Scratch)
	}
	w.prepare(&p.opt)
	return w
}

// close frees temporary files.
func (w *writer) close(err *error) {
	if e := w.rest(); *err == nil {
		*err = e
	}
}

// collector prepares for the rows of a table.
func (w *writer) collector(t *tablePlan, before, after schema.Encoding, oversize bool) *collector {
	out := &collected{tablePlan: t, kind: envelope.KindRows}
	env := w.env
	if t.show {
		out.kind, env.Origin = envelope.KindSnapshot, w.shown
	}
	head := envelope.RowsHead{
		Kind: out.kind, SnapshotID: w.id, Table: t.Table, Generation: t.Generation,
		Columns: t.shape.columns, KeyColumns: t.shape.keys,
	}
	out.rows = envelope.NewSplitter(env, head, w.plan.opt.MaxRecordBytes,
		envelope.SplitOptions{Oversize: oversize, Buffer: w.rows.region()})
	w.enc.shape, w.enc.opt = t.shape, &w.plan.opt
	return &collector{encoder: &w.enc, out: out, sort: &w.sort, before: before, after: after}
}

// rebase emits the snapshot of one table of a re-base.
func (w *writer) rebase(t *tablePlan, enc schema.Encoding, img Image) error {
	shown := *t
	shown.show = true
	c := w.collector(&shown, enc, enc, true)
	if err := c.all(img); err != nil {
		return err
	}
	w.stats.NullKeys += c.out.n.nullKeys
	if c.out.bulk != "" {
		w.stats.Incomplete = append(w.stats.Incomplete, t.TableGeneration)
		w.because(t, c.out.bulk)
	} else if err := w.finish(c.out); err != nil {
		return err
	}
	return w.rows.reset()
}

// skip notes a table that has no rows; say wants it known when that is because
// its definition cannot be read.
func (w *writer) skip(t *tablePlan, say bool) {
	if say && !t.shape.virtual {
		w.because(t, t.shape.reason)
	}
	w.tables = append(w.tables, &collected{tablePlan: t})
}

func (w *writer) because(t *tablePlan, reason string) {
	w.stats.Reasons = append(w.stats.Reasons, Reason{t.TableGeneration, reason})
}

// unit emits what was collected.
func (w *writer) unit(closed []closedPlan, described map[envelope.TableGeneration]bool) error {
	for _, c := range closed {
		if err := w.dropped(c, envelope.Live); err != nil {
			return err
		}
	}
	for _, opened := range [...]bool{true, false} {
		for _, c := range w.tables {
			if c.opened != opened || !c.describes(described) {
				continue
			}
			if err := w.schema(c.tablePlan, c.schemaOrigin()); err != nil {
				return err
			}
		}
	}
	for _, kind := range [...]envelope.Kind{envelope.KindSnapshot, envelope.KindRows} {
		for _, c := range w.tables {
			if c.kind != kind || c.bulk != "" || kind == envelope.KindRows && c.n.rows() == 0 {
				continue
			}
			if err := w.finish(c); err != nil {
				return err
			}
		}
		if kind == envelope.KindSnapshot && len(w.listed) > 0 {
			if err := w.end(envelope.ScopeTables); err != nil {
				return err
			}
		}
	}
	return w.bulk()
}

// describes says whether the unit has a schema record for the table.
func (c *collected) describes(described map[envelope.TableGeneration]bool) bool {
	switch {
	case c.opened:
		return true
	case c.shape.form == formNone:
		return false
	case c.show:
		return true
	}
	return !described[c.TableGeneration] && (c.bulk != "" || c.n.rows() > 0)
}

// schemaOrigin is that of the snapshot which the record goes with, if any.
func (c *collected) schemaOrigin() envelope.Origin {
	if c.kind == envelope.KindSnapshot && c.bulk == "" {
		return envelope.Snapshot
	}
	return envelope.Live
}

// bulk names the generations whose changes could not be shown.
func (w *writer) bulk() error {
	for _, c := range w.tables {
		w.stats.NullKeys += c.n.nullKeys
		if c.bulk != "" {
			w.stats.Bulk = append(w.stats.Bulk, c.TableGeneration)
			w.because(c.tablePlan, c.bulk)
		}
	}
	if len(w.stats.Bulk) == 0 {
		return nil
	}
	return w.emit(envelope.Live, &envelope.Bulk{Tables: slices.Clone(w.stats.Bulk)})
}

// finish emits the rows of a table, unless one of them fits no record.
func (w *writer) finish(c *collected) error {
	split, err := c.rows.Finish(w.send)
	if err != nil {
		return err
	}
	if split.Bulk {
		c.bulk = "a row does not fit a record"
		return nil
	}
	w.stats.Oversized += split.OversizedRows
	if c.kind == envelope.KindSnapshot {
		w.stats.Snapshot += c.n.inserts
		w.listed = append(w.listed, c.TableGeneration)
		return nil
	}
	w.stats.Inserts += c.n.inserts
	w.stats.Updates += c.n.updates
	w.stats.Deletes += c.n.deletes
	return nil
}

// end closes the snapshot of the tables that were listed.
func (w *writer) end(scope envelope.Scope) error {
	return w.emit(w.shown, &envelope.SnapshotEnd{
		SnapshotID: w.id, Scope: scope, Tables: w.listed, Records: uint64(len(w.listed)),
	})
}

// schema describes a generation.
func (w *writer) schema(t *tablePlan, origin envelope.Origin) error {
	w.stats.Described = append(w.stats.Described, t.TableGeneration)
	body := &envelope.Schema{
		TableGeneration: t.TableGeneration, SQL: t.sql, Columns: t.shape.defs,
		Unsupported: t.shape.form == formNone,
	}
	if t.renamedFrom != "" {
		body.RenamedFrom = &t.renamedFrom
	}
	return w.emit(origin, body)
}

// dropped ends a generation.
func (w *writer) dropped(c closedPlan, origin envelope.Origin) error {
	return w.emit(origin, &envelope.Schema{
		TableGeneration: c.TableGeneration, SQL: c.sql, Dropped: true, Unsupported: c.virtual,
	})
}

// emit sends a record that is never split.
func (w *writer) emit(origin envelope.Origin, body envelope.Body) error {
	env := w.env
	env.Origin = origin
	e, err := envelope.Encode(&envelope.Record{Envelope: env, Body: body})
	if err != nil {
		return err
	}
	return w.send(&e)
}

// send counts a record and hands it out.
func (w *writer) send(e *envelope.Encoded) error {
	if e.Fragment == 1 {
		w.stats.Records++
	}
	return w.out(e)
}
