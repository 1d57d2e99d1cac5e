package celldsim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"modernc.org/sqlite"

	"celldexport/internal/celld"
)

// Cell is a resident cell or facet: one database that one node holds at one
// epoch. It stays usable after another node took the cell over, as a paused
// owner does that has not noticed yet.
type Cell struct {
	node  *Node
	scope celld.Scope
	epoch uint64
	dir   string // <watch>/<scope>/ltx/e<epoch>
	root  *Cell  // nil for a root cell

	mu       sync.Mutex
	db       *sql.DB
	pragmas  []string
	txid     uint64 // last captured
	uploaded uint64 // last known to be in the bucket
	pages    uint32 // database size at the last capture
	pageSize uint32
	mark     walMark
	full     bool // the next capture is a full image whatever the WAL says
	paged    bool // the epoch continues its predecessor's txids
}

// Scope returns the cell's stream name: "Class:id", with "/facets/<hash>"
// segments for a facet.
func (c *Cell) Scope() string { return c.scope.String() }

// Epoch returns the epoch at which the node holds the cell.
func (c *Cell) Epoch() uint64 { return c.epoch }

// Node returns the node that holds the cell.
func (c *Cell) Node() *Node { return c.node }

// TXID returns the number of the last captured LTX file, 0 before the first.
func (c *Cell) TXID() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.txid
}

// Path returns the path of the live database.
func (c *Cell) Path() string { return filepath.Join(c.dir, celld.DatabaseName) }

// LTXDir returns the directory of the captured files.
func (c *Cell) LTXDir() string {
	return filepath.Join(c.dir, filepath.FromSlash(celld.LTXDirName))
}

// DB returns the cell's database. It has a single connection: a statement
// issued while a result set or transaction is open waits for it.
func (c *Cell) DB() *sql.DB {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db
}

// Exec runs SQL, which may be several statements, each its own transaction
// unless the text opens one.
func (c *Cell) Exec(query string, args ...any) error {
	if _, err := c.DB().Exec(query, args...); err != nil {
		return fmt.Errorf("execute %q on %s: %w", abbreviate(query), c.scope, err)
	}
	return nil
}

// abbreviate cuts long SQL for an error message.
func abbreviate(s string) string {
	if len(s) > 120 {
		return s[:120] + "..."
	}
	return s
}

// openDatabase opens the live database with the settings a celld connection
// has, except that checkpoints happen only when asked for. The pragmas run
// first, in order: page_size, encoding and auto_vacuum take effect on a
// database that does not exist yet.
func openDatabase(path string, pragmas []string) (*sql.DB, error) {
	query := url.Values{}
	for _, p := range pragmas {
		query.Add("_pragma", p)
	}
	for _, p := range []string{"journal_mode(wal)", "wal_autocheckpoint(0)", "synchronous(off)"} {
		query.Add("_pragma", p)
	}
	connector, err := sqlite.NewConnector(path + "?" + query.Encode())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	if err := db.Ping(); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, errors.Join(err, db.Close()))
	}
	return db, nil
}

// ownTables are the tables that celld and its replicator keep in every cell
// database.
const ownTables = `
CREATE TABLE IF NOT EXISTS _cf_KV(scope TEXT, k TEXT, v TEXT, PRIMARY KEY(scope,k));
CREATE TABLE IF NOT EXISTS _cf_ALARM(scope TEXT PRIMARY KEY, at_ms INTEGER, retry INTEGER, counted_retry INTEGER, generation INTEGER);
CREATE TABLE IF NOT EXISTS _cf_METADATA(scope TEXT PRIMARY KEY, actor_name TEXT);
`

// replicatorTables are the replicator's share of them.
const replicatorTables = `
CREATE TABLE IF NOT EXISTS _litestream_seq(id INTEGER PRIMARY KEY, seq INTEGER);
CREATE TABLE IF NOT EXISTS _litestream_lock(id INTEGER);
`

// setUp makes celld's tables, stores the object's name when there is one, and
// bumps the replicator's sequence, as every activation does.
func (c *Cell) setUp(ctx context.Context, name string) error {
	if _, err := c.db.ExecContext(ctx, ownTables+replicatorTables); err != nil {
		return fmt.Errorf("make the tables of celld in %s: %w", c.scope, err)
	}
	if name != "" {
		_, err := c.db.ExecContext(ctx, `INSERT INTO _cf_METADATA(scope, actor_name) VALUES(?, ?)
			ON CONFLICT(scope) DO UPDATE SET actor_name = excluded.actor_name
			WHERE actor_name IS NOT excluded.actor_name`, c.scope.String(), name)
		if err != nil {
			return fmt.Errorf("store the name of %s: %w", c.scope, err)
		}
	}
	return c.bump(ctx)
}

// Bump commits a change of the replicator's own sequence table and of nothing
// else, as the replicator does to force a WAL write.
func (c *Cell) Bump() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bump(context.Background())
}

func (c *Cell) bump(ctx context.Context) error {
	_, err := c.db.ExecContext(ctx, `INSERT INTO _litestream_seq(id, seq) VALUES(1, 1)
		ON CONFLICT(id) DO UPDATE SET seq = seq + 1`)
	if err != nil {
		return fmt.Errorf("bump the sequence of %s: %w", c.scope, err)
	}
	return nil
}

// KVPut stores a key of the object's key-value storage. The value is stored
// as given; [V8] makes values as the runtime does.
func (c *Cell) KVPut(key string, value []byte) error {
	return c.Exec(`INSERT INTO _cf_KV(scope, k, v) VALUES(?, ?, ?)
		ON CONFLICT(scope, k) DO UPDATE SET v = excluded.v`, c.scope.String(), key, value)
}

// KVDelete removes a key of the object's key-value storage.
func (c *Cell) KVDelete(key string) error {
	return c.Exec(`DELETE FROM _cf_KV WHERE scope = ? AND k = ?`, c.scope.String(), key)
}

// DeleteAll drops every table except the object's metadata, its alarm and the
// replicator's tables, then makes celld's tables anew, in one transaction.
func (c *Cell) DeleteAll(ctx context.Context) error {
	tables, err := c.droppable(ctx)
	if err != nil {
		return err
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
func (c *Cell) droppable(ctx context.Context) ([]string, error) {
	rows, err := c.DB().QueryContext(ctx, `SELECT name FROM pragma_table_list
		WHERE schema = 'main' AND type IN ('table', 'virtual') AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
		AND name NOT LIKE '\_litestream\_%' ESCAPE '\' AND name NOT IN ('_cf_METADATA', '_cf_ALARM') ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("list the tables of %s: %w", c.scope, err)
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var t string
		if err := rows.Scan(&t); err != nil {
			return nil, fmt.Errorf("list the tables of %s: %w", c.scope, err)
		}
		tables = append(tables, t)
	}
	return tables, rows.Err()
}

// quoteName quotes an SQL identifier.
func quoteName(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// closeClean closes the database as an orderly shutdown does: SQLite
// checkpoints it and removes the WAL.
func (c *Cell) closeClean() error {
	if err := c.db.Close(); err != nil {
		return fmt.Errorf("close the database of %s: %w", c.scope, err)
	}
	return nil
}

// closeHard closes the database and leaves the files as they were, which is
// what a killed process leaves behind. SQLite checkpoints on close, so the
// files are kept aside and put back.
func (c *Cell) closeHard() error {
	saved := map[string][]byte{}
	for _, path := range []string{c.Path(), c.Path() + "-wal"} {
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("drop the handles of %s: %w", c.scope, err)
		}
		saved[path] = b
	}
	if err := c.closeClean(); err != nil {
		return err
	}
	for path, b := range saved {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return fmt.Errorf("drop the handles of %s: %w", c.scope, err)
		}
	}
	return nil
}
