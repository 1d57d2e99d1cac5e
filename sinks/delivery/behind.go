package delivery

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"celldexport/envelope"
)

// A stream is behind in a sink when entries of it were passed over there: the
// sink was not attached, or detached because the spool was full without it.
// Until the sink has a snapshot of the whole stream, entries for all sinks are
// not sent to it, so that its readers never pass through a state the cell was
// not in. What it was sent before keeps its certificate.

const behindSchema = `
CREATE TABLE IF NOT EXISTS behind (
  sink INTEGER NOT NULL, stream BLOB NOT NULL, since INTEGER NOT NULL,
  PRIMARY KEY (sink, stream, since)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS detached (sink INTEGER PRIMARY KEY, handed INTEGER NOT NULL, skipped INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS offered (sink INTEGER PRIMARY KEY, seq INTEGER NOT NULL);`

// fallBehind notes that entries of a stream above since are passed over.
func (t *tx) fallBehind(sink int64, stream []byte, since uint64) error {
	_, err := t.Exec("INSERT OR IGNORE INTO behind VALUES (?, ?, ?)", sink, stream, int64(since))
	return err
}

// allBehind notes that entries of every stream that any sink has something of,
// and of those that more names, are passed over above since.
func (t *tx) allBehind(sink int64, since uint64, more map[envelope.Stream]bool) error {
	all, err := t.streams()
	if err != nil {
		return err
	}
	for s := range more {
		all = append(all, keyOf(s))
	}
	for _, key := range all {
		if err := t.fallBehind(sink, key, since); err != nil {
			return err
		}
	}
	return nil
}

// behind is since when, at an entry, a stream is behind; false when it is not.
func behind(q querier, sink int64, stream []byte, seq uint64) (uint64, bool, error) {
	var since sql.NullInt64
	err := q.QueryRow("SELECT max(since) FROM behind WHERE sink = ? AND stream = ? AND since < ?", sink, stream, int64(seq)).Scan(&since)
	if err != nil {
		return 0, false, fmt.Errorf("look up a stream that is behind: %w", err)
	}
	return uint64(since.Int64), since.Valid, nil
}

// querier is a database or a transaction.
type querier interface {
	QueryRow(query string, args ...any) *sql.Row
}

// caughtUp notes that a sink has a snapshot of the whole stream from entry
// seq on.
func (t *tx) caughtUp(sink int64, stream []byte, seq uint64) error {
	_, err := t.Exec("DELETE FROM behind WHERE sink = ? AND stream = ? AND since < ?", sink, stream, int64(seq))
	return err
}

// anyBehind reports whether a sink has streams that are behind.
func (j *journal) anyBehind(sink int64) (bool, error) {
	var n int
	err := j.db.QueryRow("SELECT EXISTS (SELECT 1 FROM behind WHERE sink = ?)", sink).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", j.path, err)
	}
	return n != 0, nil
}

// behindCount is how many streams are behind in a sink.
func (j *journal) behindCount(sink int64) (int64, error) {
	var n int64
	err := j.db.QueryRow("SELECT count(DISTINCT stream) FROM behind WHERE sink = ?", sink).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", j.path, err)
	}
	return n, nil
}

// absence is what a detached sink was handed and how far it was passed over.
type absence struct{ handed, skipped uint64 }

// absent is the absence of a sink, nil when it is attached.
func (j *journal) absent(sink int64) (*absence, error) {
	var handed, skipped int64
	err := j.db.QueryRow("SELECT handed, skipped FROM detached WHERE sink = ?", sink).Scan(&handed, &skipped)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", j.path, err)
	}
	return &absence{uint64(handed), uint64(skipped)}, nil
}

// offered is the last entry that a sink may have been handed, in any life of
// this process; false when that was not noted.
func (j *journal) offered(sink int64) (uint64, bool, error) {
	var seq int64
	err := j.db.QueryRow("SELECT seq FROM offered WHERE sink = ?", sink).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read %s: %w", j.path, err)
	}
	return uint64(seq), true, nil
}

func (j *journal) noteOffered(sink int64, seq uint64) error {
	return j.change(context.Background(), func(tx *tx) error {
		_, err := tx.Exec("INSERT OR REPLACE INTO offered VALUES (?, ?)", sink, int64(seq))
		return err
	})
}

func (j *journal) forgetOffered(sink int64) error {
	return j.change(context.Background(), func(tx *tx) error {
		_, err := tx.Exec("DELETE FROM offered WHERE sink = ?", sink)
		return err
	})
}

// streams yields every stream that some sink has something of.
func (t *tx) streams() ([][]byte, error) {
	rows, err := t.Query("SELECT DISTINCT stream FROM account")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list [][]byte
	for rows.Next() {
		var key []byte
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		list = append(list, key)
	}
	return list, rows.Err()
}

// unmark drops watermarks of a sink that were spooled above seq and will not
// be sent: another takes the place of each.
func (t *tx) unmark(sink int64, above uint64, now, idle int64) error {
	rows, err := t.Query("SELECT stream, epoch, due, body FROM account WHERE sink = ?", sink)
	if err != nil {
		return err
	}
	defer rows.Close()
	var gone []*account
	for rows.Next() {
		a, err := scanAccount(rows.Scan)
		if err != nil {
			return err
		}
		if a.pending != nil && a.pending.seq > above {
			gone = append(gone, a)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, a := range gone {
		a.pending = nil
		a.schedule(now, idle)
		if err := t.store(sink, a); err != nil {
			return err
		}
	}
	return nil
}

// keyOf is a stream as the journal spells it.
func keyOf(s envelope.Stream) []byte { return appendStream(nil, s) }
