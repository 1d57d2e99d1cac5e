package sinktest_test

import (
	"context"
	"iter"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
	"celldexport/sinks/sinktest"
)

func TestPlainSink(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Place { return newShelf(t) })
}

// sabotageVariable names, in a child process, what the sink does wrong.
const sabotageVariable = "SINKTEST_SABOTAGE"

// TestSabotage has a sink do its work badly, in every way that the suite is
// there to see: the suite fails where it has to.
func TestSabotage(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ sabotage, name, says string }{
		{"drop", "DeliversEverything", "missing is "},
		{"drop", "SecondLife", "missing is "},
		{"swap records", "DeliversEverything", "of stream"},
		{"swap entries", "Slow", "of stream"},
		{"acknowledge early", "EndsWithoutAnswers", "are acknowledged and"},
		{"acknowledge early", "Restarts", "are acknowledged and"},
		{"repeat", "DeliversEverything", "in a calm place twice"},
		{"alter", "Restarts", "nobody sent"},
		{"hoard", "MemoryIsBounded", "bytes are held"},
		{"nothing", "EndsWithoutAnswers", ""},
	} {
		t.Run(c.sabotage+" "+c.name, func(t *testing.T) {
			t.Parallel()
			child := exec.CommandContext(t.Context(), program, "-test.run=^TestSabotaged$/^"+c.name+"$", "-test.v")
			child.Env = append(os.Environ(), sabotageVariable+"="+c.sabotage)
			out, err := child.CombinedOutput()
			if c.says == "" { // no sabotage: the way to this test's verdict is open
				if err != nil || !strings.Contains(string(out), "--- PASS: TestSabotaged/"+c.name) {
					t.Errorf("%v without sabotage:\n%s", err, out)
				}
				return
			}
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestSabotaged/"+c.name) || !strings.Contains(string(out), c.says) {
				t.Errorf("the suite does not see it (%v):\n%.3000s", err, out)
			}
		})
	}
}

// TestSabotaged is run by TestSabotage in a child process.
func TestSabotaged(t *testing.T) {
	kind := os.Getenv(sabotageVariable)
	if kind == "" {
		t.Skip("a child process of TestSabotage runs it")
	}
	sinktest.Run(t, func(t *testing.T) sinktest.Place {
		p := newShelf(t)
		p.spoil = func(s sinks.Sink) sinks.Sink { return &saboteur{s.(*plain), kind, p} }
		return p
	})
}

// saboteur is a sink whose queue lies to it.
type saboteur struct {
	*plain
	kind  string
	place *shelf
}

func (s *saboteur) Run(ctx context.Context, queue sinks.Queue) error {
	return s.plain.Run(ctx, &lies{Queue: queue, kind: s.kind, again: len(s.place.Read(nil)) > 0, late: map[envelope.Stream][]envelope.Encoded{}})
}

type lies struct {
	sinks.Queue
	kind string
	// again is set when another run was before.
	again   bool
	hoarded []sinks.Entry
	// late are records that come with the stream's next entry, behind it.
	late map[envelope.Stream][]envelope.Encoded
}

func (q *lies) Next(ctx context.Context, deadline time.Time) (sinks.Entry, error) {
	if q.kind == "hoard" {
		return q.hoard(ctx, deadline)
	}
	e, err := q.Queue.Next(ctx, deadline)
	if e == nil || err != nil {
		return nil, err
	}
	if q.kind == "acknowledge early" {
		return e, q.Queue.Ack(e.Seq())
	}
	var records []envelope.Encoded
	for rec, err := range e.Records() {
		if err != nil {
			return nil, err
		}
		rec.Body = slices.Clone(rec.Body)
		records = append(records, rec)
	}
	return told{e, q.spoil(e, records)}, nil
}

func (q *lies) spoil(e sinks.Entry, records []envelope.Encoded) []envelope.Encoded {
	turn := e.Seq()%40 == 0
	switch {
	case q.kind == "drop" && turn:
		return nil
	case q.kind == "repeat" && turn:
		return append(records, records...)
	case q.kind == "swap records" && len(records) > 1:
		slices.Reverse(records)
	case q.kind == "swap entries" && turn:
		q.late[e.Stream()] = records
		return nil
	case q.kind == "swap entries":
		records = append(records, q.late[e.Stream()]...)
		delete(q.late, e.Stream())
	case q.kind == "alter" && q.again:
		for i := range records {
			records[i].Node = "node-b"
		}
	}
	return records
}

// hoard takes everything there is before it gives anything.
func (q *lies) hoard(ctx context.Context, deadline time.Time) (sinks.Entry, error) {
	for {
		wait := deadline
		if len(q.hoarded) > 0 {
			wait = time.Now().Add(time.Millisecond)
		}
		e, err := q.Queue.Next(ctx, wait)
		if err != nil {
			return nil, err
		}
		if e == nil {
			break
		}
		q.hoarded = append(q.hoarded, e)
	}
	if len(q.hoarded) == 0 {
		return nil, nil
	}
	e := q.hoarded[0]
	q.hoarded = q.hoarded[1:]
	return e, nil
}

// told is an entry with other records.
type told struct {
	sinks.Entry
	records []envelope.Encoded
}

func (e told) Records() iter.Seq2[envelope.Encoded, error] {
	return func(yield func(envelope.Encoded, error) bool) {
		for _, rec := range e.records {
			if !yield(rec, nil) {
				return
			}
		}
	}
}
