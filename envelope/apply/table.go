package apply

import (
	"cmp"
	"maps"
	"slices"

	"celldexport/envelope"
)

// generation is one life of a table in a stream.
type generation struct {
	id        envelope.TableGeneration
	opened    envelope.Position
	dropped   bool
	bulk      *envelope.Position // the newest that names it
	cut       *cut
	uncertain bool
	// The newest definition that is not its end, and the records of its
	// rows, ascending.
	schema    *envelope.Schema
	rows      []*envelope.Record
	snapshots []*envelope.Record
	content   *Table // once asked for
}

// collectGenerations gathers the records of each generation. Every kind that
// names one opens it, bulk too: a generation may be known by nothing else.
func (s *stream) collectGenerations() {
	s.generations = map[envelope.TableGeneration]*generation{}
	see := func(tg envelope.TableGeneration, at envelope.Position) *generation {
		g := s.generations[tg]
		if g == nil {
			g = &generation{id: tg, opened: at}
			s.generations[tg] = g
		}
		if at.Compare(g.opened) < 0 {
			g.opened = at
		}
		return g
	}
	for _, r := range s.held[envelope.KindRows] {
		g := see(r.Body.(*envelope.Rows).TableGeneration, r.Position)
		g.rows = append(g.rows, r)
	}
	for _, r := range s.held[envelope.KindSnapshot] {
		g := see(r.Body.(*envelope.SnapshotRows).TableGeneration, r.Position)
		g.snapshots = append(g.snapshots, r)
	}
	for _, r := range s.held[envelope.KindSchema] {
		schema := r.Body.(*envelope.Schema)
		g := see(schema.TableGeneration, r.Position)
		if schema.Dropped {
			g.dropped = true
		} else {
			g.schema = schema
		}
	}
	for _, r := range s.held[envelope.KindBulk] {
		for _, tg := range r.Body.(*envelope.Bulk).Tables {
			see(tg, r.Position).bulk = &r.Position
		}
	}
}

// Table is the content of an open table generation.
type Table struct {
	envelope.TableGeneration
	// Columns and KeyColumns are those of the newest record with rows, else
	// those of the schema.
	Columns, KeyColumns []string
	// Schema is the newest definition, nil when none is held.
	Schema *envelope.Schema
	// Uncertain says that changes are missing that no snapshot made good.
	Uncertain bool
	// Rows are in the order of their keys.
	Rows []Row
}

// Row is the newest state of one row.
type Row struct {
	Key, Values []envelope.Value
	// Columns are the names of Values.
	Columns []string
	// Position and Origin are those of the record it comes from.
	Position envelope.Position
	Origin   envelope.Origin
}

// table computes the generation's content.
func (g *generation) table() *Table {
	if g.content != nil {
		return g.content
	}
	t := &Table{TableGeneration: g.id, Schema: g.schema, Uncertain: g.uncertain}
	t.describe(g.schema)
	newest := map[string]Row{}
	var key []byte
	take := func(r *envelope.Record, rows *envelope.Rows) {
		t.Columns, t.KeyColumns = rows.Columns, rows.KeyColumns
		for i := range rows.Changes {
			c := &rows.Changes[i]
			key = envelope.AppendValues(key[:0], c.Key)
			if c.Op == envelope.Delete {
				delete(newest, string(key))
				continue
			}
			newest[string(key)] = Row{c.Key, c.Row, rows.Columns, r.Position, r.Origin}
		}
	}
	for _, r := range g.snapshots {
		if g.cut != nil && g.cut.of(r) {
			take(r, &r.Body.(*envelope.SnapshotRows).Rows)
		}
	}
	for _, r := range g.rows {
		// What a snapshot's position already holds is superseded by it.
		if g.cut == nil || r.Position.Compare(g.cut.position) > 0 {
			take(r, r.Body.(*envelope.Rows))
		}
	}
	t.Rows = slices.SortedFunc(maps.Values(newest), func(a, b Row) int {
		return slices.CompareFunc(a.Key, b.Key, envelope.Value.Compare)
	})
	g.content = t
	return t
}

// describe takes the columns from a schema, for a table without rows.
func (t *Table) describe(schema *envelope.Schema) {
	if schema == nil {
		return
	}
	var key []envelope.ColumnDef
	for _, c := range schema.Columns {
		if !c.Generated && !schema.Unsupported {
			t.Columns = append(t.Columns, c.Name)
		}
		if c.PrimaryKey > 0 {
			key = append(key, c)
		}
	}
	slices.SortFunc(key, func(a, b envelope.ColumnDef) int { return cmp.Compare(a.PrimaryKey, b.PrimaryKey) })
	for _, c := range key {
		t.KeyColumns = append(t.KeyColumns, c.Name)
	}
}

// Tables are a stream's open table generations, by name.
func (s *State) Tables(id envelope.Stream) []*Table {
	st := s.stream(id)
	if st == nil {
		return nil
	}
	var list []*Table
	for _, name := range slices.Sorted(maps.Keys(st.open)) {
		list = append(list, st.open[name].table())
	}
	return list
}

// Table is the open generation of a table, nil when there is none. It is not
// to be changed.
func (s *State) Table(id envelope.Stream, name string) *Table {
	st := s.stream(id)
	if st == nil || st.open[name] == nil {
		return nil
	}
	return st.open[name].table()
}
