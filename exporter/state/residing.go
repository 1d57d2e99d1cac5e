package state

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"celldexport/envelope"
)

// Residing is a residency that is not closed.
type Residing struct {
	Scope string
	// ID is the stream's name in records.
	ID    envelope.Stream
	Epoch uint64
	// Uncertified: records of the epoch went out before this state directory
	// was made.
	Uncertified bool
}

// residingAtOnce is how many are read together, so that the database is not
// held up.
const residingAtOnce = 500

// Residencies yields the residencies of bound streams that are not closed and
// whose scopes come after one ("" for all), in the order of scopes. Those that
// begin meanwhile may be left out.
func (d *Dir) Residencies(ctx context.Context, after string) iter.Seq2[Residing, error] {
	return func(yield func(Residing, error) bool) {
		for after := after; ; {
			some, last, err := d.residencies(ctx, after)
			if err != nil {
				yield(Residing{}, fmt.Errorf("list open residencies: %w", err))
				return
			}
			for _, r := range some {
				if !yield(r, nil) {
					return
				}
			}
			if last == "" {
				return
			}
			after = last
		}
	}
}

// residencies are the next after a scope, and the last scope seen, "" at the
// end.
func (d *Dir) residencies(ctx context.Context, after string) (some []Residing, last string, err error) {
	rows, err := d.db.QueryContext(ctx, `SELECT scope, doc FROM streams WHERE open = 1 AND scope > ? ORDER BY scope LIMIT ?`, after, residingAtOnce)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	for rows.Next() {
		var doc string
		if err := rows.Scan(&last, &doc); err != nil {
			return nil, "", err
		}
		var s Stream
		if err := json.Unmarshal([]byte(doc), &s); err != nil {
			return nil, "", fmt.Errorf("%s: %w", last, err)
		}
		if s.Bound() {
			some = append(some, Residing{Scope: s.Scope, ID: s.ID, Epoch: s.Residency.Epoch, Uncertified: s.Residency.Uncertified})
		}
	}
	return some, last, rows.Err()
}
