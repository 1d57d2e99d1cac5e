package state

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"iter"
	"math"
)

// departedIndex holds the closed streams that have a shadow in the order of
// their last use, with its size, so that measuring reads no document. The size
// is 0 for every other stream.
const departedIndex = `CREATE INDEX IF NOT EXISTS streams_departed ON streams(used, scope, departed) WHERE departed > 0`

const departedBytes = `SELECT total(departed) FROM streams WHERE departed > 0`

// Bytes is what the shadow takes on disk with the owner map beside it.
func (s Shadow) Bytes() int64 { return int64(s.Commit) * (int64(s.PageSize) + 8) }

// departed is what the stream adds to Departed.
func (s *Stream) departed() int64 {
	if !s.Residency.Closed || s.Shadow.File == "" {
		return 0
	}
	return max(1, s.Shadow.Bytes())
}

// Departed are the closed streams that have a shadow.
type Departed struct{ db *sql.DB }

// Departed are the closed streams that have a shadow.
func (d *Dir) Departed() Departed { return Departed{d.db} }

// Bytes is what their shadows take on disk.
func (d Departed) Bytes(ctx context.Context) (int64, error) {
	var n float64
	if err := d.db.QueryRowContext(ctx, departedBytes).Scan(&n); err != nil {
		return 0, fmt.Errorf("measure departed streams: %w", err)
	}
	return int64(n), nil
}

// All yields the streams, the longest unused first. They may be saved
// meanwhile.
func (d Departed) All(ctx context.Context) iter.Seq2[*Stream, error] {
	return func(yield func(*Stream, error) bool) {
		used, scope := int64(math.MinInt64), ""
		for {
			page, err := d.after(ctx, used, scope)
			for _, p := range page {
				var s Stream
				if err = json.Unmarshal([]byte(p.doc), &s); err != nil || !yield(&s, nil) {
					break
				}
				used, scope = p.used, p.scope
			}
			if err != nil {
				yield(nil, fmt.Errorf("list departed streams: %w", err))
				return
			}
			if len(page) == 0 || scope != page[len(page)-1].scope {
				return
			}
		}
	}
}

// departedPage is how many documents Departed holds at once.
const departedPage = 64

type departedRow struct {
	used       int64
	scope, doc string
}

func (d Departed) after(ctx context.Context, used int64, scope string) ([]departedRow, error) {
	rows, err := d.db.QueryContext(ctx, `SELECT used, scope, doc FROM streams WHERE departed > 0 AND (used, scope) > (?, ?) ORDER BY used, scope LIMIT ?`, used, scope, departedPage)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []departedRow
	for rows.Next() {
		var r departedRow
		if err := rows.Scan(&r.used, &r.scope, &r.doc); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}
