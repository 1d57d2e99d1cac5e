package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// storedRecord is a record that a fake sink stored.
type storedRecord struct {
	seq uint64
	rec *envelope.Record
	raw string
}

// fakeSink stores what it gets in batches, as the bucket does.
type fakeSink struct {
	name  string
	batch int           // entries acknowledged together
	every time.Duration // at most this long after the first of a batch

	mu      sync.Mutex             // covers a whole send
	keeping sync.Mutex             // covers stored
	fail    func(seq uint64) error // called before entries up to seq are stored
	lose    func(seq uint64) error // called after they are stored, before Ack
	stored  []storedRecord
	acks    []uint64
}

func (f *fakeSink) Name() string { return f.name }

func (f *fakeSink) Run(ctx context.Context, q sinks.Queue) error {
	for {
		var batch []storedRecord
		var deadline time.Time
		seq, n := uint64(0), 0
		for n < max(1, f.batch) {
			e, err := q.Next(ctx, deadline)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			if e == nil {
				break
			}
			if n == 0 && f.every > 0 {
				deadline = time.Now().Add(f.every)
			}
			n, seq = n+1, e.Seq()
			for rec, err := range e.Records() {
				if err != nil {
					return err
				}
				r, err := rec.Decode()
				if err != nil {
					return err
				}
				batch = append(batch, storedRecord{e.Seq(), r, string(rec.AppendJSON(nil))})
			}
		}
		if n == 0 {
			continue
		}
		if err := f.send(q, seq, batch); err != nil {
			return err
		}
	}
}

func (f *fakeSink) send(q sinks.Queue, seq uint64, batch []storedRecord) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		if err := f.fail(seq); err != nil {
			return err
		}
	}
	f.keeping.Lock()
	f.stored = append(f.stored, batch...)
	f.keeping.Unlock()
	if f.lose != nil {
		if err := f.lose(seq); err != nil {
			return err
		}
	}
	f.acks = append(f.acks, seq)
	return q.Ack(seq)
}

func (f *fakeSink) records() []storedRecord {
	f.keeping.Lock()
	defer f.keeping.Unlock()
	return slices.Clone(f.stored)
}

func (f *fakeSink) watermarks(s envelope.Stream) []*envelope.Watermark {
	var out []*envelope.Watermark
	for _, r := range f.records() {
		if w, ok := r.rec.Body.(*envelope.Watermark); ok && r.rec.Stream == s {
			out = append(out, w)
		}
	}
	return out
}

// certificate is the end of the chain of watermarks of each stream and epoch,
// recounted from stored records as a consumer does. It also fails the test on
// a watermark that is not true, on resends that differ and on two marks that
// begin alike.
func certificate(t testing.TB, stored []storedRecord) map[accountKey]envelope.Position {
	t.Helper()
	bySeq := map[string]string{}
	held := map[accountKey]map[string]*envelope.Record{}
	marks := map[accountKey][]*envelope.Watermark{}
	for _, r := range stored {
		id := fmt.Sprint(r.seq, r.rec.Body.Kind(), r.rec.Fragment)
		if w, ok := r.rec.Body.(*envelope.Rows); ok {
			id += w.Table
		}
		if old, ok := bySeq[id]; ok {
			if old != r.raw {
				t.Errorf("entry %d was resent as other bytes:\n%s\n%s", r.seq, old, r.raw)
			}
			continue
		}
		bySeq[id] = r.raw
		key := accountKey{r.rec.Stream, r.rec.Position.Epoch}
		if w, ok := r.rec.Body.(*envelope.Watermark); ok {
			marks[key] = append(marks[key], w)
			continue
		}
		if held[key] == nil {
			held[key] = map[string]*envelope.Record{}
		}
		held[key][r.raw] = r.rec
	}
	ends := map[accountKey]envelope.Position{}
	for key, chain := range marks {
		var last *envelope.Position
		for _, w := range chain {
			if (w.From == nil) != (last == nil) || (last != nil && *w.From != *last) {
				t.Errorf("%v epoch %d: watermark from %v after one through %v", key.stream, key.epoch, w.From, last)
			}
			positions := map[envelope.Position]bool{}
			records := uint64(0)
			for _, r := range held[key] {
				if envelope.Counts(&r.Envelope, r.Body.Kind()) && r.Fragment == 1 && (last == nil || r.Position.Compare(*last) > 0) && r.Position.Compare(w.Through) <= 0 {
					positions[r.Position] = true
					records++
				}
			}
			if records != w.Records || uint64(len(positions)) != w.Commits {
				t.Errorf("%v epoch %d: watermark through %v counts %d records at %d positions, held are %d at %d",
					key.stream, key.epoch, w.Through, w.Records, w.Commits, records, len(positions))
			}
			last = &w.Through
		}
		ends[key] = *last
	}
	return ends
}

// rows is a real record, which decodes, of n tables at the unit's position.
func rowsRecord(u Unit, table string) envelope.Encoded {
	e, err := envelope.Encode(&envelope.Record{
		Envelope: record(u, envelope.KindRows, "").Envelope,
		Body: &envelope.Rows{
			TableGeneration: envelope.TableGeneration{Table: table, Generation: 1}, Columns: []string{"a"}, KeyColumns: []string{"a"},
			Changes: []envelope.RowChange{{Op: envelope.Insert, Key: []envelope.Value{envelope.Int(1)}, Row: []envelope.Value{envelope.Int(1)}}},
		},
	})
	if err != nil {
		panic(err)
	}
	return e
}

func linkRecord(u Unit) envelope.Encoded {
	e, err := envelope.Encode(&envelope.Record{
		Envelope: record(u, envelope.KindLink, "").Envelope,
		Body:     &envelope.Link{StartTXID: u.Position.TXID, Mode: envelope.ModeFresh},
	})
	if err != nil {
		panic(err)
	}
	return e
}

// add spools real records.
func add(s *Spool, u Unit, recs ...envelope.Encoded) (uint64, error) {
	w, err := s.Begin(u)
	if err != nil {
		return 0, err
	}
	defer w.Abort()
	for i := range recs {
		if err := w.Record(&recs[i]); err != nil {
			return 0, err
		}
	}
	return w.Commit()
}

func mustAdd(t testing.TB, s *Spool, u Unit, recs ...envelope.Encoded) uint64 {
	t.Helper()
	seq, err := add(s, u, recs...)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// unitOf spools a unit with n rows records and syncs.
func unitOf(t testing.TB, s *Spool, u Unit, n int) uint64 {
	t.Helper()
	var recs []envelope.Encoded
	for i := range n {
		recs = append(recs, rowsRecord(u, fmt.Sprint("t", i)))
	}
	seq := mustAdd(t, s, u, recs...)
	syncSpool(t, s)
	return seq
}

// linkOf spools the link that begins the epoch of stream n.
func linkOf(t testing.TB, s *Spool, n int) {
	t.Helper()
	u := unit(n, 1)
	u.Form, u.Position.Commit = FormRecords, 0
	mustAdd(t, s, u, linkRecord(u))
	syncSpool(t, s)
}

var errNoPlace = errors.New("the place is gone")
