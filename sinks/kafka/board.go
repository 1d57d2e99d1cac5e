package kafka

import (
	"sync"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// flight is an entry that was taken from the queue and is not acknowledged.
type flight struct {
	entry sinks.Entry
	// prefix is how many of the entry's leading records the brokers have, or
	// will never take.
	prefix int64
	// open messages were sent in this session and are not answered.
	open int
	// whole says that all records of the entry were handed over, lost that
	// one of them did not arrive.
	whole, lost bool
}

func (f *flight) done() bool { return f.whole && f.open == 0 && !f.lost }

// mark is one record: its entry and its place in it.
type mark struct {
	seq   uint64
	index int64
}

// verdict is what an answer says of the message itself.
type verdict uint8

const (
	// noVerdict: the error, if any, is not about the message.
	noVerdict verdict = iota
	// refusedMessage: this message, or another one of its batch, is refused.
	refusedMessage
	// refusedSize: the batch was too large, maybe for one message of it.
	refusedSize
)

// suspect is a message that was refused in a batch.
type suspect struct {
	bytes int64
	size  bool // for its size, or the batch's
}

// ticket stands for a message while it is under way.
type ticket struct {
	flight *flight
	index  int64
	bytes  int64
}

// board holds the entries under way in the order of the spool and what the
// brokers answered. The sender adds and removes, the reader of delivery
// reports answers.
type board struct {
	now func() time.Time

	mu      sync.Mutex
	flights []*flight
	// front is the first of flights that is not done.
	front int
	// open and bytes are of the messages under way.
	open  int
	bytes int64
	// moved is when the oldest message under way became the oldest: how long
	// the brokers have owed an answer to it.
	moved time.Time
	// failed is why the session must end, refused the first refusal in it;
	// suspects are the records that were refused, maybe only for the batch
	// that they were in, and are to be sent alone.
	failed   error
	refused  error
	suspects map[mark]suspect
	// answered counts messages that arrived, over all sessions.
	answered int64
	// awake is called when there is something to acknowledge, or the session
	// failed; changed gets a token at every answer.
	awake   func()
	changed chan struct{}
	free    []*ticket
}

func newBoard(now func() time.Time) *board {
	return &board{now: now, suspects: map[mark]suspect{}, changed: make(chan struct{}, 1)}
}

// add takes an entry in.
func (b *board) add(entry sinks.Entry) *flight {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := &flight{entry: entry}
	b.flights = append(b.flights, f)
	return f
}

// send notes a message that is handed to the producer. It is undone by
// answering with an error, or by unsend.
func (b *board) send(f *flight, index, bytes int64) *ticket {
	b.mu.Lock()
	defer b.mu.Unlock()
	var t *ticket
	if n := len(b.free); n > 0 {
		t, b.free = b.free[n-1], b.free[:n-1]
	} else {
		t = new(ticket)
	}
	*t = ticket{f, index, bytes}
	if b.open == 0 {
		b.moved = b.now()
	}
	f.open++
	b.open++
	b.bytes += bytes
	return t
}

// unsend takes a message back that the producer did not accept.
func (b *board) unsend(t *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle(t)
}

func (b *board) settle(t *ticket) {
	t.flight.open--
	b.open--
	b.bytes -= t.bytes
	t.flight = nil
	b.free = append(b.free, t)
}

// finish notes that all records of the entry were handed over.
func (b *board) finish(f *flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.whole = true
	b.advance()
}

// answer takes a delivery report.
func (b *board) answer(t *ticket, err error, v verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, at := t.flight, mark{t.flight.entry.Seq(), t.index}
	bytes := t.bytes
	oldest := b.front < len(b.flights) && b.flights[b.front] == f
	b.settle(t)
	switch {
	case err == nil:
		b.answered++
		delete(b.suspects, at)
		if f.prefix == at.index {
			f.prefix++
		}
	case v != noVerdict:
		f.lost = true
		b.suspects[at] = suspect{bytes, v == refusedSize}
		if b.refused == nil {
			b.refused = err
		}
		b.fail(err)
	default:
		f.lost = true
		b.fail(err)
	}
	if oldest {
		b.moved = b.now()
	}
	b.advance()
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// advance moves front over what is done; mu is held.
func (b *board) advance() {
	if b.failed != nil {
		return
	}
	before := b.front
	for b.front < len(b.flights) && b.flights[b.front].done() {
		b.front++
	}
	if b.front > before {
		b.moved = b.now()
		if before == 0 {
			b.wake()
		}
	}
}

// fail ends the session; mu is held. The first reason counts.
func (b *board) fail(err error) {
	if b.failed == nil {
		b.failed = err
		b.wake()
	}
}

func (b *board) wake() {
	if b.awake != nil {
		b.awake()
	}
}

// abort ends the session from outside.
func (b *board) abort(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail(err)
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// ready is the last entry that can be acknowledged with all before it, and
// how many these are.
func (b *board) ready() (seq uint64, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.front == 0 {
		return 0, 0
	}
	return b.flights[b.front-1].entry.Seq(), b.front
}

// remove forgets the first n entries, which are acknowledged.
func (b *board) remove(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.flights[:n])
	b.flights = b.flights[n:]
	b.front -= n
}

// view is how the board stands at one moment.
type view struct {
	// open and bytes are of the messages under way, entries of those that are
	// not acknowledged.
	open    int
	bytes   int64
	entries int
	// failed is why the session must end, nil when it need not; refused is
	// the error by which a message was refused in it.
	failed, refused error
	// moved is since when an answer to the oldest message under way is
	// awaited.
	moved time.Time
	// answered counts messages that arrived, over all sessions.
	answered int64
}

func (b *board) view() view {
	b.mu.Lock()
	defer b.mu.Unlock()
	return view{b.open, b.bytes, len(b.flights), b.failed, b.refused, b.moved, b.answered}
}

func (b *board) suspect(seq uint64, index int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.suspects) == 0 {
		return false
	}
	_, ok := b.suspects[mark{seq, index}]
	return ok
}

// giveUp notes a record that will never be stored.
func (b *board) giveUp(f *flight, index int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.suspects, mark{f.entry.Seq(), index})
	if f.prefix == index {
		f.prefix++
	}
}

// rewind readies the board for a new session: what is not acknowledged is to
// be sent again, and of its stream everything behind it, so that the topic
// ends with the stream in order.
func (b *board) rewind() []*flight {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed, b.refused, b.open, b.bytes = nil, nil, 0, 0
	again := map[envelope.Stream]struct{}{}
	var list []*flight
	for _, f := range b.flights[b.front:] {
		stream := f.entry.Stream()
		_, behind := again[stream]
		if f.done() && !behind {
			continue
		}
		if behind {
			f.prefix = 0
		}
		f.open, f.whole, f.lost = 0, false, false
		again[stream] = struct{}{}
		list = append(list, f)
	}
	return list
}

// setAwake sets what is called when there is something to acknowledge or the
// session failed. It is called at once when there is already.
func (b *board) setAwake(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awake = f
	if b.failed != nil {
		b.wake()
	}
}

// room reports whether a message may be sent too: always when none is under
// way.
func (b *board) room(bytes, most int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open == 0 || b.bytes+bytes <= most
}

// clear takes a record off the suspects: it is sent alone, and what comes of
// that decides.
func (b *board) clear(f *flight, index int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.suspects, mark{f.entry.Seq(), index})
}

// smallestBatch is how far batches are cut down before their messages are
// tried one by one.
const smallestBatch = 16 << 10

// sift decides about what was refused for its size. When one message is most
// of what was refused, it alone stays suspect. When none is, the batch was too
// large: no message is suspect, and sift returns the size that batches should
// have from now on; else 0.
func (b *board) sift() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var total, largest int64
	for _, s := range b.suspects {
		if s.size {
			total, largest = total+s.bytes, max(largest, s.bytes)
		}
	}
	batch := int64(0)
	if largest <= total/2 && total/2 >= smallestBatch {
		batch = total / 2
	}
	for at, s := range b.suspects {
		if s.size && total > smallestBatch && (batch > 0 || s.bytes <= total/2) {
			delete(b.suspects, at)
		}
	}
	return batch
}
