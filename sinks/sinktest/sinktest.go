// Package sinktest is the suite that every sink passes, and the harness that
// it and the sinks' own tests run on: a spool, its engine, the sink under test
// and the truth to hold against what a consumer of the sink's place has. Only
// tests import it.
package sinktest

import (
	"testing"
	"time"

	"celldexport/sinks"
)

// Within is how long a test waits for what has to come: long, because the
// machine may be busy.
const Within = 90 * time.Second

// endWithin is how long a sink may take to end when its context does.
const endWithin = 10 * time.Second

// Behavior is how a place treats what a sink writes to it.
type Behavior uint8

// The behaviors.
const (
	// Calm takes every write at once.
	Calm Behavior = iota
	// Down cannot be reached.
	Down
	// Losing stores every write and has the answer get lost or turned into a
	// failure.
	Losing
	// Slow takes every write, after some 20 ms.
	Slow
	// Stalled takes writes and does not answer. When the place behaves
	// otherwise again they may be stored yet, or not.
	Stalled
)

// Place is where a sink writes to, in the hands of a test.
type Place interface {
	// Sink makes the sink as a process that starts does, each time for the
	// same place. It may take queueBytes of memory, 0 for its default. It has
	// to say what is wrong within a second or so, and to try again as often.
	Sink(t testing.TB, queueBytes int64) sinks.Sink
	// Behave has the place behave otherwise from now on. A new place is calm.
	Behave(t testing.TB, b Behavior)
	// Hits is how many writes met the behavior since it began. It is not
	// asked for while the place is calm or down.
	Hits() int
	// Read returns all records in the place as JSON, the way a consumer gets
	// them: the records of a stream in the order they are stored in. It
	// reports what is wrong with the form they are in. The place is calm.
	Read(t testing.TB) [][]byte
}

// Factory returns an empty place for one test. What needs cleaning up
// registers with t.
type Factory func(t *testing.T) Place

// Run holds a sink to the contract of sinks.Sink, whatever its place does.
func Run(t *testing.T, open Factory) {
	for _, c := range []struct {
		name string
		run  func(*scene)
	}{
		{"DeliversEverything", deliversEverything},
		{"QuietStreamBesideABusyOne", quietBesideBusy},
		{"DownAtStart", downAtStart},
		{"GoesDown", goesDown},
		{"LosesAnswers", losesAnswers},
		{"Slow", slow},
		{"Restarts", restarts},
		{"EndsWithoutAnswers", endsWithoutAnswers},
		{"EndsWhileDown", endsWhileDown},
		{"MemoryIsBounded", memoryIsBounded},
		{"SecondLife", secondLife},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(&scene{Harness: New(t), place: open(t)})
		})
	}
}

// Eventually waits until something is so.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Within); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %v", what, Within)
		}
	}
}
