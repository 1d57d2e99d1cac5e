package celldsim

import (
	"context"
	"fmt"
	"strings"
)

// PutKV stores a key of an object's key-value storage. The value is stored
// as given; [V8] makes values as the runtime does.
func PutKV(c *Cell, key string, value []byte) error {
	return c.Exec(`INSERT INTO _cf_KV(scope, k, v) VALUES(?, ?, ?)
		ON CONFLICT(scope, k) DO UPDATE SET v = excluded.v`, c.Scope(), key, value)
}

// DeleteKV removes a key of an object's key-value storage.
func DeleteKV(c *Cell, key string) error {
	return c.Exec(`DELETE FROM _cf_KV WHERE scope = ? AND k = ?`, c.Scope(), key)
}

// DeleteAll does what the runtime's deleteAll does: it drops every table
// except the object's metadata, its alarm and the replicator's tables, then
// makes celld's tables anew, in one transaction.
func DeleteAll(ctx context.Context, c *Cell) error {
	tables, err := droppable(ctx, c)
	if err != nil {
		return fmt.Errorf("list the tables of %s: %w", c.Scope(), err)
	}
	var script strings.Builder
	script.WriteString("BEGIN;")
	for _, t := range tables {
		fmt.Fprintf(&script, "DROP TABLE IF EXISTS %s;", quoteName(t))
	}
	script.WriteString(ownTables + "COMMIT;")
	return c.Exec(script.String())
}

// droppable names the tables that deleteAll drops.
func droppable(ctx context.Context, c *Cell) ([]string, error) {
	rows, err := c.DB().QueryContext(ctx, `SELECT name FROM pragma_table_list
		WHERE schema = 'main' AND type IN ('table', 'virtual') AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
		AND name NOT LIKE '\_litestream\_%' ESCAPE '\' AND name NOT IN ('_cf_METADATA', '_cf_ALARM') ORDER BY name`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var t string
		if err := rows.Scan(&t); err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, rows.Err()
}

// quoteName quotes an SQL identifier.
func quoteName(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}
