package kafka

import (
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"pgregory.net/rapid"

	"celldexport/envelope"
)

// fakeEntry is an entry without records.
type fakeEntry struct {
	seq    uint64
	stream int
}

func (e fakeEntry) Seq() uint64 { return e.seq }
func (e fakeEntry) Stream() envelope.Stream {
	return envelope.Stream{Cell: fmt.Sprint("Cart:", e.stream)}
}
func (e fakeEntry) Position() envelope.Position                 { return envelope.Position{TXID: e.seq} }
func (e fakeEntry) Bytes() int64                                { return 1 }
func (e fakeEntry) Records() iter.Seq2[envelope.Encoded, error] { return nil }

func stillClock() time.Time { return time.UnixMilli(1_790_000_000_000) }

// The brokers, as a model: each partition takes messages in order, and a
// session's failure loses what is not taken. Whatever happens, an entry is
// acknowledged only when all its messages are taken, in the order of the
// spool, and after the last session every stream's last messages are there in
// order.
func TestBoardProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBoard(stillClock)
		m := &boardModel{t: t, b: b, taken: map[uint64]map[int64]bool{}}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				m.send(b.add(fakeEntry{m.last + 1, rapid.IntRange(0, 2).Draw(t, "stream")}), rapid.Int64Range(0, 3).Draw(t, "records"))
			case 2, 3:
				m.answer(rapid.IntRange(0, 2).Draw(t, "partition"), nil)
			case 4:
				m.ack()
			case 5:
				m.answer(rapid.IntRange(0, 2).Draw(t, "partition"), errors.New("lost"))
				m.restart()
			}
		}
		for part := range 3 {
			for len(m.flying[part]) > 0 {
				m.answer(part, nil)
			}
		}
		m.ack()
		if v := b.view(); v.entries != 0 || v.open != 0 || v.bytes != 0 || m.acked != m.last {
			t.Fatalf("at the end %+v, acknowledged %d of %d", v, m.acked, m.last)
		}
		for part, log := range m.logs {
			tail := map[uint64]int64{}
			for _, at := range log {
				tail[at.seq] = at.index
			}
			last := uint64(0)
			// What came last of each entry stands in the order of the spool.
			for i := len(log) - 1; i >= 0 && len(tail) > 0; i-- {
				if _, open := tail[log[i].seq]; open {
					if last != 0 && log[i].seq > last {
						t.Fatalf("partition %d ends with %d behind %d", part, last, log[i].seq)
					}
					last = log[i].seq
					delete(tail, log[i].seq)
				}
			}
		}
	})
}

type boardModel struct {
	t           *rapid.T
	b           *board
	last, acked uint64
	sizes       []int64
	flying      [3][]*ticket
	logs        [3][]mark
	taken       map[uint64]map[int64]bool
}

// send hands over the rest of an entry of n records.
func (m *boardModel) send(f *flight, n int64) {
	if f.entry.Seq() > m.last {
		m.last = f.entry.Seq()
		m.sizes = append(m.sizes, n)
	}
	part := f.entry.(fakeEntry).stream
	for i := f.prefix; i < n; i++ {
		m.flying[part] = append(m.flying[part], m.b.send(f, i, 10))
	}
	m.b.finish(f)
}

func (m *boardModel) answer(part int, err error) {
	if len(m.flying[part]) == 0 {
		return
	}
	t := m.flying[part][0]
	m.flying[part] = m.flying[part][1:]
	if at := (mark{t.flight.entry.Seq(), t.index}); err == nil {
		m.logs[part] = append(m.logs[part], at)
		if m.taken[at.seq] == nil {
			m.taken[at.seq] = map[int64]bool{}
		}
		m.taken[at.seq][at.index] = true
	}
	m.b.answer(t, err, noVerdict)
}

// restart is a session that failed: everything under way is lost.
func (m *boardModel) restart() {
	lost := errors.New("the session failed")
	m.b.abort(lost)
	for part := range m.flying {
		for len(m.flying[part]) > 0 {
			m.answer(part, lost)
		}
	}
	m.ack()
	for _, f := range m.b.rewind() {
		m.send(f, m.sizes[f.entry.Seq()-1])
	}
}

func (m *boardModel) ack() {
	seq, n := m.b.ready()
	if n == 0 {
		return
	}
	for s := m.acked + 1; s <= seq; s++ {
		if int64(len(m.taken[s])) != m.sizes[s-1] {
			m.t.Fatalf("entry %d is acknowledged with %d of its %d messages", s, len(m.taken[s]), m.sizes[s-1])
		}
	}
	m.b.remove(n)
	m.acked = seq
}

// The time that an answer is owed begins anew when the oldest message was
// answered, and not with those behind it.
func TestBoardOwed(t *testing.T) {
	now := stillClock()
	b := newBoard(func() time.Time { return now })
	old, young := b.add(fakeEntry{1, 0}), b.add(fakeEntry{2, 1})
	first, second := b.send(old, 0, 1), b.send(old, 1, 1)
	b.finish(old)
	other := b.send(young, 0, 1)
	b.finish(young)
	began := now
	now = now.Add(time.Second)
	b.answer(other, nil, noVerdict)
	if v := b.view(); !v.moved.Equal(began) {
		t.Errorf("an answer to a younger message moved the clock by %v", v.moved.Sub(began))
	}
	b.answer(first, nil, noVerdict)
	if v := b.view(); !v.moved.Equal(now) {
		t.Errorf("an answer to the oldest message did not start the clock anew")
	}
	b.answer(second, nil, noVerdict)
	if seq, n := b.ready(); seq != 2 || n != 2 {
		t.Errorf("ready are %d entries through %d, want both", n, seq)
	}
}

// Everything behind an entry of its stream that is sent again is sent again
// too, also what arrived, as when the topic got more partitions meanwhile.
func TestBoardRewindsWholeStreams(t *testing.T) {
	b := newBoard(stillClock)
	var flights []*flight
	var tickets []*ticket
	for i, stream := range []int{0, 1, 0, 1} {
		f := b.add(fakeEntry{uint64(i + 1), stream})
		flights, tickets = append(flights, f), append(tickets, b.send(f, 0, 1))
		b.finish(f)
	}
	for _, i := range []int{1, 2, 3} {
		b.answer(tickets[i], nil, noVerdict)
	}
	b.abort(errors.New("the session failed"))
	b.answer(tickets[0], errors.New("purged"), noVerdict)
	again := b.rewind()
	if len(again) != 2 || again[0] != flights[0] || again[1] != flights[2] || again[1].prefix != 0 {
		t.Errorf("%d entries are sent again, want the first and the third", len(again))
	}
}

func TestBoardSift(t *testing.T) {
	for name, test := range map[string]struct {
		sizes []int64
		batch int64
		left  int
	}{
		"many small ones":       {[]int64{20000, 20000, 20000, 20000}, 40000, 0},
		"one large among small": {[]int64{100, 90000, 200}, 0, 1},
		"alone":                 {[]int64{70000}, 0, 1},
		"small ones, small sum": {[]int64{1000, 2000, 3000}, 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(stillClock)
			for i, size := range test.sizes {
				b.suspects[mark{1, int64(i)}] = suspect{size, true}
			}
			b.suspects[mark{2, 0}] = suspect{1, false}
			if batch := b.sift(); batch != test.batch || len(b.suspects) != test.left+1 {
				t.Errorf("batches of %d, %d suspects left, want %d and %d", batch, len(b.suspects), test.batch, test.left+1)
			}
		})
	}
}
