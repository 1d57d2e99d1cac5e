package celldsim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// WorkloadConfig describes random traffic. The zero value is usable.
type WorkloadConfig struct {
	// Seed decides everything.
	Seed uint64
	// Rows is about how many rows a table grows to, 60 when 0.
	Rows int
	// Tables is the most tables at a time, 6 when 0.
	Tables int
	// MaxValue is the longest text or blob in bytes, 12000 when 0, which
	// spills over several pages of 4 KiB.
	MaxValue int
	// Scope, when set, adds traffic on the key-value storage of this scope.
	Scope string
	// InvalidText lets some text be invalid in the database's encoding.
	InvalidText bool
	// Vacuum adds an occasional VACUUM, which celld denies to applications.
	Vacuum bool
	// NoDDL keeps the schema fixed after the first tables.
	NoDDL bool
}

// Workload makes random transactions over typed tables of every kind of key:
// inserts, replaces, updates (of keys too), deletes, rollbacks, and changes of
// the schema. It is a function of its configuration and the number of steps,
// as long as nobody else changes its tables. It is not safe for concurrent
// use.
type Workload struct {
	cfg          WorkloadConfig
	rand         *rand.Rand
	values       values
	tables       []workTable
	named        int // names given so far
	transactions int
}

// NewWorkload makes a workload that has not run yet.
func NewWorkload(cfg WorkloadConfig) *Workload {
	if cfg.Rows == 0 {
		cfg.Rows = 60
	}
	if cfg.Tables == 0 {
		cfg.Tables = 6
	}
	if cfg.MaxValue == 0 {
		cfg.MaxValue = 12_000
	}
	w := &Workload{cfg: cfg, rand: rand.New(rand.NewPCG(cfg.Seed, 0x776f726b))}
	w.values = values{rand: w.rand, cfg: &w.cfg}
	return w
}

// Transactions returns how many transactions were committed.
func (w *Workload) Transactions() int { return w.transactions }

// Run makes n steps.
func (w *Workload) Run(ctx context.Context, db *sql.DB, n int) error {
	for range n {
		if err := w.Step(ctx, db); err != nil {
			return err
		}
	}
	return nil
}

// Step runs one transaction of a few statements. About one in twenty is
// rolled back.
func (w *Workload) Step(ctx context.Context, db *sql.DB) error {
	if w.cfg.Vacuum && w.rand.IntN(40) == 0 {
		if _, err := db.ExecContext(ctx, `VACUUM`); err != nil {
			return fmt.Errorf("workload: VACUUM: %w", err)
		}
		w.transactions++
		return nil
	}
	saved := w.clone()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("workload: begin: %w", err)
	}
	for range 1 + w.rand.IntN(4) {
		if err := w.statement(ctx, tx); err != nil {
			return fmt.Errorf("workload: %w", errors.Join(err, tx.Rollback()))
		}
	}
	if w.rand.IntN(20) == 0 {
		w.tables = saved
		if err := tx.Rollback(); err != nil {
			return fmt.Errorf("workload: roll back: %w", err)
		}
		return nil
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("workload: commit: %w", err)
	}
	w.transactions++
	return nil
}

// clone copies what is known of the schema.
func (w *Workload) clone() []workTable {
	tables := slices.Clone(w.tables)
	for i := range tables {
		tables[i].columns = slices.Clone(tables[i].columns)
		tables[i].indexes = slices.Clone(tables[i].indexes)
	}
	return tables
}

// statement runs one random statement, or a few that belong together.
func (w *Workload) statement(ctx context.Context, tx *sql.Tx) error {
	if len(w.tables) == 0 {
		return w.createTable(ctx, tx)
	}
	if w.cfg.NoDDL && len(w.tables) < w.cfg.Tables {
		return w.createTable(ctx, tx)
	}
	if !w.cfg.NoDDL && w.rand.IntN(12) == 0 {
		return w.changeSchema(ctx, tx)
	}
	if w.cfg.Scope != "" && w.rand.IntN(8) == 0 {
		return w.changeKV(ctx, tx)
	}
	return w.changeRows(ctx, tx, &w.tables[w.rand.IntN(len(w.tables))])
}

// changeRows inserts, updates or deletes rows so that the table stays near
// its intended size.
func (w *Workload) changeRows(ctx context.Context, tx *sql.Tx, t *workTable) error {
	var rows int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM `+quoteName(t.name)).Scan(&rows); err != nil {
		return fmt.Errorf("count the rows of %s: %w", t.name, err)
	}
	kind := w.rand.IntN(10)
	switch {
	case rows == 0 || rows < w.cfg.Rows && kind < 5:
		return w.insert(ctx, tx, t)
	case kind < 7:
		return w.update(ctx, tx, t, rows)
	case rows > 2*w.cfg.Rows:
		return w.delete(ctx, tx, t, rows, rows/2)
	case w.rand.IntN(60) == 0:
		return exec(ctx, tx, `DELETE FROM `+quoteName(t.name)) // truncate
	}
	return w.delete(ctx, tx, t, rows, 1+w.rand.IntN(3))
}

// insert adds up to eight rows.
func (w *Workload) insert(ctx context.Context, tx *sql.Tx, t *workTable) error {
	verb := []string{"INSERT OR REPLACE", "INSERT OR IGNORE"}[w.rand.IntN(2)]
	for range 1 + w.rand.IntN(8) {
		var names, marks []string
		var args []any
		for _, c := range t.columns {
			if c.key == 0 && w.rand.IntN(8) == 0 {
				continue // take the default
			}
			names = append(names, quoteName(c.name))
			mark, arg := w.values.value(c)
			marks, args = append(marks, mark), append(args, arg)
		}
		query := fmt.Sprintf("%s INTO %s(%s) VALUES(%s)", verb, quoteName(t.name),
			strings.Join(names, ", "), strings.Join(marks, ", "))
		if len(names) == 0 {
			query = fmt.Sprintf("INSERT INTO %s DEFAULT VALUES", quoteName(t.name))
		}
		if err := exec(ctx, tx, query, args...); err != nil {
			return err
		}
	}
	return nil
}

// update changes one or two columns, now and then of the key, of a few rows.
func (w *Workload) update(ctx context.Context, tx *sql.Tx, t *workTable, rows int) error {
	verb := []string{"UPDATE OR REPLACE", "UPDATE OR IGNORE"}[w.rand.IntN(2)]
	var sets []string
	var args []any
	for _, i := range w.rand.Perm(len(t.columns))[:min(len(t.columns), 1+w.rand.IntN(2))] {
		c := t.columns[i]
		if c.key > 0 && w.rand.IntN(3) > 0 {
			continue
		}
		mark, arg := w.values.value(c)
		sets, args = append(sets, quoteName(c.name)+" = "+mark), append(args, arg)
	}
	if len(sets) == 0 {
		return nil
	}
	query := fmt.Sprintf("%s %s SET %s WHERE %s", verb, quoteName(t.name), strings.Join(sets, ", "), t.some())
	return exec(ctx, tx, query, append(args, 1+w.rand.IntN(5), w.rand.IntN(rows))...)
}

// delete removes n rows.
func (w *Workload) delete(ctx context.Context, tx *sql.Tx, t *workTable, rows, n int) error {
	query := fmt.Sprintf("DELETE FROM %s WHERE %s", quoteName(t.name), t.some())
	return exec(ctx, tx, query, n, w.rand.IntN(rows))
}

// changeKV puts or deletes a key of the key-value storage.
func (w *Workload) changeKV(ctx context.Context, tx *sql.Tx) error {
	key := fmt.Sprintf("key %d", w.rand.IntN(w.cfg.Rows))
	if w.rand.IntN(4) == 0 {
		return exec(ctx, tx, `DELETE FROM _cf_KV WHERE scope = ? AND k = ?`, w.cfg.Scope, key)
	}
	value, err := V8(map[string]any{"n": w.rand.IntN(1000), "text": w.values.text(), "list": []any{nil, true, w.rand.Float64()}})
	if err != nil {
		return err
	}
	return exec(ctx, tx, `INSERT OR REPLACE INTO _cf_KV(scope, k, v) VALUES(?, ?, ?)`, w.cfg.Scope, key, value)
}

// exec runs one statement.
func exec(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("execute %q: %w", abbreviate(query), err)
	}
	return nil
}
