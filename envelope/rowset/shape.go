package rowset

import (
	"celldexport/diffpage/schema"
	"celldexport/envelope"
)

// form is how the rows of a table become rows of its exported table.
type form uint8

const (
	// formPlain rows are the stored columns, generated ones left out.
	formPlain form = iota
	// formKV rows are key and value of the stream's own scope.
	formKV
	// formNS rows are plain with the bucket key of a large value behind them.
	formNS
	// formNone tables have no rows here: virtual tables and tables whose
	// definition cannot be read.
	formNone
)

// shape is what records need to know of one table: its exported columns, where
// their values come from and what the key is.
type shape struct {
	form form
	// columns and keys are the names in records, defs the schema record's.
	columns, keys []string
	defs          []envelope.ColumnDef
	// cells are the stored columns behind columns; formNS has one more column
	// than cells, made from the stored column blob.
	cells []int
	// key are the stored columns behind keys, in key order, empty when the
	// rowid is the key.
	key []int
	// byRowid says that the key is the rowid itself, so that rows come in key
	// order and each change is of one key.
	byRowid bool
	// blob and scope are the stored columns of formNS and formKV.
	blob, scope int
	// virtual says that formNone is a virtual table.
	virtual bool
	// reason is why rows cannot be exported, "" when they can.
	reason string
}

// shapeOf derives the shape of a table from its definition.
func shapeOf(t *schema.Table) *shape {
	switch {
	case t.Kind == schema.Virtual:
		return &shape{form: formNone, defs: plainDefs(t), virtual: true}
	case t.Unreadable != "":
		return &shape{form: formNone, reason: "the table's definition cannot be read: " + t.Unreadable}
	case t.Name == storedKV:
		return kvShape(t)
	}
	s := &shape{form: formPlain, defs: plainDefs(t)}
	for i, c := range t.Columns {
		if c.Hidden == 0 {
			s.cells = append(s.cells, i)
			s.columns = append(s.columns, written(c.Name))
		}
	}
	s.setKey(t)
	if t.Name == storedNS {
		s.addBlobKey(t)
	}
	return s
}

// plainDefs are the columns of a schema record as PRAGMA table_xinfo lists
// them. Hidden columns of virtual tables are in no record.
func plainDefs(t *schema.Table) []envelope.ColumnDef {
	defs := make([]envelope.ColumnDef, 0, len(t.Columns))
	for _, c := range t.Columns {
		if c.Hidden == 1 {
			continue
		}
		defs = append(defs, envelope.ColumnDef{
			Name: written(c.Name), Type: c.Type, PrimaryKey: uint64(c.PK), NotNull: c.NotNull,
			Generated: c.Generated(),
		})
	}
	return defs
}

// setKey picks the declared primary key in key order, else the rowid under the
// first of its names that no column takes.
func (s *shape) setKey(t *schema.Table) {
	if len(t.Key) == 1 && t.Key[0] == t.Alias {
		s.byRowid = true
		s.keys = []string{written(t.Columns[t.Alias].Name)}
		return
	}
	if len(t.Key) > 0 {
		s.key = t.Key
		for _, i := range t.Key {
			s.keys = append(s.keys, written(t.Columns[i].Name))
		}
		return
	}
	s.byRowid = true
	name := rowidName(t)
	if name == "" {
		s.reason = "columns take every name of the rowid, which is the table's only key"
		return
	}
	s.keys = []string{name}
}

// rowidName is "_rowid_" when no column has that name, else the first of the
// rowid's other names that is free, else "".
func rowidName(t *schema.Table) string {
	for _, name := range [...]string{"_rowid_", "rowid", "oid"} {
		if columnFold(t, name) < 0 {
			return name
		}
	}
	return ""
}

// columnFold is the index of the column that SQLite would find under name.
func columnFold(t *schema.Table, name string) int {
	for i, c := range t.Columns {
		if equalFold(c.Name, name) {
			return i
		}
	}
	return -1
}

// kvShape is the storage API's table: rows of the stream's own scope, keyed by
// k alone.
func kvShape(t *schema.Table) *shape {
	scope, k, v := columnFold(t, "scope"), columnFold(t, "k"), columnFold(t, "v")
	s := &shape{
		form:    formKV,
		columns: []string{"key", "value"},
		keys:    []string{"key"},
		defs: []envelope.ColumnDef{
			{Name: "key", Type: "TEXT", PrimaryKey: 1, NotNull: true},
			{Name: "value"},
		},
		scope: scope, cells: []int{k, v}, key: []int{k},
	}
	if scope < 0 || k < 0 || v < 0 {
		s.reason = "the key-value table has not the columns scope, k and v"
	}
	return s
}

// addBlobKey adds the column that names the bucket object of a large value.
// Tables of the first version have no column blob_id and stay as they are.
func (s *shape) addBlobKey(t *schema.Table) {
	blob := columnFold(t, "blob_id")
	if blob < 0 || t.Columns[blob].Hidden != 0 || columnFold(t, "blob_key") >= 0 {
		return
	}
	s.form, s.blob = formNS, blob
	s.columns = append(s.columns, "blob_key")
	s.defs = append(s.defs, envelope.ColumnDef{Name: "blob_key", Type: "TEXT"})
}
