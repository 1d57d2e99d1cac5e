package apply_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"celldexport/envelope"
	"celldexport/envelope/apply"
)

// fataler is what testing and rapid have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

var (
	root  = envelope.Stream{Script: "depot", Class: "Shelf", Cell: "Shelf:a17", Incarnation: 4}
	facet = envelope.Stream{Script: "depot", Class: "Shelf", Cell: "Shelf:a17", Facet: "facets/aa", Incarnation: 50}
)

func ptr[T any](v T) *T { return &v }

func at(epoch, txid, commit uint64) envelope.Position {
	return envelope.Position{Epoch: epoch, TXID: txid, Commit: commit}
}

func tg(table string, generation uint64) envelope.TableGeneration {
	return envelope.TableGeneration{Table: table, Generation: generation}
}

// rec is a record of the root stream, or as the changes have it.
func rec(p envelope.Position, body envelope.Body, changes ...func(*envelope.Record)) *envelope.Record {
	r := &envelope.Record{
		Envelope: envelope.Envelope{Stream: root, Position: p, Node: "n1", Origin: envelope.Live, Fragment: 1, Fragments: 1},
		Body:     body,
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

func on(s envelope.Stream) func(*envelope.Record) {
	return func(r *envelope.Record) { r.Stream = s }
}

func by(o envelope.Origin) func(*envelope.Record) {
	return func(r *envelope.Record) { r.Origin = o }
}

// changes are row changes of a table (k, v), written "I k v", "U k v", "D k".
func changes(list ...string) []envelope.RowChange {
	var out []envelope.RowChange
	for _, text := range list {
		f := strings.Fields(text)
		key := []envelope.Value{envelope.Text(f[1])}
		row := []envelope.Value{envelope.Text(f[1]), envelope.Null()}
		if len(f) > 2 {
			row[1] = envelope.Text(f[2])
		}
		out = append(out, envelope.RowChange{Op: envelope.Op(f[0]), Key: key, Row: row})
	}
	return out
}

func rowsBody(g envelope.TableGeneration, list ...string) *envelope.Rows {
	return &envelope.Rows{TableGeneration: g, Columns: []string{"k", "v"}, KeyColumns: []string{"k"}, Changes: changes(list...)}
}

func snapBody(id string, g envelope.TableGeneration, list ...string) *envelope.SnapshotRows {
	return &envelope.SnapshotRows{SnapshotID: id, Rows: *rowsBody(g, list...)}
}

func endBody(id string, scope envelope.Scope, records uint64, tables ...envelope.TableGeneration) *envelope.SnapshotEnd {
	return &envelope.SnapshotEnd{SnapshotID: id, Scope: scope, Tables: tables, Records: records}
}

func schemaBody(g envelope.TableGeneration, changes ...func(*envelope.Schema)) *envelope.Schema {
	s := &envelope.Schema{TableGeneration: g, SQL: "CREATE TABLE", Columns: []envelope.ColumnDef{
		{Name: "k", Type: "TEXT", PrimaryKey: 1}, {Name: "v"}, {Name: "g", Generated: true},
	}}
	for _, change := range changes {
		change(s)
	}
	return s
}

func dropped(s *envelope.Schema) { s.Dropped, s.Columns = true, nil }

func renamedFrom(name string) func(*envelope.Schema) {
	return func(s *envelope.Schema) { s.RenamedFrom = &name }
}

// build is the state of the records.
func build(t fataler, records ...*envelope.Record) *apply.State {
	t.Helper()
	s := apply.New()
	for _, r := range records {
		if err := s.Add(r); err != nil {
			t.Fatalf("%v", err)
		}
	}
	return s
}

// content is "table.generation: k=v ..." of the stream's open tables, with a
// mark on uncertain ones.
func content(s *apply.State, id envelope.Stream) string {
	var out []string
	for _, table := range s.Tables(id) {
		line := fmt.Sprintf("%s.%d", table.Table, table.Generation)
		if table.Uncertain {
			line += "?"
		}
		line += ":"
		for _, row := range table.Rows {
			line += fmt.Sprintf(" %s=%s", row.Key[0].Text(), row.Values[1].Text())
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}

// observe is everything that a state says.
func observe(t fataler, s *apply.State) string {
	t.Helper()
	var out bytes.Buffer
	if err := s.WriteRows(&out); err != nil {
		t.Fatalf("%v", err)
	}
	for _, id := range s.Streams() {
		sum, ok := s.Summary(id)
		fmt.Fprintf(&out, "%s %v certified %v snapshot %v deleted %v: %s; fingerprint %s\n",
			id, ok, sum.Certified, sum.SnapshotAt, sum.DeletedAt, content(s, id), s.Fingerprint(id))
	}
	gaps, err := s.Gaps()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for i := range gaps {
		out.Write(append(gaps[i].AppendJSON(nil), '\n'))
	}
	return out.String()
}

// gapLines are the gaps as "kind e:t:c bound e:t certified", in short.
func gapLines(t *testing.T, s *apply.State) string {
	t.Helper()
	gaps, err := s.Gaps()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, g := range gaps {
		line := string(g.Kind)
		if g.Position != nil {
			line += " at " + g.Position.String()
		}
		if g.Bound != nil {
			line += fmt.Sprintf(" bound %d:%d", g.Bound.Epoch, g.Bound.TXID)
		}
		if g.CertifiedTXID != nil {
			line += fmt.Sprintf(" certified %d", *g.CertifiedTXID)
		}
		if g.Table != nil {
			line += fmt.Sprintf(" %s.%d", g.Table.Table, g.Table.Generation)
		}
		if g.Reason != "" {
			line += " (" + g.Reason + ")"
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}
