// Package state is the exporter's own directory: the lock that one process
// holds, the identity that tells a lost or copied directory from ours, and
// the database of streams: how far each is spooled and which shadow file
// holds it.
package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Format is the version of everything in the directory.
const Format = 1

var (
	// ErrInUse is returned when another process holds the directory.
	ErrInUse = errors.New("state directory is in use")
	// ErrNewer is returned for a directory that a newer program wrote.
	ErrNewer = errors.New("state directory has a newer format")
)

// Dir is an open state directory. One process holds it at a time.
type Dir struct {
	path string
	lock *os.File
	db   *sql.DB
}

// Open creates the directory when needed, locks it and opens its database. A
// directory that another process holds gives ErrInUse with that process's id.
func Open(ctx context.Context, path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find the state directory: %w", err)
	}
	for _, sub := range []string{"", shadowDir, spoolDir, tempDir, deliveryDir} {
		if err := os.MkdirAll(filepath.Join(path, sub), 0o700); err != nil {
			return nil, fmt.Errorf("create state directory: %w", err)
		}
	}
	lock, err := lockFile(filepath.Join(path, "lock"))
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path, lock: lock}
	if err := emptyDir(d.Temp()); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

const (
	shadowDir   = "shadow"
	spoolDir    = "spool"
	tempDir     = "tmp"
	deliveryDir = "delivery"
)

// Path is the directory itself, Shadows, Spool and Temp its parts.
func (d *Dir) Path() string { return d.path }

// Shadows holds our copies of the cells' databases.
func (d *Dir) Shadows() string { return filepath.Join(d.path, shadowDir) }

// Spool holds what the sinks have not acknowledged.
func (d *Dir) Spool() string { return filepath.Join(d.path, spoolDir) }

// Delivery holds what the sinks have acknowledged.
func (d *Dir) Delivery() string { return filepath.Join(d.path, deliveryDir) }

// Temp holds spill files of the running process.
func (d *Dir) Temp() string { return filepath.Join(d.path, tempDir) }

// lockFile takes an exclusive lock that ends with the process.
func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(name)
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		return nil, fmt.Errorf("%w: process %s holds %s; run one exportd per state directory", ErrInUse, strings.TrimSpace(string(holder)), name)
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, fmt.Errorf("write lock file: %w", err)
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("write lock file: %w", err)
	}
	return f, nil
}

func (d *Dir) open(ctx context.Context) error {
	name := filepath.Join(d.path, "state.db")
	// A path may hold characters that mean something in a URI.
	uri := url.URL{Scheme: "file", Path: name}
	db, err := sql.Open("sqlite", uri.String()+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return fmt.Errorf("open state database: %w", err)
	}
	// One connection: every statement is short and writes are serial.
	db.SetMaxOpenConns(1)
	d.db = db
	for _, stmt := range []string{
		`CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID`,
		`CREATE TABLE IF NOT EXISTS streams(scope TEXT PRIMARY KEY, open INTEGER NOT NULL, used INTEGER NOT NULL, departed INTEGER NOT NULL, doc TEXT NOT NULL) STRICT`,
		`CREATE INDEX IF NOT EXISTS streams_open ON streams(scope) WHERE open = 1`,
		departedIndex,
	} {
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("open state database %s: %w", name, err)
		}
	}
	return d.checkFormat(ctx)
}

func (d *Dir) checkFormat(ctx context.Context) error {
	have, err := d.meta(ctx, "format")
	if err != nil {
		return err
	}
	if have == "" {
		return d.setMeta(ctx, "format", strconv.Itoa(Format))
	}
	n, err := strconv.Atoi(have)
	if err != nil {
		return fmt.Errorf("state directory %s: format %q is not a number", d.path, have)
	}
	if n > Format {
		return fmt.Errorf("%w: %s has format %d, this program knows %d; run the newer exportd or move the directory away", ErrNewer, d.path, n, Format)
	}
	return nil
}

// Close releases the database and the lock.
func (d *Dir) Close() error {
	var err error
	if d.db != nil {
		err = d.db.Close()
	}
	return errors.Join(err, unlock(d.lock))
}

// unlock gives the lock up by name. Closing the file would not do: a child
// process that is being started holds a copy of it until it runs its program,
// and with that the lock.
func unlock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		return errors.Join(fmt.Errorf("unlock %s: %w", f.Name(), err), f.Close())
	}
	return f.Close()
}

func (d *Dir) meta(ctx context.Context, key string) (string, error) {
	var v string
	err := d.db.QueryRowContext(ctx, `SELECT value FROM meta WHERE key = ?`, key).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s from the state database: %w", key, err)
	}
	return v, nil
}

func (d *Dir) setMeta(ctx context.Context, key, value string) error {
	_, err := d.db.ExecContext(ctx, `INSERT INTO meta VALUES(?,?) ON CONFLICT(key) DO UPDATE SET value = excluded.value`, key, value)
	if err != nil {
		return fmt.Errorf("write %s to the state database: %w", key, err)
	}
	return nil
}
