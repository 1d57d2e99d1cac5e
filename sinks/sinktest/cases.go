package sinktest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"celldexport/envelope"
)

// scene is a case of the suite.
type scene struct {
	*Harness
	place Place
}

func (s *scene) begin() { s.Begin(s.place.Sink(s.t, 0)) }

func (s *scene) behave(b Behavior) { s.place.Behave(s.t, b) }

// check holds everything against a consumer's view, after a flush. It returns
// how many copies the consumer got.
func (s *scene) check() (copies int) {
	s.t.Helper()
	s.behave(Calm)
	s.Flush()
	list := s.place.Read(s.t)
	s.Certified(list)
	s.Ordered(list)
	copies = s.Exact(list)
	st := s.Status()
	if st.Dropped != 0 || st.Restarts != 0 || st.BacklogEntries != 0 || st.LastError != "" {
		s.t.Errorf("afterwards the sink is %+v", st)
	}
	return copies
}

// trouble waits until the sink says that something is wrong.
func (s *scene) trouble() {
	s.t.Helper()
	Eventually(s.t, "word of the trouble", func() bool { return s.Status().LastError != "" })
}

// hits waits until some writes met the place's behavior.
func (s *scene) hits(n int) {
	s.t.Helper()
	Eventually(s.t, fmt.Sprintf("write number %d", n), func() bool { return s.place.Hits() >= n })
}

// deliversEverything has units of one record, of many, of none and of a long
// one, in seven streams.
func deliversEverything(s *scene) {
	s.begin()
	for i := range 12 {
		s.Fill(i*100, i*100+100, 7)
		s.Next(Stream(i % 7))
		var many []envelope.Body
		for n := range 20 {
			many = append(many, &envelope.Schema{
				TableGeneration: envelope.TableGeneration{Table: fmt.Sprintf("t%d_%d", i, n), Generation: 1},
				SQL:             "CREATE TABLE t(a)", Columns: []envelope.ColumnDef{{Name: "a"}},
			})
		}
		s.Next(Stream(i%3), many...)
		s.Unit(2, 1000, strings.Repeat("long ", 40_000))
		s.Sync()
	}
	if copies := s.check(); copies != 0 {
		s.t.Errorf("%d records are in a calm place twice", copies)
	}
}

// quietBesideBusy never lets the sink come to the end of a busy stream; quiet
// ones are delivered all the same.
func quietBesideBusy(s *scene) {
	s.begin()
	s.behave(Slow)
	busy := 0
	more := func() {
		s.Fill(busy, busy+50, 1)
		busy += 50
	}
	for quiet := 1; quiet <= 3; quiet++ {
		more()
		s.Unit(quiet, 1, "quiet")
		s.Sync()
		at := s.Spool.Last()
		more() // there is always something of the busy stream behind
		Eventually(s.t, "delivery beside a busy stream", func() bool {
			if s.Spool.Last()-s.Status().Cursor < 100 {
				more()
			}
			return s.Status().Cursor >= at
		})
	}
	s.check()
}

func downAtStart(s *scene) {
	s.behave(Down)
	s.begin()
	s.Fill(0, 200, 5)
	s.trouble()
	if st := s.Status(); st.Cursor != 0 || st.BacklogEntries < 200 {
		s.t.Errorf("a place that is down took %d entries of %d", st.Cursor, st.BacklogEntries)
	}
	s.check()
}

func goesDown(s *scene) {
	s.begin()
	s.Fill(0, 200, 5)
	s.Flush()
	for round := 1; round < 3; round++ {
		s.Fill(round*300, round*300+150, 5) // some of it is under way
		s.behave(Down)
		s.Fill(round*300+150, round*300+300, 5)
		s.trouble()
		s.behave(Calm)
		s.Flush()
	}
	s.check()
}

func losesAnswers(s *scene) {
	s.begin()
	s.Fill(0, 50, 5)
	s.Flush()
	for round := 1; round < 3; round++ {
		s.behave(Losing)
		s.Fill(round*100, round*100+50, 5)
		s.hits(3)
		s.Fill(round*100+50, round*100+100, 5)
		s.behave(Calm)
		s.Flush()
	}
	s.check()
}

func slow(s *scene) {
	s.behave(Slow)
	s.begin()
	for i := range 5 {
		s.Fill(i*100, i*100+100, 5)
		s.hits(i + 1)
	}
	s.Flush()
	s.check()
}

// restarts has the process end and start again while records are under way, in
// a place that is slow and in one that loses answers.
func restarts(s *scene) {
	for round := range 6 {
		b := []Behavior{Slow, Losing, Calm}[round%3]
		s.behave(b)
		s.begin()
		s.Fill(round*200, round*200+200, 5)
		if b != Calm {
			s.hits(1)
		}
		s.End()
		s.behave(Calm)
		s.AcknowledgedIsThere(s.place.Read(s.t))
	}
	s.begin()
	s.check()
}

// endsWithoutAnswers ends while writes are neither stored nor failed, as they
// are in a network that swallows them.
func endsWithoutAnswers(s *scene) {
	s.begin()
	s.Fill(0, 50, 5)
	s.Flush()
	_, before, _ := s.watch().counts()
	s.behave(Stalled)
	s.Fill(50, 1000, 5)
	s.hits(1)
	s.End()
	if _, acked, _ := s.watch().counts(); acked != before {
		s.t.Errorf("entries up to %d are acknowledged, no write after %d was answered", acked, before)
	}
	s.behave(Calm)
	s.AcknowledgedIsThere(s.place.Read(s.t))
	s.begin()
	s.check()
}

func endsWhileDown(s *scene) {
	s.begin()
	s.Fill(0, 50, 5)
	s.Flush()
	s.behave(Down)
	s.Fill(50, 300, 5)
	s.trouble()
	s.End()
	s.begin()
	s.Fill(300, 350, 5)
	s.trouble()
	s.End()
	s.behave(Calm)
	s.AcknowledgedIsThere(s.place.Read(s.t))
	s.begin()
	s.check()
}

// memoryIsBounded has far more wait for the place than the sink may hold. It
// looks while nothing is stored: later an entry may wait for one before it to
// be acknowledged, with its records in the place and out of memory.
func memoryIsBounded(s *scene) {
	const queueBytes, units = 1 << 20, 1000
	s.Begin(s.place.Sink(s.t, queueBytes))
	s.Fill(0, 50, 5)
	s.Flush()
	s.behave(Down)
	text := strings.Repeat("bounded ", 1<<10)
	for i := range units {
		s.Unit(i%5, int64(i), text)
	}
	s.Sync()
	s.trouble()
	quiet(s.t, func() uint64 { taken, _, _ := s.watch().counts(); return taken })
	taken, acked, held := s.watch().counts()
	if st := s.Status(); st.BacklogBytes < 4*queueBytes || taken == acked {
		s.t.Errorf("%d bytes wait, taken are entries from %d to %d: the case needs more", st.BacklogBytes, acked, taken)
	}
	if held > queueBytes {
		s.t.Errorf("%d bytes are held while the place is down, allowed are %d", held, queueBytes)
	}
	s.check()
}

// quiet waits until a count stands still for a while.
func quiet(t testing.TB, count func() uint64) {
	t.Helper()
	const still = 200 * time.Millisecond
	last, since := count(), time.Now()
	Eventually(t, "standstill", func() bool {
		if now := count(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > still
	})
}

// secondLife has the node lose its state while the place keeps what it has.
func secondLife(s *scene) {
	s.begin()
	s.Fill(0, 200, 5)
	s.check()
	s.NewLife()
	s.begin()
	s.Fill(200, 400, 5)
	s.Fill(1000, 1100, 9) // streams that are new
	s.check()
}
