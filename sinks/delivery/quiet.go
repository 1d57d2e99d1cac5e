package delivery

import (
	"database/sql"

	"celldexport/envelope"
)

// A unit without records is nothing that a sink can miss, but watermarks go
// over it. Of those that are passed over for a detached sink the last of every
// epoch is kept, and counts as delivered when the sink is attached again,
// unless its stream is behind by then.

const quietSchema = `
CREATE TABLE IF NOT EXISTS quiet (
  sink INTEGER NOT NULL, stream BLOB NOT NULL, epoch INTEGER NOT NULL,
  txid INTEGER NOT NULL, commits INTEGER NOT NULL,
  cell_name TEXT, committed_at INTEGER NOT NULL, node TEXT NOT NULL, scope TEXT NOT NULL,
  PRIMARY KEY (sink, stream, epoch)) WITHOUT ROWID;`

// passQuiet notes units without records that are passed over.
func (t *tx) passQuiet(sink int64, units map[accountKey]*Unit) error {
	for key, u := range units {
		_, err := t.Exec("INSERT OR REPLACE INTO quiet VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", sink, keyOf(key.stream), int64(key.epoch),
			int64(u.Position.TXID), int64(u.Position.Commit), u.CellName, u.CommittedAt, u.Node, u.Scope)
		if err != nil {
			return err
		}
	}
	return nil
}

// takeQuiet takes what was passed over for delivered.
func (t *tx) takeQuiet(sink, now, idle int64) error {
	list, err := t.quiet(sink)
	if err != nil {
		return err
	}
	for i := range list {
		u := &list[i]
		_, lacks, err := behind(t.Tx, sink, keyOf(u.Stream), ^uint64(0)>>1)
		if err != nil {
			return err
		}
		a, err := t.load(sink, u.Stream, u.Position.Epoch)
		if err != nil {
			return err
		}
		if lacks || a == nil {
			continue
		}
		a.deliver(&summary{unit: *u}, now, idle)
		if err := t.store(sink, a); err != nil {
			return err
		}
	}
	_, err = t.Exec("DELETE FROM quiet WHERE sink = ?", sink)
	return err
}

func (t *tx) quiet(sink int64) ([]Unit, error) {
	rows, err := t.Query("SELECT stream, epoch, txid, commits, cell_name, committed_at, node, scope FROM quiet WHERE sink = ?", sink)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []Unit
	for rows.Next() {
		var key []byte
		var epoch, txid, commits int64
		var name sql.NullString
		u := Unit{Form: FormUnit}
		if err := rows.Scan(&key, &epoch, &txid, &commits, &name, &u.CommittedAt, &u.Node, &u.Scope); err != nil {
			return nil, err
		}
		if name.Valid {
			u.CellName = &name.String
		}
		f := fields{b: key}
		u.Stream, u.Position = f.stream(), envelope.Position{Epoch: uint64(epoch), TXID: uint64(txid), Commit: uint64(commits)}
		if f.bad {
			return nil, errStreamKey
		}
		list = append(list, u)
	}
	return list, rows.Err()
}
