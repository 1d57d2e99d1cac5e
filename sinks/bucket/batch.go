package bucket

import (
	"context"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// batch is the entries of one object to be.
type batch struct {
	enc   *encoder // nil while there is no record
	first Mark
	// whole is the last entry that is in it to its end, 0 when none is.
	whole uint64
	// part is the entry that is not, after the last one that is.
	part  Mark
	bytes int64
	// deadline is when it is sent at the latest, counted from its first
	// record (entry, while it has none).
	deadline time.Time
}

// recordBytes is about what a record takes in memory beside its body.
const recordBytes = 256

// take adds an entry to the batch. An entry larger than an object is cut into
// several: the memory it takes is that of an object, not its own.
func (r *run) take(ctx context.Context, entry sinks.Entry) error {
	r.settleSaved(entry.Seq())
	t := &r.taking
	*t = taking{ctx: ctx, entry: entry.Seq()}
	if r.skip.Entry == t.entry {
		t.skip = r.skip.Records
	}
	entry.Records()(r.each)
	if t.err != nil || t.cut {
		return t.err
	}
	r.begin(t.entry, t.n)
	r.batch.whole, r.batch.part = t.entry, Mark{}
	return nil
}

// taking is the entry that is being added.
type taking struct {
	ctx   context.Context
	entry uint64
	// n records were read, of which the first skip are in objects before.
	n, skip int64
	// err ends the run; cut is set when ctx ended instead.
	err error
	cut bool
}

// record adds the next record of the entry. It is a method, not the body of a
// loop, because such a body takes memory for every entry, and most entries
// are one record.
func (r *run) record(rec envelope.Encoded, err error) bool {
	t := &r.taking
	if err != nil {
		t.err = err
		return false
	}
	if t.n++; t.n <= t.skip {
		return true
	}
	if r.batch != nil && r.cutBefore(t.entry, t.n) {
		if t.err = r.sendPart(t.ctx); t.err != nil || t.ctx.Err() != nil {
			t.cut = true
			return false
		}
	}
	t.err = r.add(t.entry, t.n, &rec)
	return t.err == nil
}

// begin makes the batch when there is none; n records of the entry are in
// objects before.
func (r *run) begin(entry uint64, n int64) {
	if r.batch == nil {
		r.batch = &batch{first: Mark{entry, n}, deadline: r.sink.cfg.Now().Add(r.sink.cfg.FlushInterval)}
	}
}

// add appends record n of an entry.
func (r *run) add(entry uint64, n int64, rec *envelope.Encoded) error {
	r.begin(entry, n-1)
	b := r.batch
	if b.enc == nil {
		var err error
		if b.enc, err = newEncoder(r.sink.cfg.Retention, r.sink.cfg.codec(), &r.group); err != nil {
			return err
		}
		b.deadline = r.sink.cfg.Now().Add(r.sink.cfg.FlushInterval)
	}
	if err := b.enc.add(rec); err != nil {
		return err
	}
	b.bytes += int64(len(rec.Body)) + recordBytes
	b.part = Mark{entry, n}
	return nil
}

// cutBefore reports whether record n of the entry belongs into the next
// object: where the object of before the restart ended, or when it is full.
func (r *run) cutBefore(entry uint64, n int64) bool {
	if r.replaying() {
		return n > 1 && r.again.Last == (Mark{entry, n - 1})
	}
	_, full := r.sink.cfg.limits()
	return r.batch.part == (Mark{entry, n - 1}) && r.batch.bytes >= full
}

// sendPart writes the batch while its last entry is not whole.
func (r *run) sendPart(ctx context.Context) error {
	if err := r.collect(ctx, true); err != nil || ctx.Err() != nil {
		return err
	}
	return r.send(ctx)
}

// settleSaved decides, at the first entry of a run, what became of the object
// that was saved last.
func (r *run) settleSaved(first uint64) {
	if r.settled {
		return
	}
	r.settled = true
	saved := r.again
	r.again = State{}
	switch {
	case saved.Key == "" || first > saved.Last.Entry || first < saved.First.Entry:
		// There is none, or all of it was acknowledged.
	case first == saved.First.Entry:
		// It may not be stored: it is written again.
		r.again, r.skip, r.from = saved, saved.First, saved.From
	case first == saved.Last.Entry:
		// The entries before its last, which it holds in part, were
		// acknowledged: it is stored.
		r.skip, r.from = saved.Last, saved.next()
	}
}

// replaying reports whether the batch is the object of before the restart.
func (r *run) replaying() bool { return r.settled && r.again.Key != "" }
