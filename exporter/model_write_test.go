package exporter_test

import (
	"context"
	"fmt"
	"math/rand/v2"

	"celldexport/internal/celldsim"
)

// scribble runs a few random transactions that fit whatever a cell holds: a
// cell of a model fleet may go back to any state it had.
func scribble(ctx context.Context, c *celldsim.Cell, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 3))
	for range 1 + r.IntN(3) {
		if err := scribbleOnce(ctx, c, r); err != nil {
			return err
		}
	}
	return nil
}

// shapes are the kinds of tables that are made.
var shapes = []string{
	`(k PRIMARY KEY, v)`, `(k INTEGER PRIMARY KEY, v)`, `(a, b)`, `(k TEXT, n INTEGER, v, PRIMARY KEY(n, k)) WITHOUT ROWID`,
}

func scribbleOnce(ctx context.Context, c *celldsim.Cell, r *rand.Rand) error {
	name := fmt.Sprint("t", r.IntN(4))
	columns, err := columnsOf(ctx, c, name)
	if err != nil {
		return err
	}
	if len(columns) == 0 {
		return c.Exec(fmt.Sprintf(`CREATE TABLE %s%s`, name, shapes[r.IntN(len(shapes))]))
	}
	first, last := columns[0], columns[len(columns)-1]
	switch n := r.IntN(20); {
	case n == 0:
		return c.Exec(`DROP TABLE ` + name)
	case n == 1:
		return c.Exec(fmt.Sprintf(`DROP TABLE IF EXISTS t9; ALTER TABLE %s RENAME TO t9`, name))
	case n == 2 && len(columns) < 6:
		return c.Exec(fmt.Sprintf(`ALTER TABLE %s ADD COLUMN c%d`, name, len(columns)))
	case n < 6:
		return c.Exec(fmt.Sprintf(`DELETE FROM %s WHERE %s %% 3 = %d`, name, first, r.IntN(3)))
	case n < 10:
		return c.Exec(fmt.Sprintf(`UPDATE %s SET %s = %s || 'u' WHERE %s %% 4 = %d`, name, last, last, first, r.IntN(4)))
	case n < 12:
		value, err := celldsim.V8(map[string]any{"n": r.IntN(100)})
		if err != nil {
			return err
		}
		return celldsim.PutKV(c, fmt.Sprint("key", r.IntN(5)), value)
	}
	values := ""
	for range columns {
		values += fmt.Sprintf(", %d", r.IntN(12))
	}
	return c.Exec(fmt.Sprintf(`INSERT OR REPLACE INTO %s VALUES(%s)`, name, values[2:]))
}

func columnsOf(ctx context.Context, c *celldsim.Cell, table string) ([]string, error) {
	rows, err := c.DB().QueryContext(ctx, `SELECT name FROM pragma_table_info(?)`, table)
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
		names = append(names, name)
	}
	return names, rows.Err()
}
