package blobstream

import (
	"context"
	"fmt"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
	blobstreampb "celldexport/sinks/blobstream/proto"
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
	key     []byte
	results results
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

// take reads an entry's records into its stream's lane.
func (r *run) take(ctx context.Context, e sinks.Entry) error {
	cfg := &r.sink.cfg
	into := &entry{seq: e.Seq()}
	r.entries = append(r.entries, into)
	r.key = e.Stream().AppendKey(r.key[:0])
	l := r.lane(cfg.Shape.Partition(r.key))
	number := int64(0)
	for rec, err := range e.Records() {
		if err != nil {
			return fmt.Errorf("read entry %d: %w", e.Seq(), err)
		}
		for r.held > 0 && r.held+int64(len(rec.Body)) > cfg.budget() {
			if err := r.relieve(ctx); err != nil {
				return err
			}
		}
		if err := r.add(l, into, &rec, number); err != nil {
			return err
		}
		number++
	}
	into.whole = true
	return nil
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
	i := item{entry: into, record: &blobstreampb.Record{Payload: rec.AppendJSON(nil), EventTsMs: rec.CommittedAt}}
	if size := field(batchHead(cfg.Shape.Topic, l.partition) + i.wireSize()); size > maxRequest {
		r.sink.stats.change(func(s *Stats) { s.Refused++ })
		reason := fmt.Sprintf("a request with the record takes %d bytes, blob-stream brokers take %d; a lower max_record_bytes (CELLD_EXPORT_MAX_RECORD_BYTES) splits rows into more records", size, maxRequest)
		return r.queue.Refuse(into.seq, sinks.Refusal{Record: number, Reason: reason})
	}
	into.left++
	r.held += i.weight()
	r.lanes[l.partition] = l // it may have been dropped while room was made
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

// settle takes the batches that were stored and acknowledges what is whole.
func (r *run) settle() error {
	for _, b := range r.results.take() {
		l := b.lane
		l.flying = false
		for i := range b.items {
			r.held -= b.items[i].weight()
			b.items[i].entry.left--
		}
		r.raise(l)
		if len(l.waiting) == 0 {
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
