package consumer

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"celldexport/envelope"
	"celldexport/envelope/apply"
	"celldexport/envelope/v8json"
	"celldexport/internal/celldsim"
)

// Source is a cell as its owner has it.
type Source struct {
	// Scope is the cell, DB its database.
	Scope string
	DB    *sql.DB
	// Epoch and TXID are the cell's head.
	Epoch, TXID uint64
}

// SourceOf is a simulated cell.
func SourceOf(c *celldsim.Cell) Source {
	return Source{Scope: c.Scope(), DB: c.DB(), Epoch: c.Epoch(), TXID: c.TXID()}
}

// Compare holds the copy of one cell against its database, row by row and
// table by table; empty when they are equal.
func (c *Consumer) Compare(ctx context.Context, src Source) ([]string, error) {
	id, ok := c.Stream(src.Scope)
	if !ok {
		return []string{fmt.Sprintf("cell %s: the consumer has no stream", src.Scope)}, nil
	}
	source, err := celldsim.Dump(ctx, src.DB, src.Scope)
	if err != nil {
		return nil, err
	}
	return compareTables(src.Scope, source, c.State.Tables(id)), nil
}

// CompareDump is Compare with what a database held at another time.
func (c *Consumer) CompareDump(scope string, source map[string]celldsim.DumpedTable) []string {
	id, ok := c.Stream(scope)
	if !ok {
		return []string{fmt.Sprintf("cell %s: the consumer has no stream", scope)}
	}
	return compareTables(scope, source, c.State.Tables(id))
}

// Certified reports, as differences, a cell that is not certified to its head.
func (c *Consumer) Certified(src Source) []string {
	id, _ := c.Stream(src.Scope)
	certified := c.State.Certified(id)[src.Epoch]
	if certified.TXID != src.TXID || certified.Commit < src.TXID {
		return []string{fmt.Sprintf("cell %s: certified to %v, the head is e%d:%d", src.Scope, certified, src.Epoch, src.TXID)}
	}
	return nil
}

// Holes reports, as differences, where the consumer knows that it may lack
// something of a cell: gaps, and epochs that went on from more than is
// certified of the one before.
func (c *Consumer) Holes(cell string) ([]string, error) {
	gaps, err := c.State.Gaps()
	if err != nil {
		return nil, fmt.Errorf("look for gaps: %w", err)
	}
	var diffs []string
	for _, g := range gaps {
		if g.Stream.Cell == cell {
			diffs = append(diffs, fmt.Sprintf("cell %s: not certified without a gap: %s", cell, g.AppendJSON(nil)))
		}
	}
	return diffs, nil
}

// Survived is, by cell and epoch, the last txid that the next epoch continues
// from.
type Survived map[string]map[uint64]uint64

// Phantoms are records beyond what survived: of a history that was lost.
func (c *Consumer) Phantoms(survived Survived) []string {
	var diffs []string
	for _, r := range c.Records {
		last, ok := survived[r.Stream.Cell][r.Position.Epoch]
		if ok && r.Position.TXID > last {
			diffs = append(diffs, fmt.Sprintf("cell %s: a %s record at e%d:%d is of a history that was lost, its successor restored e%d:%d",
				r.Stream.Cell, r.Body.Kind(), r.Position.Epoch, r.Position.TXID, r.Position.Epoch, last))
		}
	}
	return diffs
}

// compareTables compares one cell table by table.
func compareTables(scope string, source map[string]celldsim.DumpedTable, held []*apply.Table) []string {
	var diffs []string
	byName := make(map[string]*apply.Table, len(held))
	for _, t := range held {
		if t.Schema == nil || !t.Schema.Unsupported {
			byName[t.Table] = t
		}
	}
	for _, name := range slices.Sorted(maps.Keys(source)) {
		t := byName[name]
		delete(byName, name)
		switch {
		case t == nil:
			diffs = append(diffs, fmt.Sprintf("cell %s: table %s is missing at the consumer", scope, name))
		case t.Uncertain:
			diffs = append(diffs, fmt.Sprintf("cell %s: table %s is uncertain at the consumer", scope, name))
		default:
			rows := source[name]
			if name == kvTable {
				rows = decoded(rows)
			}
			diffs = append(diffs, compareRows(scope, name, rows, t)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		diffs = append(diffs, fmt.Sprintf("cell %s: table %s is at the consumer and not in the source", scope, name))
	}
	return diffs
}

// kvTable is the exported name of the key-value storage.
const kvTable = "kv"

// decoded is a dump of the key-value storage as its consumers see it: stored
// values as the JSON text that they decode to.
func decoded(t celldsim.DumpedTable) celldsim.DumpedTable {
	rows := slices.Clone(t.Rows)
	for i, r := range rows {
		rows[i].Values = slices.Clone(r.Values)
		rows[i].Values[1] = jsonOf(r.Values[1])
	}
	t.Rows = rows
	return t
}

// jsonOf is a stored value as its JSON text, or its bytes where it has none.
func jsonOf(v celldsim.Value) celldsim.Value {
	text, ok := []byte(nil), false
	switch v.Class {
	case celldsim.Null:
		return v
	case celldsim.Integer:
		text, ok = strconv.AppendInt(nil, v.Bits, 10), true
	case celldsim.Real:
		if math.IsInf(v.Float(), 0) { // its eight bytes, as a record stores them
			v.Bytes = string(binary.BigEndian.AppendUint64(nil, uint64(v.Bits)))
			break
		}
		text, ok = envelope.AppendReal(nil, v.Float()), true
	case celldsim.Text:
		text, ok = v8json.AppendLegacy(nil, []byte(v.Bytes))
	case celldsim.Blob:
		text, ok = v8json.Append(nil, []byte(v.Bytes))
	}
	if !ok {
		return celldsim.Value{Class: celldsim.Blob, Bytes: v.Bytes}
	}
	return celldsim.Value{Class: celldsim.Text, Bytes: string(text)}
}

func compareRows(scope, name string, source celldsim.DumpedTable, t *apply.Table) []string {
	var diffs []string
	held := make(map[string]*apply.Row, len(t.Rows))
	for i := range t.Rows {
		held[spell(t.Rows[i].Key)] = &t.Rows[i]
	}
	for _, r := range source.Rows {
		key := spell(values(r.Key))
		got := held[key]
		delete(held, key)
		switch {
		case got == nil:
			diffs = append(diffs, fmt.Sprintf("cell %s: table %s: key %s is missing at the consumer", scope, name, key))
		case !slices.Equal(got.Columns, source.Columns):
			diffs = append(diffs, fmt.Sprintf("cell %s: table %s: key %s has columns %v, the source %v", scope, name, key, got.Columns, source.Columns))
		case spell(got.Values) != spell(values(r.Values)):
			diffs = append(diffs, fmt.Sprintf("cell %s: table %s: key %s differs", scope, name, key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(held)) {
		diffs = append(diffs, fmt.Sprintf("cell %s: table %s: key %s is at the consumer and not in the source", scope, name, key))
	}
	return diffs
}

// values are SQLite's values as a record spells them.
func values(vs []celldsim.Value) []envelope.Value {
	out := make([]envelope.Value, len(vs))
	for i, v := range vs {
		switch v.Class {
		case celldsim.Null:
			out[i] = envelope.Null()
		case celldsim.Integer:
			out[i] = envelope.Int(v.Bits)
		case celldsim.Real:
			out[i] = envelope.Real(math.Float64frombits(uint64(v.Bits)))
		case celldsim.Text:
			out[i] = envelope.Text(v.Bytes)
		case celldsim.Blob:
			out[i] = envelope.Blob([]byte(v.Bytes))
		}
	}
	return out
}

func spell(vs []envelope.Value) string { return string(envelope.AppendValues(nil, vs)) }
