package celldsim

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// DumpedRow is one row: the values of the key columns, in key order, and
// those of the exported columns, in declared order.
type DumpedRow struct {
	Key, Values []Value
}

// DumpedTable is what a consumer of the export should hold of one table.
type DumpedTable struct {
	// Columns are the exported columns: neither hidden nor generated.
	Columns []string
	// KeyColumns are the primary key's columns in key order, or "_rowid_".
	// They are nil for a table whose rows cannot be named, since it has no
	// key and columns that shadow every name of the rowid; it has no Rows.
	KeyColumns []string
	// Rows are in order of their keys.
	Rows []DumpedRow
	// NullKeys counts the rows left out because their key holds a NULL.
	NullKeys int
}

// Dump reads every exported table of a cell's database through SQLite, by
// exported name. It knows nothing of pages or records, so that it can judge
// both. Values of kv are the stored bytes. The scope selects the rows of the
// key-value storage.
func Dump(ctx context.Context, db *sql.DB, scope string) (map[string]DumpedTable, error) {
	var encoding string
	if err := db.QueryRowContext(ctx, `PRAGMA encoding`).Scan(&encoding); err != nil {
		return nil, fmt.Errorf("dump %s: %w", scope, err)
	}
	names, err := exportedTables(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("dump %s: %w", scope, err)
	}
	dump := map[string]DumpedTable{}
	for _, name := range names {
		exported := name
		switch name {
		case "_cf_KV":
			exported = "kv"
		case "kv":
			exported = "_cf_SQL_kv"
		}
		q, err := describe(ctx, db, name)
		if err != nil {
			return nil, fmt.Errorf("dump %s, table %s: %w", scope, name, err)
		}
		if name == "_cf_KV" {
			q = tableQuery{
				columns: []string{"key", "value"}, keyColumns: []string{"key"},
				columnExprs: []string{"k", "v"}, keyExprs: []string{"k"},
				from: "_cf_KV WHERE scope = ?1", args: []any{scope},
			}
		}
		if dump[exported], err = q.read(ctx, db, encoding); err != nil {
			return nil, fmt.Errorf("dump %s, table %s: %w", scope, name, err)
		}
	}
	return dump, nil
}

// exportedTables lists the ordinary tables that are not reserved.
func exportedTables(ctx context.Context, db *sql.DB) ([]string, error) {
	rows, err := db.QueryContext(ctx, `SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY name`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		if !reserved(name) {
			names = append(names, name)
		}
	}
	return names, rows.Err()
}

// reserved says whether a table is never exported.
func reserved(name string) bool {
	lower := strings.ToLower(name)
	switch {
	case name == "_cf_KV":
		return false
	case strings.HasPrefix(lower, "sqlite_"), strings.HasPrefix(lower, "_cf_"), strings.HasPrefix(lower, "_litestream_"):
		return true
	}
	return strings.HasPrefix(name, "__queue_") || name == "__kv_meta"
}

// tableQuery is how a table is read.
type tableQuery struct {
	columns, keyColumns   []string
	columnExprs, keyExprs []string
	from                  string
	args                  []any
}

// describe derives the exported columns and the key of a table.
func describe(ctx context.Context, db *sql.DB, table string) (tableQuery, error) {
	q := tableQuery{from: quoteName(table)}
	rows, err := db.QueryContext(ctx, `SELECT name, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid`, table)
	if err != nil {
		return q, err
	}
	defer rows.Close()
	type keyPart struct {
		at   int
		name string
	}
	var key []keyPart
	aliases := []string{"rowid", "_rowid_", "oid"}
	for rows.Next() {
		var name string
		var pk, hidden int
		if err := rows.Scan(&name, &pk, &hidden); err != nil {
			return q, err
		}
		aliases = slices.DeleteFunc(aliases, func(a string) bool { return strings.EqualFold(a, name) })
		if hidden != 0 {
			continue
		}
		q.columns = append(q.columns, name)
		q.columnExprs = append(q.columnExprs, quoteName(name))
		if pk > 0 {
			key = append(key, keyPart{pk, name})
		}
	}
	slices.SortFunc(key, func(a, b keyPart) int { return a.at - b.at })
	for _, k := range key {
		q.keyColumns = append(q.keyColumns, k.name)
		q.keyExprs = append(q.keyExprs, quoteName(k.name))
	}
	if len(key) == 0 && len(aliases) > 0 {
		q.keyColumns, q.keyExprs = []string{"_rowid_"}, aliases[:1]
	}
	return q, rows.Err()
}

// read runs the query.
func (q tableQuery) read(ctx context.Context, db *sql.DB, encoding string) (DumpedTable, error) {
	t := DumpedTable{Columns: q.columns, KeyColumns: q.keyColumns}
	if q.keyColumns == nil {
		return t, nil
	}
	exprs := slices.Concat(q.keyExprs, q.columnExprs)
	var query strings.Builder
	query.WriteString("SELECT ")
	for i, e := range exprs {
		if i > 0 {
			query.WriteString(", ")
		}
		// The driver interprets some values by their column's declared type
		// and text as UTF-8; an expression has no declared type and a cast
		// to blob keeps the stored bytes.
		fmt.Fprintf(&query, "typeof(%s), CASE typeof(%s) WHEN 'text' THEN CAST(%s AS BLOB) ELSE %s END", e, e, e, e)
	}
	rows, err := db.QueryContext(ctx, query.String()+" FROM "+q.from, q.args...)
	if err != nil {
		return t, err
	}
	defer rows.Close()
	for rows.Next() {
		values, err := scanValues(rows, len(exprs), encoding)
		if err != nil {
			return t, err
		}
		row := DumpedRow{Key: values[:len(q.keyExprs)], Values: values[len(q.keyExprs):]}
		if slices.ContainsFunc(row.Key, func(v Value) bool { return v.Class == Null }) {
			t.NullKeys++
			continue
		}
		t.Rows = append(t.Rows, row)
	}
	slices.SortStableFunc(t.Rows, func(a, b DumpedRow) int { return slices.CompareFunc(a.Key, b.Key, compareValues) })
	return t, rows.Err()
}
