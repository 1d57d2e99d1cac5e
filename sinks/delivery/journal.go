package delivery

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"

	"celldexport/envelope"

	_ "modernc.org/sqlite" // the "sqlite" driver
)

// journal keeps what every sink has acknowledged: its cursor over the spool
// and its accounts. It is a database because idle streams are many and must
// not sit in memory.
type journal struct {
	path string
	db   *sql.DB
	// changing keeps changes apart.
	changing sync.Mutex
	// get, put and old are of accounts; they are prepared once.
	get, put, old *sql.Stmt
	// committed is called after every durable change, while no other can
	// begin; tests look at the disk there.
	committed func()
	// failed is told of errors of a change.
	failed func(error)
}

const (
	journalFile   = "delivery.db"
	journalFormat = 1
	journalSchema = `
CREATE TABLE IF NOT EXISTS sink (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
  cursor INTEGER NOT NULL, since INTEGER NOT NULL,
  records INTEGER NOT NULL, watermarks INTEGER NOT NULL, state BLOB);
CREATE TABLE IF NOT EXISTS account (
  sink INTEGER NOT NULL, stream BLOB NOT NULL, epoch INTEGER NOT NULL,
  due INTEGER, body BLOB NOT NULL, PRIMARY KEY (sink, stream, epoch)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS account_due ON account (sink, due) WHERE due IS NOT NULL;`
)

func openJournal(dir string) (*journal, error) {
	j := &journal{path: filepath.Join(dir, journalFile), committed: func() {}, failed: func(error) {}}
	query := url.Values{"_pragma": {
		"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(10000)", "locking_mode(EXCLUSIVE)",
	}, "_txlock": {"immediate"}}
	name := url.URL{Scheme: "file", Path: j.path, RawQuery: query.Encode()}
	db, err := sql.Open("sqlite", name.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", j.path, err)
	}
	db.SetMaxOpenConns(1)
	j.db = db
	if err := j.migrate(); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", j.path, err), db.Close())
	}
	return j, nil
}

func (j *journal) migrate() error {
	var format int
	if err := j.db.QueryRow("PRAGMA user_version").Scan(&format); err != nil {
		return err
	}
	if format > journalFormat {
		return fmt.Errorf("it has format %d, this program knows %d", format, journalFormat)
	}
	if _, err := j.db.Exec(journalSchema + refusalSchema + behindSchema + quietSchema); err != nil {
		return err
	}
	if _, err := j.db.Exec(fmt.Sprintf("PRAGMA user_version = %d", journalFormat)); err != nil {
		return err
	}
	return j.prepare()
}

func (j *journal) prepare() (err error) {
	for text, to := range map[string]**sql.Stmt{
		"SELECT stream, epoch, due, body FROM account WHERE sink = ? AND stream = ? AND epoch = ?": &j.get,
		`INSERT INTO account (sink, stream, epoch, due, body) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (sink, stream, epoch) DO UPDATE SET due = excluded.due, body = excluded.body`: &j.put,
		`SELECT epoch FROM account WHERE sink = ?1 AND stream = ?2 AND due IS NULL AND epoch <
			(SELECT epoch FROM account WHERE sink = ?1 AND stream = ?2 ORDER BY epoch DESC LIMIT 1 OFFSET ?3)`: &j.old,
	} {
		if *to, err = j.db.Prepare(text); err != nil {
			return err
		}
	}
	return nil
}

func (j *journal) close() error { return j.db.Close() }

// sinkRow is a sink as the journal knows it.
type sinkRow struct {
	id            int64
	name          string
	cursor, since uint64
	records       int64
	watermarks    int64
}

func (j *journal) sinks() (map[string]sinkRow, error) {
	rows, err := j.db.Query("SELECT id, name, cursor, since, records, watermarks FROM sink")
	if err != nil {
		return nil, fmt.Errorf("read sinks of %s: %w", j.path, err)
	}
	defer rows.Close()
	found := map[string]sinkRow{}
	for rows.Next() {
		var r sinkRow
		var cursor, since int64
		if err := rows.Scan(&r.id, &r.name, &cursor, &since, &r.records, &r.watermarks); err != nil {
			return nil, fmt.Errorf("read sinks of %s: %w", j.path, err)
		}
		r.cursor, r.since = uint64(cursor), uint64(since)
		found[r.name] = r
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read sinks of %s: %w", j.path, err)
	}
	return found, nil
}

// attach adds a sink that begins above cursor, or moves it there when it is
// known already. Every stream that any sink has something of, and those that
// more names, are behind in it. A watermark that was spooled for it is gone;
// another may follow it.
func (j *journal) attach(name string, cursor uint64, known bool, now, idle int64, more map[envelope.Stream]bool) error {
	return j.change(context.Background(), func(tx *tx) error {
		var id int64
		if !known {
			_, err := tx.Exec("INSERT INTO sink (name, cursor, since, records, watermarks) VALUES (?, ?, ?, 0, 0)",
				name, int64(cursor), int64(cursor))
			if err != nil {
				return err
			}
		}
		if err := tx.QueryRow("SELECT id FROM sink WHERE name = ?", name).Scan(&id); err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE sink SET cursor = ?, since = ? WHERE id = ?", int64(cursor), int64(cursor), id); err != nil {
			return err
		}
		for _, table := range []string{"detached", "quiet"} {
			if _, err := tx.Exec("DELETE FROM "+table+" WHERE sink = ?", id); err != nil {
				return err
			}
		}
		if err := tx.unmark(id, 0, now, idle); err != nil {
			return err
		}
		return tx.allBehind(id, cursor, more)
	})
}

// tx is a transaction on the journal.
type tx struct {
	*sql.Tx
	get, put, old *sql.Stmt
}

// change runs fn in a transaction that is durable when it returns nil.
func (j *journal) change(ctx context.Context, fn func(*tx) error) error {
	err := transact(ctx, j, fn)
	if err != nil {
		j.failed(err) // the connection is free again
	}
	return err
}

func transact(ctx context.Context, j *journal, fn func(*tx) error) error {
	j.changing.Lock()
	defer j.changing.Unlock()
	t, err := j.db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return fmt.Errorf("begin in %s: %w", j.path, err)
	}
	if err := fn(&tx{t, t.Stmt(j.get), t.Stmt(j.put), t.Stmt(j.old)}); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", j.path, err), t.Rollback())
	}
	if err := t.Commit(); err != nil {
		return fmt.Errorf("commit %s: %w", j.path, err)
	}
	j.committed()
	return nil
}

func (j *journal) load(sink int64) ([]byte, error) {
	var state []byte
	if err := j.db.QueryRow("SELECT state FROM sink WHERE id = ?", sink).Scan(&state); err != nil {
		return nil, fmt.Errorf("read sink state in %s: %w", j.path, err)
	}
	return state, nil
}

func (j *journal) save(sink int64, state []byte) error {
	return j.change(context.Background(), func(tx *tx) error {
		_, err := tx.Exec("UPDATE sink SET state = ? WHERE id = ?", state, sink)
		return err
	})
}

// due are the accounts whose watermark is to be spooled by now (0: whenever
// it is due), at most limit. None is due later than idle from now, but for a
// clock that was set back since: such a one is due as well.
func (j *journal) due(sink int64, now, idle int64, limit int) ([]*account, error) {
	rows, err := j.db.Query(`SELECT stream, epoch, due, body FROM account
		WHERE sink = ?1 AND due IS NOT NULL AND (?2 = 0 OR due <= ?2 OR due > ?2 + ?4) ORDER BY due, stream, epoch LIMIT ?3`, sink, now, limit, idle)
	if err != nil {
		return nil, fmt.Errorf("read due watermarks in %s: %w", j.path, err)
	}
	defer rows.Close()
	var found []*account
	for rows.Next() {
		a, err := scanAccount(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("read due watermarks in %s: %w", j.path, err)
		}
		found = append(found, a)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read due watermarks in %s: %w", j.path, err)
	}
	return found, nil
}

// nextDue is the earliest time a watermark of a sink is due, 0 when there is
// none.
func (j *journal) nextDue(sink int64) (int64, error) {
	var at sql.NullInt64
	err := j.db.QueryRow("SELECT min(due) FROM account WHERE sink = ? AND due IS NOT NULL", sink).Scan(&at)
	if err != nil {
		return 0, fmt.Errorf("read due watermarks in %s: %w", j.path, err)
	}
	return at.Int64, nil
}

// account is one account, nil when there is none.
func (j *journal) account(sink int64, s envelope.Stream, epoch uint64) (*account, error) {
	a, err := scanAccount(j.get.QueryRow(sink, appendStream(nil, s), int64(epoch)).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read account in %s: %w", j.path, err)
	}
	return a, nil
}

func (j *journal) forget(ctx context.Context, streams []envelope.Stream) error {
	return j.change(ctx, func(tx *tx) error {
		for _, s := range streams {
			if _, err := tx.Exec("DELETE FROM account WHERE sink IN (SELECT id FROM sink) AND stream = ?", appendStream(nil, s)); err != nil {
				return err
			}
		}
		return nil
	})
}

var errStreamKey = errors.New("stream key does not decode")

func scanAccount(scan func(...any) error) (*account, error) {
	var key, body []byte
	var epoch int64
	var due sql.NullInt64
	if err := scan(&key, &epoch, &due, &body); err != nil {
		return nil, err
	}
	f := fields{b: key}
	a := &account{stream: f.stream(), epoch: uint64(epoch), due: due.Int64}
	if f.bad {
		return nil, errStreamKey
	}
	return a, a.decode(body)
}

// load is one account, nil when there is none.
func (t *tx) load(sink int64, s envelope.Stream, epoch uint64) (*account, error) {
	a, err := scanAccount(t.get.QueryRow(sink, appendStream(nil, s), int64(epoch)).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return a, err
}

// oldEpochs are those of a stream's accounts that are not due and not among
// the newest.
func (t *tx) oldEpochs(sink int64, s envelope.Stream) ([]uint64, error) {
	rows, err := t.old.Query(sink, keyOf(s), keptEpochs-2)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []uint64
	for rows.Next() {
		var epoch int64
		if err := rows.Scan(&epoch); err != nil {
			return nil, err
		}
		list = append(list, uint64(epoch))
	}
	return list, rows.Err()
}

func (t *tx) store(sink int64, a *account) error {
	_, err := t.put.Exec(sink, appendStream(nil, a.stream), int64(a.epoch), sql.NullInt64{Int64: a.due, Valid: a.due != 0}, a.encode())
	return err
}
