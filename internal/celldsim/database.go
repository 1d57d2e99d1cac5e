package celldsim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"modernc.org/sqlite"

	"celldexport/internal/celld"
)

// database is the live SQLite database of one scope and epoch.
type database struct {
	scope   string
	dir     string // <watch>/<scope>/ltx/e<epoch>
	pragmas []string
	sql     *sql.DB
}

// path is where the database file is.
func (d *database) path() string { return filepath.Join(d.dir, celld.DatabaseName) }

// open opens the database.
func (d *database) open() error {
	var err error
	d.sql, err = openDatabase(d.path(), d.pragmas)
	return err
}

// openDatabase opens a database with the settings a celld connection has,
// except that checkpoints happen only when asked for. The pragmas run first,
// in order: page_size, encoding and auto_vacuum take effect on a database
// that does not exist yet.
func openDatabase(path string, pragmas []string) (*sql.DB, error) {
	query := url.Values{"_pragma": {"wal_autocheckpoint(0)", "synchronous(off)"}}
	connector, err := sqlite.NewConnector(path + "?" + query.Encode())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	// The driver sorts the pragmas of a connector by their text; the order
	// matters here, since the first one that writes page 1 fixes its size.
	for _, p := range append(slices.Clone(pragmas), "journal_mode(wal)") {
		if _, err := db.Exec("PRAGMA " + p); err != nil {
			return nil, fmt.Errorf("open %s: pragma %s: %w", path, p, errors.Join(err, db.Close()))
		}
	}
	return db, nil
}

// ownTables are the tables that celld keeps in every cell database.
const ownTables = `
CREATE TABLE IF NOT EXISTS _cf_KV(scope TEXT, k TEXT, v TEXT, PRIMARY KEY(scope,k));
CREATE TABLE IF NOT EXISTS _cf_ALARM(scope TEXT PRIMARY KEY, at_ms INTEGER, retry INTEGER, counted_retry INTEGER, generation INTEGER);
CREATE TABLE IF NOT EXISTS _cf_METADATA(scope TEXT PRIMARY KEY, actor_name TEXT);
`

// replicatorTables are those of its replicator.
const replicatorTables = `
CREATE TABLE IF NOT EXISTS _litestream_seq(id INTEGER PRIMARY KEY, seq INTEGER);
CREATE TABLE IF NOT EXISTS _litestream_lock(id INTEGER);
`

// setUp makes celld's tables, stores the object's name when there is one, and
// bumps the replicator's sequence, as every activation does.
func (d *database) setUp(ctx context.Context, name string) error {
	if _, err := d.sql.ExecContext(ctx, ownTables+replicatorTables); err != nil {
		return fmt.Errorf("make the tables of celld in %s: %w", d.scope, err)
	}
	if name != "" {
		_, err := d.sql.ExecContext(ctx, `INSERT INTO _cf_METADATA(scope, actor_name) VALUES(?, ?)
			ON CONFLICT(scope) DO UPDATE SET actor_name = excluded.actor_name
			WHERE actor_name IS NOT excluded.actor_name`, d.scope, name)
		if err != nil {
			return fmt.Errorf("store the name of %s: %w", d.scope, err)
		}
	}
	return d.bump(ctx)
}

// bump commits a change of the replicator's sequence.
func (d *database) bump(ctx context.Context) error {
	_, err := d.sql.ExecContext(ctx, `INSERT INTO _litestream_seq(id, seq) VALUES(1, 1)
		ON CONFLICT(id) DO UPDATE SET seq = seq + 1`)
	if err != nil {
		return fmt.Errorf("bump the sequence of %s: %w", d.scope, err)
	}
	return nil
}

// checkpoint moves the whole WAL into the database file and empties it.
func (d *database) checkpoint(ctx context.Context) error {
	var busy, frames, moved int
	row := d.sql.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`)
	if err := row.Scan(&busy, &frames, &moved); err != nil {
		return fmt.Errorf("checkpoint %s: %w", d.scope, err)
	}
	if busy != 0 {
		return fmt.Errorf("checkpoint %s: another connection holds the WAL", d.scope)
	}
	return nil
}

// closeClean closes the database as an orderly shutdown does: SQLite
// checkpoints it and removes the WAL.
func (d *database) closeClean() error {
	if err := d.sql.Close(); err != nil {
		return fmt.Errorf("close the database of %s: %w", d.scope, err)
	}
	return nil
}

// closeHard closes the database and leaves the files as they were, which is
// what a killed process leaves behind. SQLite checkpoints on close, so the
// files are kept aside and put back.
func (d *database) closeHard() error {
	saved := map[string][]byte{}
	for _, path := range []string{d.path(), d.path() + "-wal"} {
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("drop the handles of %s: %w", d.scope, err)
		}
		saved[path] = b
	}
	if err := d.closeClean(); err != nil {
		return err
	}
	for path, b := range saved {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return fmt.Errorf("drop the handles of %s: %w", d.scope, err)
		}
	}
	return nil
}

// remove closes the database in the orderly way and deletes its files and the
// captured ones.
func (d *database) remove() error {
	if err := d.closeClean(); err != nil {
		return err
	}
	return d.forget(os.Remove(d.path()))
}

// preserve is remove, except that the database stays as an evicted image.
func (d *database) preserve() error {
	if err := d.closeClean(); err != nil {
		return err
	}
	return d.forget(os.Rename(d.path(), filepath.Join(d.dir, celld.EvictedName)))
}

// forget deletes what lies beside a database that is gone.
func (d *database) forget(err error) error {
	for _, suffix := range []string{"-wal", "-shm"} {
		if e := os.Remove(d.path() + suffix); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	err = errors.Join(err, os.RemoveAll(filepath.Join(d.dir, celld.MetaDirName)))
	if err != nil {
		return fmt.Errorf("remove the files of %s: %w", d.scope, err)
	}
	return nil
}
