// Package sinks holds the places records are sent to. A Sink pulls entries
// from its Queue and acknowledges each when it is stored for good; order
// within a stream, cursors, watermarks and restarts are the queue's work
// (package delivery), so a sink only sends.
package sinks

import (
	"context"
	"iter"
	"time"

	"celldexport/envelope"
)

// Entry is one position's records of one stream, in emission order.
type Entry interface {
	// Seq is the entry's number in the spool. Entries come in this order.
	Seq() uint64
	Stream() envelope.Stream
	Position() envelope.Position
	// Bytes is the encoded size of the entry's records.
	Bytes() int64
	// Records yields the records. They are read from disk and valid until
	// the next one is asked for.
	Records() iter.Seq2[envelope.Encoded, error]
}

// Refusal is a record that a sink's place will never take.
type Refusal struct {
	// Record is its place among the entry's records, from 0.
	Record int64
	// Reason says why, and which setting of the place would have to change.
	// Consumers get to read it.
	Reason string
}

// Queue is one sink's view of the spool. It is used by one goroutine.
type Queue interface {
	// Next waits for the next entry, at most until deadline (zero: without
	// limit). It returns nil when the deadline passed or a flush was asked
	// for; Flush then tells which. A flush is told once for what the sink
	// took and did not acknowledge, and again when it took more. An error
	// that is not ctx's ends the run: the next one begins at the first entry
	// not acknowledged.
	Next(ctx context.Context, deadline time.Time) (Entry, error)
	// Flush reports whether everything held back is to be sent at once.
	Flush() bool
	// Ack says that the entry and all before it that this sink took are
	// stored for good.
	Ack(seq uint64) error
	// Refuse says that a record of an entry that this sink took, and has not
	// acknowledged, will never be stored: the place has it refused for good.
	// It takes effect with the entry's acknowledgement and has to be said
	// again when a restart comes before that. The rest of the entry is stored
	// as ever; a gap tells this sink's readers of the loss.
	Refuse(seq uint64, refusal Refusal) error
	// Load and Save keep a few bytes of the sink's own across restarts
	// (Load returns nil when there are none). Save is durable on return.
	Load() ([]byte, error)
	Save(state []byte) error
}

// Sink sends records somewhere.
type Sink interface {
	// Name is the sink's name in settings, metrics and state.
	Name() string
	// Run sends what queue holds until ctx ends. It returns nil then and an
	// error when it cannot go on; a place that cannot be reached is not such
	// an error, it is waited for.
	Run(ctx context.Context, queue Queue) error
}
