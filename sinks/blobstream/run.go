package blobstream

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// run is one run of the sink. It belongs to one goroutine, but for results.
type run struct {
	sink   *Sink
	queue  sinks.Queue
	sender *sender

	lanes map[uint32]*lane
	// ready are the lanes that have records and no batch under way.
	ready []*lane
	// deadline is when ready lanes are sent at the latest; full is set when
	// one has enough for a batch, urgent while nothing is to be held back.
	deadline     time.Time
	full, urgent bool
	// entries are those not acknowledged, in order; held is the size of their
	// records in memory.
	entries []*entry
	held    int64
	results results
	// reading is the entry that is read, and each is takeRecord.
	reading reading
	each    func(envelope.Encoded, error) bool
	// wait ends when a result arrives; it serves until then.
	wait context.Context
	wake context.CancelFunc
}

func (r *run) loop(ctx context.Context) error {
	defer func() {
		if r.wake != nil {
			r.wake()
		}
	}()
	for ctx.Err() == nil {
		if err := r.settle(); err != nil {
			return err
		}
		if r.due() {
			r.send(ctx)
		}
		if r.held >= r.sink.cfg.budget() {
			if err := r.results.wait(ctx); err != nil {
				return err
			}
			continue
		}
		if err := r.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// due says whether ready lanes are to be sent.
func (r *run) due() bool {
	if len(r.ready) == 0 {
		return false
	}
	return r.full || r.urgent || r.held >= r.sink.cfg.budget() || !r.sink.cfg.Now().Before(r.deadline)
}

// send sends a batch of every ready lane.
func (r *run) send(ctx context.Context) {
	batches := make([]*batch, len(r.ready))
	now := r.sink.cfg.Now()
	for i, l := range r.ready {
		l.queued = false
		batches[i] = l.cut(&r.sink.cfg)
		batches[i].began = now
	}
	clear(r.ready)
	r.ready, r.full = r.ready[:0], false
	r.sender.dispatch(ctx, batches)
}

// next takes an entry. It returns early when a result arrives.
func (r *run) next(ctx context.Context) error {
	if r.wait == nil || r.wait.Err() != nil {
		r.wait, r.wake = context.WithCancel(ctx)
	}
	if !r.results.arm(r.wake) {
		return nil
	}
	var deadline time.Time
	if len(r.ready) > 0 {
		deadline = r.deadline
	}
	e, err := r.queue.Next(r.wait, deadline)
	r.results.disarm()
	switch {
	case err != nil && r.wait.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case e == nil:
		r.urgent = r.queue.Flush() && len(r.entries) > 0
		return nil
	}
	return r.take(ctx, e)
}

// reading is an entry whose records are taken.
type reading struct {
	ctx  context.Context
	into *entry
	lane *lane
	// number is of the next record.
	number int64
	err    error
	// key and text are memory that every entry uses.
	key, text []byte
}

// take reads an entry's records into its stream's lane.
func (r *run) take(ctx context.Context, e sinks.Entry) error {
	into := &entry{seq: e.Seq()}
	r.entries = append(r.entries, into)
	now := &r.reading
	now.key = e.Stream().AppendKey(now.key[:0])
	now.ctx, now.into, now.lane = ctx, into, r.lane(r.sink.cfg.Shape.Partition(now.key))
	now.number, now.err = 0, nil
	e.Records()(r.each)
	if now.err != nil {
		return now.err
	}
	into.whole = true
	return nil
}

// takeRecord takes one record of the entry; it reports whether there is to be
// another one. A loop over the records would need memory for each entry, so
// this function is made once and what it works with lies in r.
func (r *run) takeRecord(rec envelope.Encoded, err error) bool {
	e, budget := &r.reading, r.sink.cfg.budget()
	if err != nil {
		e.err = fmt.Errorf("read entry %d: %w", e.into.seq, err)
		return false
	}
	for r.held > 0 && r.held+int64(len(rec.Body)) > budget {
		if e.err = r.relieve(e.ctx); e.err != nil {
			return false
		}
	}
	e.err = r.add(e.lane, e.into, &rec, e.number)
	e.number++
	return e.err == nil
}

// relieve makes room: what is ready is sent, and a result waited for. An entry
// larger than the memory goes through it in pieces.
func (r *run) relieve(ctx context.Context) error {
	if len(r.ready) > 0 {
		r.send(ctx)
	}
	if err := r.results.wait(ctx); err != nil {
		return err
	}
	return r.settle()
}

// lane finds the lane of a partition. It stays while it holds records.
func (r *run) lane(partition uint32) *lane {
	l := r.lanes[partition]
	if l == nil {
		l = &lane{partition: partition}
		r.lanes[partition] = l
	}
	return l
}

// add puts a record at the end of a lane.
func (r *run) add(l *lane, into *entry, rec *envelope.Encoded, number int64) error {
	cfg := &r.sink.cfg
	r.reading.text = rec.AppendJSON(r.reading.text[:0])
	i := item{entry: into, payload: bytes.Clone(r.reading.text), number: number, at: rec.CommittedAt}
	if size := field(batchHead(cfg.Shape.Topic, l.partition) + i.wireSize()); size > maxRequest {
		r.sink.stats.change(func(s *Stats) { s.Refused++ })
		reason := fmt.Sprintf("a request with the record takes %d bytes, blob-stream brokers take %d; a lower max_record_bytes (CELLD_EXPORT_MAX_RECORD_BYTES) splits rows into more records", size, maxRequest)
		return r.queue.Refuse(into.seq, sinks.Refusal{Record: number, Reason: reason})
	}
	into.left++
	r.held += i.weight()
	if l.dropped { // while room was made
		l.dropped = false
		r.lanes[l.partition] = l
	}
	l.waiting = append(l.waiting, i)
	l.bytes += i.bytes()
	r.raise(l)
	return nil
}

// raise puts a lane among those that are ready, if it is.
func (r *run) raise(l *lane) {
	if l.flying || len(l.waiting) == 0 {
		return
	}
	r.full = r.full || l.full(&r.sink.cfg)
	if l.queued {
		return
	}
	l.queued = true
	if len(r.ready) == 0 {
		r.deadline = r.sink.cfg.Now().Add(r.sink.cfg.Linger)
	}
	r.ready = append(r.ready, l)
}

// settle takes the batches that were stored, with what was refused of them,
// and acknowledges what is whole.
func (r *run) settle() error {
	for _, b := range r.results.take() {
		l := b.lane
		l.flying = false
		for _, no := range b.refused {
			if err := r.queue.Refuse(no.item.entry.seq, sinks.Refusal{Record: no.item.number, Reason: no.reason}); err != nil {
				return err
			}
		}
		for i := range b.items {
			r.held -= b.items[i].weight()
			b.items[i].entry.left--
		}
		r.raise(l)
		if len(l.waiting) == 0 {
			l.dropped = true
			delete(r.lanes, l.partition)
		}
	}
	done, n := uint64(0), 0
	for n < len(r.entries) && r.entries[n].whole && r.entries[n].left == 0 {
		done = r.entries[n].seq
		n++
	}
	if n == 0 {
		return nil
	}
	clear(r.entries[:n])
	r.entries = r.entries[n:]
	if len(r.entries) == 0 {
		r.urgent = false
	}
	return r.queue.Ack(done)
}
