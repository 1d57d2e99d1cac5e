package delivery

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"celldexport/envelope"
	"celldexport/sinks"
)

// A record that a sink's place will never take is a hole in what that sink
// holds. It is noted when its entry is acknowledged, in the same transaction;
// from then on the epoch gets no watermark in that sink until a gap that
// covers the hole is acknowledged there, so that no certificate ever stands
// over a loss that the consumer was not told of.

const refusalSchema = `
CREATE TABLE IF NOT EXISTS refusal (
  sink INTEGER NOT NULL, stream BLOB NOT NULL, epoch INTEGER NOT NULL, scope TEXT NOT NULL,
  from_epoch INTEGER NOT NULL, from_txid INTEGER NOT NULL, from_commit INTEGER NOT NULL,
  to_txid INTEGER NOT NULL, to_commit INTEGER NOT NULL,
  records INTEGER NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (sink, stream, epoch)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dropped (sink INTEGER PRIMARY KEY, records INTEGER NOT NULL);`

// Refusal is what a sink's place refused for good of one epoch of a stream
// and no gap tells of yet.
type Refusal struct {
	Sink   string
	Stream envelope.Stream
	Epoch  uint64
	// Scope is the bucket scope of the stream.
	Scope string
	// From is the position that the sink delivered last before the first
	// refused record, To that of the last one.
	From, To envelope.Position
	// Last is the highest position of the epoch that is or was in the spool.
	Last envelope.Position
	// CellName, CommittedAt and Node are of the entry at Last.
	CellName    *string
	CommittedAt int64
	Node        string
	// Records is how many were refused, fragments counted one by one, and
	// Reason why the first one was.
	Records int64
	Reason  string

	// lost is how many gaps of the epoch did not arrive before.
	lost int
}

// refused is what a sink said of records it took and has not acknowledged.
type refused struct {
	mu sync.Mutex
	by map[uint64]map[int64]string
}

func (r *refused) add(seq uint64, one sinks.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[uint64]map[int64]string{}
	}
	if r.by[seq] == nil {
		r.by[seq] = map[int64]string{}
	}
	r.by[seq][one.Record] = one.Reason
}

// of are the refused records of an entry by index, nil when there are none.
func (r *refused) of(seq uint64) map[int64]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[seq]
}

// begin forgets what an earlier run of the sink said and did not acknowledge:
// it sends those records again, and the place may take them now.
func (r *refused) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.by = nil
}

// settled forgets what is posted.
func (r *refused) settled(upto uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for seq := range r.by {
		if seq <= upto {
			delete(r.by, seq)
		}
	}
}

// Refuse notes a record that will never be stored; see [sinks.Queue].
func (q *queue) Refuse(seq uint64, one sinks.Refusal) error {
	if acked, _ := q.o.cursor(); seq > q.taken || seq <= acked {
		return fmt.Errorf("sink %s refused a record of entry %d, it holds those above %d through %d", q.o.sink.Name(), seq, acked, q.taken)
	}
	q.o.refused.add(seq, one)
	return nil
}

// takeSome posts an acknowledged entry of which records were refused.
func (p *posting) takeSome(entry *Stored, lost map[int64]string) error {
	h := entry.head
	p.dropped += int64(len(lost))
	key := accountKey{h.unit.Stream, h.unit.Position.Epoch}
	a, err := p.account(key)
	if err != nil {
		return err
	}
	if h.unit.Form == FormWatermark {
		// The sink has not got it: the next one starts where it would have.
		p.bytes += h.bytes
		if a != nil {
			a.unmarked(h.seq, p.now, p.idle)
		}
		return nil
	}
	if a == nil {
		if a, err = p.begin(key); err != nil {
			return err
		}
	}
	// What comes next lies behind it also when nothing of it is there. A link
	// stands before what its epoch begins with.
	from, moves := a.through, h.moves() && h.unit.Position.Commit > 0
	a.hold |= holdRefused
	if h.counted, err = wholeRecords(entry, lost); err != nil {
		return err
	}
	h.positions = min(h.positions, h.counted)
	h.records -= int64(len(lost))
	if h.unit.Sink != p.name || !h.gap {
		if err := p.note(&h, from, lost); err != nil {
			return err
		}
	}
	p.bytes += h.bytes
	p.records += h.records
	if moves || h.counted > 0 {
		return p.deliver(a, &h)
	}
	if a.node == "" {
		a.name(&h.unit)
	}
	return nil
}

// wholeRecords counts, as a watermark does, the records of an entry that have
// no fragment among the refused ones.
func wholeRecords(entry *Stored, lost map[int64]string) (uint64, error) {
	counted, index := uint64(0), int64(0)
	counts, whole := false, false
	for rec, err := range entry.Records() {
		if err != nil {
			return 0, err
		}
		if rec.Fragment == 1 {
			if counts && whole {
				counted++
			}
			counts, whole = envelope.Counts(&rec.Envelope, rec.Kind), true
		}
		if _, ok := lost[index]; ok {
			whole = false
		}
		index++
	}
	if counts && whole {
		counted++
	}
	return counted, nil
}

// note adds refused records to what is to be reported of the epoch.
func (p *posting) note(h *head, from envelope.Position, lost map[int64]string) error {
	first := int64(-1)
	for index := range lost {
		if first < 0 || index < first {
			first = index
		}
	}
	to := h.unit.Position
	from, err := p.lastBefore(h, from)
	if err != nil {
		return err
	}
	_, err = p.tx.Exec(`INSERT INTO refusal VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
		ON CONFLICT (sink, stream, epoch) DO UPDATE SET to_txid = ?8, to_commit = ?9, records = records + ?10`,
		p.sink, appendStream(nil, h.unit.Stream), int64(to.Epoch), h.unit.Scope,
		int64(from.Epoch), int64(from.TXID), int64(from.Commit), int64(to.TXID), int64(to.Commit),
		len(lost), lost[first])
	return err
}

// lastBefore is the position that was delivered last before refused records;
// delivered is that of their epoch. A snapshot of the whole stream stands for
// all that was passed over before it, which may have begun in an older epoch.
func (p *posting) lastBefore(h *head, delivered envelope.Position) (envelope.Position, error) {
	start := envelope.Position{Epoch: h.unit.Position.Epoch}
	if delivered.Epoch == start.Epoch {
		return delivered, nil
	}
	if !h.snapshot {
		return start, nil
	}
	older, err := p.tx.olderEpoch(p.sink, h.unit.Stream, start.Epoch)
	if err != nil {
		return start, err
	}
	for key := range p.accounts {
		if key.stream == h.unit.Stream && key.epoch < start.Epoch {
			older = max(older, key.epoch)
		}
	}
	a, err := p.account(accountKey{h.unit.Stream, older})
	if err != nil || a == nil || a.through.Epoch != older {
		return start, err
	}
	return a.through, nil
}

// olderEpoch is the newest epoch below another that a sink has something of, 0
// when there is none.
func (t *tx) olderEpoch(sink int64, s envelope.Stream, than uint64) (uint64, error) {
	var epoch sql.NullInt64
	err := t.QueryRow("SELECT max(epoch) FROM account WHERE sink = ? AND stream = ? AND epoch < ?", sink, keyOf(s), int64(than)).Scan(&epoch)
	return uint64(epoch.Int64), err
}

// told posts an acknowledged gap of this sink only: what it covers is told.
func (p *posting) told(entry *Stored) error {
	gap, err := gapOf(entry)
	if err != nil {
		return err
	}
	u := &entry.head.unit
	to := gap.To
	_, err = p.tx.Exec(`DELETE FROM refusal WHERE sink = ? AND stream = ? AND epoch = ? AND (to_txid, to_commit) <= (?, ?)`,
		p.sink, appendStream(nil, u.Stream), int64(to.Epoch), int64(to.TXID), int64(to.Commit))
	if err != nil {
		return err
	}
	var left int
	if err := p.tx.QueryRow(`SELECT count(*) FROM refusal WHERE sink = ? AND stream = ? AND epoch = ?`,
		p.sink, appendStream(nil, u.Stream), int64(to.Epoch)).Scan(&left); err != nil || left > 0 {
		return err
	}
	a, err := p.account(accountKey{u.Stream, u.Position.Epoch})
	if err != nil || a == nil {
		return err
	}
	a.hold &^= holdRefused
	return nil
}

// drop counts the refused records of a posting.
func (p *posting) drop() error {
	if p.dropped == 0 {
		return nil
	}
	_, err := p.tx.Exec(`INSERT INTO dropped VALUES (?1, ?2) ON CONFLICT (sink) DO UPDATE SET records = records + ?2`, p.sink, p.dropped)
	return err
}

// gapOf decodes the gap that an entry carries.
func gapOf(entry *Stored) (*envelope.Gap, error) {
	for rec, err := range entry.Records() {
		if err != nil {
			return nil, err
		}
		r, err := rec.Decode()
		if err != nil {
			return nil, err
		}
		if gap, ok := r.Body.(*envelope.Gap); ok {
			return gap, nil
		}
	}
	return nil, entry.broken(errors.New("no gap in it"))
}

func (j *journal) refusals() ([]Refusal, error) {
	rows, err := j.db.Query(`SELECT s.name, r.stream, r.epoch, r.scope, r.from_epoch, r.from_txid, r.from_commit,
		r.to_txid, r.to_commit, r.records, r.reason FROM refusal r JOIN sink s ON s.id = r.sink ORDER BY r.sink, r.stream, r.epoch`)
	if err != nil {
		return nil, fmt.Errorf("read refused records in %s: %w", j.path, err)
	}
	defer rows.Close()
	var list []Refusal
	for rows.Next() {
		r, err := scanRefusal(rows)
		if err != nil {
			return nil, fmt.Errorf("read refused records in %s: %w", j.path, err)
		}
		list = append(list, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read refused records in %s: %w", j.path, err)
	}
	return list, nil
}

func scanRefusal(rows *sql.Rows) (Refusal, error) {
	var r Refusal
	var key []byte
	var epoch, fromEpoch, fromTXID, fromCommit, toTXID, toCommit int64
	if err := rows.Scan(&r.Sink, &key, &epoch, &r.Scope, &fromEpoch, &fromTXID, &fromCommit, &toTXID, &toCommit, &r.Records, &r.Reason); err != nil {
		return r, err
	}
	f := fields{b: key}
	r.Stream, r.Epoch = f.stream(), uint64(epoch)
	if f.bad {
		return r, errors.New("stream key does not decode")
	}
	r.From = envelope.Position{Epoch: uint64(fromEpoch), TXID: uint64(fromTXID), Commit: uint64(fromCommit)}
	r.To = envelope.Position{Epoch: r.Epoch, TXID: uint64(toTXID), Commit: uint64(toCommit)}
	return r, nil
}

// dropped is how many records of a sink were refused since delivery.db was
// made.
func (j *journal) dropped(sink int64) (int64, error) {
	var n int64
	err := j.db.QueryRow("SELECT coalesce(sum(records), 0) FROM dropped WHERE sink = ?", sink).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("read refused records in %s: %w", j.path, err)
	}
	return n, nil
}
