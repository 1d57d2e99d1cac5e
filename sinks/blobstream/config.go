// Package blobstream is the sink that produces records to a topic of
// blob-stream brokers.
//
// A record's stream chooses its partition, and at most one batch of a
// partition is on its way at any time, so the broker stores a stream's records
// in order, but for copies: it knows no idempotence, and a batch whose answer
// got lost is sent again. Consumers go by positions.
//
// Nothing is given up for lack of time. A batch that is not acknowledged
// within the retry time counts as undelivered and is sent again, with a new
// retry time, until the broker has it: the records stay in the spool as long.
// Two of the broker's answers are final for its own producer, an unknown topic
// and a bad request; both speak of how topic and settings are cut, not of a
// record, so they are told as the reason and tried again, ever more slowly:
// nothing is lost that somebody can put right.
// Refused for good is only a record too large for any request, and one that its
// broker refuses for its size alone for the whole retry time.
package blobstream

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"celldexport/sinks/blobstream/discover"
	"celldexport/sinks/blobstream/route"
)

// SinkName is the sink's name in settings.
const SinkName = "blob-stream"

// Config is what the sink works with. Zero durations and sizes take the
// defaults, which are those of the brokers' own producer.
type Config struct {
	// Shape is how the topic is cut and which of its writers this node is.
	Shape route.Shape
	// Source finds the brokers of that writer.
	Source discover.Source
	// Retry is how long a batch is tried before its records count as
	// undelivered, 30 s by default.
	Retry time.Duration
	// QueueBytes is the memory the sink may take, 256 MiB by default: records
	// on their way, each held twice while it is sent.
	QueueBytes int64
	// Linger is how long the first record of a batch waits for more, 200 ms
	// by default.
	Linger time.Duration
	// BatchRecords and BatchBytes complete a batch before that: 10,000
	// records or 1 MiB of them. Under a backlog batches grow up to 8 times
	// BatchBytes.
	BatchRecords int
	BatchBytes   int
	// RequestTimeout bounds one request, 5 s by default, and Requests how
	// many are under way, 64.
	RequestTimeout time.Duration
	Requests       int
	// Logger is told when brokers stop taking records and when they do again.
	Logger *slog.Logger
	// Now is the clock and Rand a source of numbers from 0 to 1 for spreading
	// retries; nil are time.Now and a random source. Rand is called from
	// several goroutines.
	Now  func() time.Time
	Rand func() float64
	// transport replaces the connections to brokers in tests.
	transport transport
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, byDefault time.Duration) {
		if *d <= 0 {
			*d = byDefault
		}
	}
	set(&c.Retry, 30*time.Second)
	set(&c.Linger, 200*time.Millisecond)
	set(&c.RequestTimeout, 5*time.Second)
	if c.QueueBytes <= 0 {
		c.QueueBytes = 256 << 20
	}
	if c.BatchRecords <= 0 {
		c.BatchRecords = 10_000
	}
	if c.BatchBytes <= 0 {
		c.BatchBytes = 1 << 20
	}
	if c.Requests <= 0 {
		c.Requests = 64
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c
}

func (c *Config) check() error {
	if err := c.Shape.Check(); err != nil {
		return fmt.Errorf("blob-stream sink: topic %q: %w", c.Shape.Topic, err)
	}
	if c.Source == nil {
		return errors.New("blob-stream sink: no brokers")
	}
	return nil
}

// budget is how much of records may be held.
func (c *Config) budget() int64 { return max(1, c.QueueBytes/2) }
