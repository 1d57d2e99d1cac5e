package kafka

import (
	"errors"
	"fmt"
	"iter"
	"slices"
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
				m.fail(rapid.IntRange(0, 2).Draw(t, "partition"))
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
	flying      [3][]mark
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
		if got := m.b.send(f, ticket{index: i, bytes: 10}, int32(part), 1<<40); got != placed {
			m.t.Fatalf("a message is not placed but %d", got)
		}
		m.flying[part] = append(m.flying[part], mark{f.entry.Seq(), i})
	}
	m.b.finish(f)
}

func (m *boardModel) answer(part int, err error) {
	if len(m.flying[part]) == 0 {
		return
	}
	if err == nil {
		m.take(part, m.flying[part][0])
	}
	m.flying[part] = m.flying[part][1:]
	report(m.b, part, err, noVerdict)
}

// take has the brokers store a message.
func (m *boardModel) take(part int, at mark) {
	m.logs[part] = append(m.logs[part], at)
	if m.taken[at.seq] == nil {
		m.taken[at.seq] = map[int64]bool{}
	}
	m.taken[at.seq][at.index] = true
}

// fail is a producer that gives up: of what is under way to a partition the
// brokers took some, in order, and the reports say at first that one was not,
// and then anything.
func (m *boardModel) fail(part int) {
	n := len(m.flying[part])
	if n == 0 {
		return
	}
	for _, at := range m.flying[part][:rapid.IntRange(0, n).Draw(m.t, "taken")] {
		m.take(part, at)
	}
	m.flying[part] = nil
	report(m.b, part, errors.New("lost"), noVerdict)
	for range n - 1 {
		if rapid.Bool().Draw(m.t, "arrived") {
			report(m.b, part, nil, noVerdict)
		} else {
			report(m.b, part, errors.New("purged"), noVerdict)
		}
	}
}

// report has the board take one report.
func report(b *board, part int, err error, v verdict) {
	b.answers(arrival{int32(part), err, v}, func() (arrival, bool) { return arrival{}, false })
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
	v := m.b.view()
	if v.ready == 0 {
		return
	}
	for s := m.acked + 1; s <= v.seq; s++ {
		if int64(len(m.taken[s])) != m.sizes[s-1] {
			m.t.Fatalf("entry %d is acknowledged with %d of its %d messages", s, len(m.taken[s]), m.sizes[s-1])
		}
	}
	m.b.remove(v.ready)
	m.acked = v.seq
}

// The time that an answer is owed begins anew when the oldest message was
// answered, and not with those behind it.
func TestBoardOwed(t *testing.T) {
	now := stillClock()
	b := newBoard(func() time.Time { return now })
	old, young := b.add(fakeEntry{1, 0}), b.add(fakeEntry{2, 1})
	post(t, b, old, 0, 0)
	post(t, b, old, 1, 0)
	b.finish(old)
	post(t, b, young, 0, 1)
	b.finish(young)
	began := now
	now = now.Add(time.Second)
	report(b, 1, nil, noVerdict)
	if v := b.view(); !v.moved.Equal(began) {
		t.Errorf("an answer to a younger message moved the clock by %v", v.moved.Sub(began))
	}
	report(b, 0, nil, noVerdict)
	if v := b.view(); !v.moved.Equal(now) {
		t.Errorf("an answer to the oldest message did not start the clock anew")
	}
	report(b, 0, nil, noVerdict)
	if v := b.view(); v.seq != 2 || v.ready != 2 {
		t.Errorf("ready are %d entries through %d, want both", v.ready, v.seq)
	}
}

// post sends a message of one byte.
func post(t *testing.T, b *board, f *flight, index int64, part int32) {
	t.Helper()
	if got := b.send(f, ticket{index: index, bytes: 1}, part, 1<<40); got != placed {
		t.Fatalf("a message is not placed but %d", got)
	}
}

// A report that no message under way explains ends the session: nothing is
// acknowledged by it.
func TestBoardUnexplainedReport(t *testing.T) {
	for _, part := range []int{-1, 0, 1, 7} {
		b := newBoard(stillClock)
		f := b.add(fakeEntry{1, 0})
		post(t, b, f, 0, 2)
		b.finish(f)
		report(b, part, nil, noVerdict)
		if v := b.view(); v.failed == nil || v.ready != 0 || v.open != 1 {
			t.Errorf("a report of partition %d leaves %+v", part, v)
		}
	}
}

// What becomes ready is told: by a call, or to the one who sets what is
// called.
func TestBoardWakes(t *testing.T) {
	b := newBoard(stillClock)
	f := b.add(fakeEntry{1, 0})
	post(t, b, f, 0, 0)
	b.finish(f)
	old, calls := 0, 0
	if v := b.setAwake(func() { old++ }); v.ready != 0 || v.open != 1 {
		t.Errorf("at first the board stands at %+v", v)
	}
	report(b, 0, nil, noVerdict)
	v := b.setAwake(func() { calls++ })
	if old != 1 || calls != 0 || v.ready != 1 || v.seq != 1 {
		t.Errorf("ready was told %d times to the first, %d times to the second, who sees %+v", old, calls, v)
	}
	b.remove(1)
	f = b.add(fakeEntry{2, 0})
	post(t, b, f, 0, 0)
	b.finish(f)
	report(b, 0, errors.New("lost"), noVerdict)
	if calls != 1 {
		t.Errorf("the failure was told %d times", calls)
	}
	if b.setAwake(func() { old++ }); old != 2 {
		t.Error("a failure is not told to who comes later")
	}
}

// Only so many bytes are under way, but always one message; what the client
// does not take is as if it had never been placed.
func TestBoardRoom(t *testing.T) {
	b := newBoard(stillClock)
	f := b.add(fakeEntry{1, 0})
	if got := b.send(f, ticket{index: 0, bytes: 500}, 0, 100); got != placed {
		t.Fatalf("the only message is not placed but %d", got)
	}
	if got := b.send(f, ticket{index: 1, bytes: 1}, 1, 100); got != full {
		t.Errorf("a message too much is not held back but %d", got)
	}
	b.unsend(0)
	if v := b.view(); v.open != 0 || v.bytes != 0 {
		t.Errorf("taken back, the message leaves %+v", v)
	}
	for i := range int64(1000) { // the ring grows, and goes round
		post(t, b, f, i, 0)
		if i%3 == 2 {
			report(b, 0, nil, noVerdict)
		}
	}
	b.finish(f)
	for range b.view().open {
		report(b, 0, nil, noVerdict)
	}
	if v := b.view(); v.failed != nil || v.ready != 1 || f.prefix != 1000 {
		t.Errorf("at the end %+v, %d messages arrived at the front", v, f.prefix)
	}
}

// Everything behind an entry of its stream that is sent again is sent again
// too, also what arrived, as when the topic got more partitions meanwhile.
func TestBoardRewindsWholeStreams(t *testing.T) {
	b := newBoard(stillClock)
	var flights []*flight
	for i, stream := range []int{0, 1, 0, 1} {
		f := b.add(fakeEntry{uint64(i + 1), stream})
		flights = append(flights, f)
		post(t, b, f, 0, int32(i))
		b.finish(f)
	}
	for _, i := range []int{1, 2, 3} {
		report(b, i, nil, noVerdict)
	}
	b.abort(errors.New("the session failed"))
	report(b, 0, errors.New("purged"), noVerdict)
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
		"too small to cut":      {[]int64{9000, 9000, 9000}, 0, 3},
		"two that fill a batch": {[]int64{1 << 20, 1 << 20, 20000}, 0, 3},
		"many full batches":     {slices.Repeat([]int64{20000}, 200), 500000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(stillClock)
			for i, size := range test.sizes {
				b.suspects[mark{1, int64(i)}] = suspect{size, true}
			}
			b.suspects[mark{2, 0}] = suspect{1, false}
			if batch := b.sift(1000000); batch != test.batch || len(b.suspects) != test.left+1 {
				t.Errorf("batches of %d, %d suspects left, want %d and %d", batch, len(b.suspects), test.batch, test.left+1)
			}
		})
	}
}
