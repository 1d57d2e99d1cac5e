package kafka

import (
	"fmt"
	"sync"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// flight is an entry that was taken from the queue and is not acknowledged.
type flight struct {
	entry sinks.Entry
	seq   uint64
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

// arrival is what a report says.
type arrival struct {
	part    int32
	err     error
	verdict verdict
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
	lanes lanes
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
	// failed. changed gets a token then too, when nothing is under way any
	// more, and when no more bytes than low are.
	awake   func()
	changed bell
	low     int64
	// free are flights that are over.
	free []*flight
}

// bell holds one token at most.
type bell chan struct{}

func (c bell) ring() {
	select {
	case c <- struct{}{}:
	default:
	}
}

func newBoard(now func() time.Time) *board {
	return &board{now: now, suspects: map[mark]suspect{}, changed: make(bell, 1)}
}

// add takes an entry in.
func (b *board) add(entry sinks.Entry) *flight {
	b.mu.Lock()
	defer b.mu.Unlock()
	var f *flight
	if n := len(b.free); n > 0 {
		f, b.free = b.free[n-1], b.free[:n-1]
	} else {
		f = new(flight)
	}
	*f = flight{entry: entry, seq: entry.Seq()}
	b.flights = append(b.flights, f)
	return f
}

// place is what comes of a message that is to be sent.
type place uint8

const (
	// placed: the message is on the board and to be handed over.
	placed place = iota
	// full: more must be answered before.
	full
	// apart: the message is a suspect and to be sent alone.
	apart
)

// send notes a message that is handed to the producer for a partition, unless
// more than most bytes would be under way; one message may always be. It is
// undone by answering with an error, or by unsend.
func (b *board) send(f *flight, t ticket, part int32, most int64) place {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.suspects) > 0 {
		if _, ok := b.suspects[mark{f.seq, t.index}]; ok {
			return apart
		}
	}
	if b.lanes.open == 0 {
		b.moved = b.now()
	} else if b.lanes.bytes+t.bytes > most {
		return full
	}
	t.flight = f
	b.lanes.push(part, t)
	return placed
}

// unsend takes back the last message of a partition, which the producer did
// not accept.
func (b *board) unsend(part int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lanes.unpush(part)
}

// finish notes that all records of the entry were handed over.
func (b *board) finish(f *flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.whole = true
	b.advance()
}

// answers takes reports, in the order in which they came: the first, and what
// more yields until it reports false.
func (b *board) answers(first arrival, more func() (arrival, bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	oldest := false
	for a, ok := first, true; ok; a, ok = more() {
		oldest = b.answer(a) || oldest
	}
	if oldest {
		b.moved = b.now()
	}
	b.advance()
	if b.failed != nil || b.lanes.open == 0 || b.lanes.bytes <= b.low {
		b.changed.ring()
	}
}

// answer takes one report and tells whether it is of the oldest entry; mu is
// held.
func (b *board) answer(a arrival) (oldest bool) {
	t, broken, ok := b.lanes.pop(a.part)
	if !ok {
		b.fail(fmt.Errorf("a delivery report of partition %d, for which no message is under way", a.part))
		return false
	}
	f := t.flight
	switch {
	case a.err == nil && broken:
		f.lost = true
	case a.err == nil:
		b.answered++
		if len(b.suspects) > 0 {
			delete(b.suspects, mark{f.seq, t.index})
		}
		if f.prefix == t.index {
			f.prefix++
		}
	default:
		f.lost, b.lanes.of[a.part].broken = true, true
		if a.verdict != noVerdict {
			b.suspects[mark{f.seq, t.index}] = suspect{t.bytes, a.verdict == refusedSize}
			if b.refused == nil {
				b.refused = a.err
			}
		}
		b.fail(a.err)
	}
	return b.front < len(b.flights) && b.flights[b.front] == f
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

// wake tells of something to acknowledge, or of the session's end; mu is held.
func (b *board) wake() {
	b.changed.ring()
	if b.awake != nil {
		b.awake()
	}
}

// await asks for a token when no more than low bytes are under way; -1 asks
// for none but those that always come.
func (b *board) await(low int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.low = low
	if b.lanes.open == 0 || b.lanes.bytes <= low {
		b.changed.ring()
	}
}

// abort ends the session from outside.
func (b *board) abort(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail(err)
}

// remove forgets the first n entries, which are acknowledged.
func (b *board) remove(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.flights[:n] {
		f.entry = nil
		b.free = append(b.free, f)
	}
	left := copy(b.flights, b.flights[n:])
	clear(b.flights[left:])
	b.flights = b.flights[:left]
	b.front -= n
}

// view is how the board stands at one moment.
type view struct {
	// open and bytes are of the messages under way, entries of those that are
	// not acknowledged.
	open    int
	bytes   int64
	entries int
	// ready entries can be acknowledged, the last of them is seq.
	ready int
	seq   uint64
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
	return b.look()
}

// look is view; mu is held.
func (b *board) look() view {
	v := view{
		open: b.lanes.open, bytes: b.lanes.bytes, entries: len(b.flights), ready: b.front,
		failed: b.failed, refused: b.refused, moved: b.moved, answered: b.answered,
	}
	if v.ready > 0 {
		v.seq = b.flights[v.ready-1].seq
	}
	return v
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
	delete(b.suspects, mark{f.seq, index})
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
	b.failed, b.refused, b.lanes = nil, nil, lanes{}
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
// session failed. It tells how the board stands: what was ready before is in
// that and calls nothing.
func (b *board) setAwake(f func()) view {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awake = f
	if b.failed != nil {
		b.wake()
	}
	return b.look()
}

// clear takes a record off the suspects: it is sent alone, and what comes of
// that decides.
func (b *board) clear(f *flight, index int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.suspects, mark{f.seq, index})
}

// smallestBatch is how far batches are cut down before their messages are
// tried one by one.
const smallestBatch = 16 << 10

// sift decides about what was refused for its size while batches were of most
// bytes. A message that alone fills a batch stays suspect. Of the others, when
// one is most of what was refused, it alone does. When none is, batches were
// too large: no message of them is suspect, and sift returns the size that
// batches should have from now on, which is less than most; else 0.
func (b *board) sift(most int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var total, largest int64
	for _, s := range b.suspects {
		if s.size && s.bytes < most {
			total, largest = total+s.bytes, max(largest, s.bytes)
		}
	}
	batch, one := int64(0), largest > total/2
	if half := min(total, most) / 2; !one && half >= smallestBatch {
		batch = half
	}
	for at, s := range b.suspects {
		if s.size && s.bytes < most && total > smallestBatch && (batch > 0 || one && s.bytes <= total/2) {
			delete(b.suspects, at)
		}
	}
	return batch
}
