package celldsim

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// workTable is what a workload knows of one of its tables.
type workTable struct {
	name    string
	columns []workColumn
	// rowid says that rows can be picked by rowid.
	rowid   bool
	indexes []string
}

// workColumn is one column. key is its place in the primary key, 0 for none.
type workColumn struct {
	name, kind string
	key        int
	// rowid says that the column is an alias of the rowid and takes
	// integers only.
	rowid bool
}

// some is a condition that picks rows by two arguments, LIMIT and OFFSET.
func (t *workTable) some() string {
	key := "rowid"
	if !t.rowid {
		var names []string
		for _, c := range t.columns {
			if c.key > 0 {
				names = append(names, quoteName(c.name))
			}
		}
		key = strings.Join(names, ", ")
	}
	return fmt.Sprintf("(%s) IN (SELECT %s FROM %s ORDER BY %s LIMIT ? OFFSET ?)", key, key, quoteName(t.name), key)
}

// Forms of a new table's key. The text follows the column definitions.
type keyForm struct {
	columns []workColumn
	define  []string // one per key column
	tail    string
	options string
	rowid   bool
}

// keyForms lists every kind of key.
func keyForms() []keyForm {
	return []keyForm{
		{rowid: true},
		{columns: []workColumn{{"id", "INTEGER", 1, true}}, define: []string{"id INTEGER PRIMARY KEY"}, rowid: true},
		{columns: []workColumn{{"id", "INTEGER", 1, true}}, define: []string{"id INTEGER PRIMARY KEY AUTOINCREMENT"}, rowid: true},
		{columns: []workColumn{{"k", "TEXT", 1, false}}, define: []string{"k TEXT PRIMARY KEY NOT NULL"}, rowid: true},
		{columns: []workColumn{{"x", "INTEGER", 2, false}, {"y", "TEXT", 1, false}},
			define: []string{"x INTEGER NOT NULL", "y TEXT NOT NULL"}, tail: ", PRIMARY KEY(y, x)", options: " WITHOUT ROWID"},
		{columns: []workColumn{{"k", "TEXT", 1, false}}, define: []string{"k TEXT COLLATE NOCASE PRIMARY KEY NOT NULL"}, options: " WITHOUT ROWID"},
		{columns: []workColumn{{"a", "BLOB", 1, false}, {"b", "REAL", 2, false}},
			define: []string{"a BLOB NOT NULL", "b REAL NOT NULL"}, tail: ", PRIMARY KEY(a, b)", rowid: true},
		{columns: []workColumn{{"id", "INTEGER", 1, false}}, define: []string{"id INTEGER PRIMARY KEY DESC NOT NULL"}, rowid: true},
	}
}

// columnKinds are the declared types that payload columns get.
func columnKinds() []string {
	return []string{"INTEGER", "REAL", "TEXT", "BLOB", "NUMERIC", "", "VARCHAR(40)", "DATETIME"}
}

// changeSchema runs one random change of the schema.
func (w *Workload) changeSchema(ctx context.Context, tx *sql.Tx) error {
	i := w.rand.IntN(len(w.tables))
	t := &w.tables[i]
	switch w.rand.IntN(9) {
	case 0, 1, 2:
		if len(w.tables) < w.cfg.Tables {
			return w.createTable(ctx, tx)
		}
		return w.addColumn(ctx, tx, t)
	case 3:
		name := t.name
		w.tables = slices.Delete(w.tables, i, i+1)
		return exec(ctx, tx, `DROP TABLE `+quoteName(name))
	case 4:
		old := t.name
		t.name = w.name("renamed")
		return exec(ctx, tx, fmt.Sprintf(`ALTER TABLE %s RENAME TO %s`, quoteName(old), quoteName(t.name)))
	case 5:
		return w.addColumn(ctx, tx, t)
	case 6:
		return w.renameColumn(ctx, tx, t)
	case 7:
		return w.dropColumn(ctx, tx, t)
	}
	return w.createIndex(ctx, tx, t)
}

// name makes a name that was never used.
func (w *Workload) name(stem string) string {
	w.named++
	return fmt.Sprintf("%s %d", stem, w.named)
}

// createTable makes a table of a random kind.
func (w *Workload) createTable(ctx context.Context, tx *sql.Tx) error {
	forms := keyForms()
	form := forms[w.rand.IntN(len(forms))]
	t := workTable{name: w.name("table"), columns: form.columns, rowid: form.rowid}
	define := slices.Clone(form.define)
	kinds := columnKinds()
	for i := range 1 + w.rand.IntN(5) {
		c := workColumn{name: fmt.Sprintf("c%d", i), kind: kinds[w.rand.IntN(len(kinds))]}
		t.columns = append(t.columns, c)
		define = append(define, strings.TrimSpace(c.name+" "+c.kind))
	}
	w.tables = append(w.tables, t)
	return exec(ctx, tx, fmt.Sprintf(`CREATE TABLE %s(%s%s)%s`,
		quoteName(t.name), strings.Join(define, ", "), form.tail, form.options))
}

// addColumn adds a column, at times with a default that old rows then have.
func (w *Workload) addColumn(ctx context.Context, tx *sql.Tx, t *workTable) error {
	if len(t.columns) > 12 {
		return nil
	}
	kinds := columnKinds()
	c := workColumn{name: w.name("added"), kind: kinds[w.rand.IntN(len(kinds))]}
	t.columns = append(t.columns, c)
	defaults := []string{"", " DEFAULT NULL", " DEFAULT -5", " DEFAULT 1.5", " DEFAULT 'it''s'", " DEFAULT x'00ff'", " NOT NULL DEFAULT 7"}
	def := defaults[w.rand.IntN(len(defaults))]
	if strings.HasPrefix(def, " NOT NULL") {
		t.columns = t.columns[:len(t.columns)-1] // left to its default
	}
	return exec(ctx, tx, fmt.Sprintf(`ALTER TABLE %s ADD COLUMN %s %s%s`, quoteName(t.name), quoteName(c.name), c.kind, def))
}

// payload picks a column outside the key, nil when there is none.
func (w *Workload) payload(t *workTable) *workColumn {
	var at []int
	for i, c := range t.columns {
		if c.key == 0 {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil
	}
	return &t.columns[at[w.rand.IntN(len(at))]]
}

func (w *Workload) renameColumn(ctx context.Context, tx *sql.Tx, t *workTable) error {
	c := w.payload(t)
	if c == nil {
		return nil
	}
	old := c.name
	c.name = w.name("column")
	return exec(ctx, tx, fmt.Sprintf(`ALTER TABLE %s RENAME COLUMN %s TO %s`, quoteName(t.name), quoteName(old), quoteName(c.name)))
}

// dropColumn drops a column and, before it, the indexes of the table, which
// might use it.
func (w *Workload) dropColumn(ctx context.Context, tx *sql.Tx, t *workTable) error {
	c := w.payload(t)
	if c == nil || len(t.columns) < 3 {
		return nil
	}
	for _, index := range t.indexes {
		if err := exec(ctx, tx, `DROP INDEX `+quoteName(index)); err != nil {
			return err
		}
	}
	t.indexes = nil
	name := c.name
	t.columns = slices.DeleteFunc(t.columns, func(c workColumn) bool { return c.name == name })
	return exec(ctx, tx, fmt.Sprintf(`ALTER TABLE %s DROP COLUMN %s`, quoteName(t.name), quoteName(name)))
}

func (w *Workload) createIndex(ctx context.Context, tx *sql.Tx, t *workTable) error {
	c := w.payload(t)
	if c == nil || len(t.indexes) > 1 {
		return nil
	}
	index := w.name("index")
	t.indexes = append(t.indexes, index)
	return exec(ctx, tx, fmt.Sprintf(`CREATE INDEX %s ON %s(%s)`, quoteName(index), quoteName(t.name), quoteName(c.name)))
}
