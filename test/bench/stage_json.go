package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"celldexport/diffpage"
	"celldexport/diffpage/schema"
	"celldexport/diffpage/shadow"
	"celldexport/envelope"
	"celldexport/envelope/rowset"
)

// jsonRows is how many rows one operation of the JSON stage writes.
const jsonRows = 20_000

// jsonStage turns rows of eight mixed columns into records: from values in
// memory, which is the encoder alone, and from the pages of a table.
func jsonStage(ctx context.Context, b *bench) ([]Line, error) {
	base, sh, err := tableBase(ctx, filepath.Join(b.dir, "json.db"), jsonRows)
	if err != nil {
		return nil, err
	}
	defer sh.Close()
	plan, err := goingOn(base)
	if err != nil {
		return nil, err
	}
	rows, err := collect(base)
	if err != nil {
		return nil, err
	}
	image := rowset.ImageOf(base)
	r, err := b.interleave(cpuClock,
		byHand(rows.rows),
		encodeAll(plan, tableSource{Image: image, rows: rows.Rows}),
		encodeAll(plan, tableSource{Image: image, rows: image.Scan}))
	if err != nil {
		return nil, err
	}
	const floor = "hand-written append"
	on := fmt.Sprintf("%d rows of 8 mixed columns", jsonRows)
	line := func(i int, what string) Line {
		l := Line{Stage: "json", What: what, On: on}.took(r[i], jsonRows, "row").rate(jsonRows, "rows/s")
		if i > 0 {
			l = l.versus(floor, r[i].against(r[0]))
		}
		return l
	}
	own := line(1, "values to records")
	return []Line{
		line(0, floor+" to records"),
		own.judged(own.Value >= 1.5e6 && own.Allocs < 0.01, ">= 1.5 M rows/s, 0 allocs/row"),
		line(2, "pages of a table to records"),
	}, nil
}

// tableBase is a database of one table of rows, as a base.
func tableBase(ctx context.Context, path string, rows int) (*diffpage.Base, *shadow.Shadow, error) {
	d, err := openDatabase(path)
	if err != nil {
		return nil, nil, err
	}
	err = d.exec(ctx, eightColumns, fill(rows))
	if err == nil {
		err = d.settle(ctx)
	}
	if err := errors.Join(err, d.close()); err != nil {
		return nil, nil, err
	}
	sh, err := shadow.Open(path)
	if err != nil {
		return nil, nil, err
	}
	base, err := diffpage.NewBase(sh)
	if err != nil {
		return nil, nil, errors.Join(err, sh.Close())
	}
	return base, sh, nil
}

// tableSource is a unit that inserted the rows of the table of every stage.
type tableSource struct {
	rowset.Image
	rows func(string, diffpage.Visitor) error
}

func (t tableSource) Before() *schema.Schema                     { return t.After() }
func (t tableSource) Touched(string) bool                        { return true }
func (t tableSource) Rows(name string, v diffpage.Visitor) error { return t.rows(name, v) }

// encodeAll is a contender: the records of a unit.
func encodeAll(plan *rowset.Plan, src rowset.Source) func() error {
	env := someEnvelope()
	discard := func(*envelope.Encoded) error { return nil }
	return func() error {
		stats, err := plan.Encode(env, src, nil, discard)
		if err == nil && stats.Inserts != jsonRows {
			err = fmt.Errorf("%d rows, not %d", stats.Inserts, jsonRows)
		}
		return err
	}
}

// memoryRow is a decoded row.
type memoryRow []diffpage.Cell

func (r memoryRow) Rowid() int64                      { return r[0].Int }
func (r memoryRow) Cell(i int) (diffpage.Cell, error) { return r[i], nil }

// memoryRows are decoded rows, as diffpage shows them.
type memoryRows struct{ rows []diffpage.Row }

// Rows shows the rows as inserts.
func (m *memoryRows) Rows(_ string, v diffpage.Visitor) error {
	for _, r := range m.rows {
		if err := v(diffpage.Insert, nil, r); err != nil {
			return err
		}
	}
	return nil
}

func collect(base *diffpage.Base) (*memoryRows, error) {
	columns := len(base.Schema().ByName("t").Columns)
	m := new(memoryRows)
	return m, base.Scan("t", func(_ diffpage.Op, _, row diffpage.Row) error {
		r := make(memoryRow, columns)
		for i := range r {
			c, err := row.Cell(i)
			if err != nil {
				return err
			}
			c.Bytes = bytes.Clone(c.Bytes)
			r[i] = c
		}
		m.rows = append(m.rows, r)
		return nil
	})
}

// byHand is the floor: the JSON of the same values, appended column by column
// by code that knows the table, into the same records.
func byHand(rows []diffpage.Row) func() error {
	head := envelope.RowsHead{
		Kind: envelope.KindRows, Table: "t", Generation: 1,
		Columns: []string{"id", "name", "price", "kind", "note", "ref", "raw", "state"}, KeyColumns: []string{"id"},
	}
	env := someEnvelope()
	s := envelope.NewSplitter(env, head, 1<<20, envelope.SplitOptions{})
	discard := func(*envelope.Encoded) error { return nil }
	var line []byte
	return func() error {
		if err := s.Reset(env, head); err != nil {
			return err
		}
		for _, row := range rows {
			r := row.(memoryRow)
			line = append(envelope.AppendInt(append(line[:0], `["I",[`...), r[0].Int), `],[`...)
			for i, c := range r {
				if i > 0 {
					line = append(line, ',')
				}
				line = appendCell(line, c)
			}
			if err := s.Add(append(line, "]]"...)); err != nil {
				return err
			}
		}
		_, err := s.Finish(discard)
		return err
	}
}

func appendCell(dst []byte, c diffpage.Cell) []byte {
	switch c.Class {
	case diffpage.Integer:
		return envelope.AppendInt(dst, c.Int)
	case diffpage.Real:
		return envelope.AppendReal(dst, c.Real)
	case diffpage.Text:
		return envelope.AppendText(dst, c.Bytes)
	case diffpage.Blob:
		return envelope.AppendBlob(dst, c.Bytes)
	default:
		return envelope.AppendNull(dst)
	}
}
