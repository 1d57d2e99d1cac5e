package delivery

import (
	"encoding/binary"
	"fmt"

	"celldexport/envelope"
)

// account is what one sink holds of one epoch of a stream: how far it was
// certified, and what was delivered since. It is pure; the journal keeps it.
type account struct {
	stream envelope.Stream
	epoch  uint64

	// counter counts what was delivered above mark, through is the position
	// delivered last.
	counter envelope.Counter
	through envelope.Position
	// mark is the end of the watermark acknowledged last, nil before the
	// first.
	mark *envelope.Position
	// pending is the watermark that is spooled and not yet acknowledged.
	pending *pendingMark
	// due is when the next watermark is to be spooled, in unix milliseconds;
	// 0 when there is nothing to certify or it must not be.
	due  int64
	hold hold
	// closed is set when the residency ended and something of it is not yet
	// certified.
	closed bool

	// place is where the sink keeps the records, when it tells.
	place located

	// What a watermark repeats of the unit delivered last.
	cellName    *string
	committedAt int64
	node, scope string
}

// pendingMark is what a spooled watermark says.
type pendingMark struct {
	seq                uint64
	through            envelope.Position
	positions, records uint64
}

// hold is why an account gets no watermark.
type hold uint8

// The values are those of accounts on disk.
const (
	// holdLost: the chain was lost with the state directory.
	holdLost hold = 1
	// holdOrder: records came at or below a position that a watermark had
	// passed, so that no later one could be true.
	holdOrder hold = 4
	// holdRefused: the sink's place refused records for good; the gap that
	// tells of them lifts it.
	holdRefused hold = 8
)

// deliver takes an acknowledged entry into account. idle is how long a
// stretch without records waits, in milliseconds.
func (a *account) deliver(s *summary, now, idle int64) {
	u := &s.unit
	if u.Form == FormClose {
		a.closed = true
		a.schedule(now, idle)
		return
	}
	if u.Uncertified {
		a.hold |= holdLost
	}
	if s.counted > 0 {
		if a.passed(u.Position) || a.counter.AddEntry(u.Position, s.counted) != nil {
			a.hold |= holdOrder
		}
	}
	if u.Position.Compare(a.through) >= 0 {
		a.through = u.Position
		a.name(u)
	}
	a.schedule(now, idle)
}

// name takes over what records that are no unit repeat of one.
func (a *account) name(u *Unit) {
	a.cellName, a.committedAt, a.node, a.scope = u.CellName, u.CommittedAt, u.Node, u.Scope
}

// moves reports whether an entry says anything about what is certified.
// Records that no watermark counts (recovered) and are no unit do not.
func (s *summary) moves() bool {
	return s.unit.Form == FormUnit || s.unit.Form == FormClose || (s.unit.Form == FormRecords && s.counted > 0)
}

// passed reports whether a watermark went over the position.
func (a *account) passed(p envelope.Position) bool {
	return (a.mark != nil && p.Compare(*a.mark) <= 0) || (a.pending != nil && p.Compare(a.pending.through) <= 0)
}

// schedule sets when the next watermark is due.
func (a *account) schedule(now, idle int64) {
	switch {
	case a.hold != 0 || a.pending != nil || a.linkOnly():
		a.due = 0
	case a.counter.Records > 0 || (a.closed && a.open()):
		if a.due == 0 || a.due > now {
			a.due = now
		}
	case a.open():
		if a.due == 0 {
			a.due = now + idle
		}
	default:
		a.due, a.closed = 0, false
	}
}

// open reports whether something was delivered that a watermark is to go over.
func (a *account) open() bool {
	return !a.linkOnly() && (a.mark == nil || a.through.Compare(*a.mark) > 0)
}

// linkOnly reports whether nothing of the epoch was delivered but its link.
// The link stands before the first transaction and names its txid; whoever
// compares txids would take its certificate for that transaction's.
func (a *account) linkOnly() bool { return a.through.Commit == 0 }

// settled reports whether no watermark will follow.
func (a *account) settled() bool {
	return a.pending == nil && (a.hold&(holdLost|holdOrder) != 0 || !a.open())
}

// watermark is the entry that certifies what was delivered so far, and its
// only record.
func (a *account) watermark(sink string) (Unit, envelope.Encoded, error) {
	u := Unit{
		Form: FormWatermark, Stream: a.stream, CellName: a.cellName, CommittedAt: a.committedAt,
		Node: a.node, Scope: a.scope, Position: a.through, Sink: sink,
		MinTXID: a.through.TXID, MaxTXID: a.through.TXID,
	}
	e, err := envelope.Encode(&envelope.Record{
		Envelope: envelope.Envelope{
			Stream: u.Stream, CellName: u.CellName, Position: u.Position, CommittedAt: u.CommittedAt,
			Node: u.Node, Origin: envelope.Live, Fragment: 1, Fragments: 1,
		},
		Body: a.counter.Watermark(a.mark, a.through),
	})
	return u, e, err
}

// spooled notes that the watermark of what was delivered so far is in the
// spool.
func (a *account) spooled(seq uint64) {
	a.pending = &pendingMark{
		seq: seq, through: a.through, positions: a.counter.Positions, records: a.counter.Records,
	}
	a.due = 0
}

// unmarked notes that the pending watermark will never be stored: another
// one, of all that was delivered by then, takes its place after a while.
func (a *account) unmarked(seq uint64, now, idle int64) {
	if a.pending == nil || a.pending.seq != seq {
		return
	}
	a.pending = nil
	if a.hold == 0 {
		a.due = now + idle
	}
}

// found notes a watermark that was spooled and is not pending: a crash or a
// failure came between. It reports whether it is one of this account: not when
// the account was begun anew since.
func (a *account) found(seq uint64, w *envelope.Watermark) bool {
	follows := (w.From == nil) == (a.mark == nil) && (w.From == nil || *w.From == *a.mark)
	if !follows || w.Commits > a.counter.Positions || w.Records > a.counter.Records || w.Through.Compare(a.through) > 0 {
		return false
	}
	a.pending = &pendingMark{seq: seq, through: w.Through, positions: w.Commits, records: w.Records}
	a.due = 0
	return true
}

// certified notes that the pending watermark was acknowledged.
func (a *account) certified(seq uint64, now, idle int64) {
	p := a.pending
	if p == nil || p.seq != seq {
		return
	}
	through := p.through
	a.mark, a.pending = &through, nil
	a.counter.Positions -= p.positions
	a.counter.Records -= p.records
	a.schedule(now, idle)
}

// accountFormat is the form that is written. Of the forms before, 1 has no
// places.
const accountFormat = 2

func (a *account) encode() []byte {
	b := []byte{accountFormat, byte(a.hold)}
	pos := func(p envelope.Position) {
		for _, n := range []uint64{p.Epoch, p.TXID, p.Commit} {
			b = binary.AppendUvarint(b, n)
		}
	}
	flag := func(set bool) {
		b = append(b, 0)
		if set {
			b[len(b)-1] = 1
		}
	}
	b = binary.AppendUvarint(b, a.counter.Positions)
	b = binary.AppendUvarint(b, a.counter.Records)
	pos(a.counter.Last)
	pos(a.through)
	flag(a.mark != nil)
	if a.mark != nil {
		pos(*a.mark)
	}
	flag(a.pending != nil)
	if p := a.pending; p != nil {
		b = binary.AppendUvarint(b, p.seq)
		pos(p.through)
		b = binary.AppendUvarint(b, p.positions)
		b = binary.AppendUvarint(b, p.records)
	}
	flag(a.closed)
	flag(a.cellName != nil)
	if a.cellName != nil {
		b = appendString(b, *a.cellName)
	}
	b = binary.AppendUvarint(b, uint64(a.committedAt))
	b = appendString(b, a.node)
	b = appendString(b, a.scope)
	b = binary.AppendUvarint(b, uint64(a.place.first))
	return binary.AppendUvarint(b, uint64(a.place.last))
}

func (f *fields) position() envelope.Position {
	return envelope.Position{Epoch: f.uint(), TXID: f.uint(), Commit: f.uint()}
}

func (a *account) decode(b []byte) error {
	f := fields{b: b}
	format := f.byte()
	if format < 1 || format > accountFormat {
		return fmt.Errorf("account of %v has format %d, this program knows %d", a.stream, format, accountFormat)
	}
	a.hold = hold(f.byte())
	a.counter.Positions, a.counter.Records = f.uint(), f.uint()
	a.counter.Last = f.position()
	a.through = f.position()
	if f.byte() == 1 {
		p := f.position()
		a.mark = &p
	}
	if f.byte() == 1 {
		a.pending = &pendingMark{seq: f.uint(), through: f.position(), positions: f.uint(), records: f.uint()}
	}
	a.closed = f.byte() == 1
	if f.byte() == 1 {
		name := f.string()
		a.cellName = &name
	}
	a.committedAt = int64(f.uint())
	a.node, a.scope = f.string(), f.string()
	a.place = located{1, 1} // anywhere
	if format > 1 {
		a.place = located{int64(f.uint()), int64(f.uint())}
	}
	if f.bad || len(f.b) > 0 {
		return fmt.Errorf("account of %v does not decode", a.stream)
	}
	return nil
}
