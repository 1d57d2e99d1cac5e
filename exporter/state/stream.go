package state

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"celldexport/envelope"
)

// Stream is what is known of one stream: the identity it is bound to, its
// residency here and the shadow of its database. It is stored after the
// shadow is synced, so it never runs ahead of it.
type Stream struct {
	// Scope is the bucket scope.
	Scope string `json:"scope"`
	// ID is the stream's name in records; the zero value before it is bound.
	ID envelope.Stream `json:"id"`
	// Life is the index of this state directory in the ledger's list of
	// states of the stream.
	Life uint64 `json:"life"`
	// CellName and CommittedAt are those of the last unit.
	CellName    *string   `json:"cell_name"`
	CommittedAt int64     `json:"committed_at"`
	Residency   Residency `json:"residency"`
	Shadow      Shadow    `json:"shadow"`
	// Used is when something of the stream was spooled last, in microseconds
	// since the Unix epoch. It orders Departed.
	Used int64 `json:"used"`
	// Described are the table generations whose schema record went out in
	// the residency's epoch.
	Described []envelope.TableGeneration `json:"described,omitempty"`
}

// Residency is how far the stream's newest residency on this node is.
type Residency struct {
	Epoch uint64 `json:"epoch"`
	Start uint64 `json:"start"`
	// Spooled is the last txid whose unit is in the spool.
	Spooled uint64 `json:"spooled"`
	// Next numbers positions that are no unit within this life.
	Next uint64 `json:"next"`
	// Pinned: the ledger holds the epoch. Linked: its link is spooled.
	// Closed: nothing more of it will be spooled.
	Pinned bool `json:"pinned"`
	Linked bool `json:"linked"`
	Closed bool `json:"closed"`
	// Based: the shadow is the state at Spooled of this epoch. Until then it
	// is that of an earlier residency.
	Based bool `json:"based"`
	// Uncertified: the chain of this epoch was lost with an earlier state
	// directory, so it gets no watermark any more.
	Uncertified bool `json:"uncertified"`
	// Hole is the first of the transactions that a gap said to be gone, 0
	// for none.
	Hole uint64 `json:"hole,omitempty"`
}

// End is where the residency ends when it is closed now: at the last txid
// that was spooled, or before its start when nothing is based. A re-base that
// was cut short names its position before anything of it is in the spool.
func (r Residency) End() uint64 {
	if !r.Based && r.Start > 0 {
		return r.Start - 1
	}
	return r.Spooled
}

// Shadow names the file that holds the database at Residency.Spooled, or at
// the close of the residency before when nothing is based yet.
type Shadow struct {
	// File is a name below Dir.Shadows, "" when there is none.
	File     string `json:"file"`
	PageSize uint32 `json:"page_size"`
	// Commit is the database's size in pages.
	Commit uint32 `json:"commit"`
	// Epoch and TXID are the position that the pages are at.
	Epoch uint64 `json:"epoch"`
	TXID  uint64 `json:"txid"`
}

// Bound reports whether the stream has its identity.
func (s *Stream) Bound() bool { return s.ID.Cell != "" }

// Load reads a stream; nil when it is not known.
func (d *Dir) Load(ctx context.Context, scope string) (*Stream, error) {
	var doc string
	err := d.db.QueryRowContext(ctx, `SELECT doc FROM streams WHERE scope = ?`, scope).Scan(&doc)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read state of %s: %w", scope, err)
	}
	var s Stream
	if err := json.Unmarshal([]byte(doc), &s); err != nil {
		return nil, fmt.Errorf("read state of %s: %w", scope, err)
	}
	return &s, nil
}

// Save stores streams in one transaction.
func (d *Dir) Save(ctx context.Context, streams ...*Stream) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("write state database: %w", err)
	}
	defer tx.Rollback() // no effect after Commit
	for _, s := range streams {
		doc, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("encode state of %s: %w", s.Scope, err)
		}
		open := 1
		if s.Residency.Closed {
			open = 0
		}
		if _, err := tx.ExecContext(ctx,
			`INSERT INTO streams(scope, open, used, departed, doc) VALUES(?,?,?,?,?)
				ON CONFLICT(scope) DO UPDATE SET open = excluded.open, used = excluded.used, departed = excluded.departed, doc = excluded.doc`,
			s.Scope, open, s.Used, s.departed(), string(doc)); err != nil {
			return fmt.Errorf("write state of %s: %w", s.Scope, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("write state database: %w", err)
	}
	return nil
}

// Open returns the scopes of streams whose residency is not closed.
func (d *Dir) Open(ctx context.Context) ([]string, error) {
	rows, err := d.db.QueryContext(ctx, `SELECT scope FROM streams WHERE open = 1 ORDER BY scope`)
	if err != nil {
		return nil, fmt.Errorf("list open streams: %w", err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var scope string
		if err := rows.Scan(&scope); err != nil {
			return nil, fmt.Errorf("list open streams: %w", err)
		}
		out = append(out, scope)
	}
	return out, rows.Err()
}

// ShadowFiles are the shadow files that streams name.
func (d *Dir) ShadowFiles(ctx context.Context) (map[string]struct{}, error) {
	rows, err := d.db.QueryContext(ctx, `SELECT json_extract(doc, '$.shadow.file') FROM streams WHERE json_extract(doc, '$.shadow.file') <> ''`)
	if err != nil {
		return nil, fmt.Errorf("list shadow files: %w", err)
	}
	defer rows.Close()
	files := make(map[string]struct{})
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("list shadow files: %w", err)
		}
		files[name] = struct{}{}
	}
	return files, rows.Err()
}
