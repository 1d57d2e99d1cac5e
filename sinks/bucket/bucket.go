// Package bucket is the sink that writes records as Parquet objects to an
// object store, and the reader of such objects.
//
// A node has one PUT in flight. While it is, the next object is encoded, and
// under a backlog grows beyond its usual size. An object's name is chosen
// after the PUT before it was acknowledged and saved before its own, so that
// names order as the records do and every retry, also one after a restart,
// writes the same entries under the same name.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"time"

	"celldexport/internal/objstore"
	"celldexport/sinks"

	"github.com/apache/arrow-go/v18/parquet/compress"
)

// Config is what the sink works with. Zero durations and sizes take the
// defaults.
type Config struct {
	// Store is the export bucket.
	Store objstore.Store
	// Node is part of every key; one node has one writer.
	Node string
	// FlushInterval is how long the first record of an object waits for
	// more, 10 s by default.
	FlushInterval time.Duration
	// FlushBytes is the size of records that makes an object complete before
	// that, 8 MiB by default. Objects grow up to 8 times as large while the
	// one before is being written.
	FlushBytes int64
	// QueueBytes is the memory the sink may take, 256 MiB by default: an
	// object never holds more than a quarter of it, unless one entry does.
	QueueBytes int64
	// Retention is "none" (the default) or "<n>d". It is written into every
	// object.
	Retention string
	// Uncompressed leaves pages as they are instead of compressing them with
	// zstd. Tests inside a synctest bubble need it: the Parquet library keeps
	// its zstd coders, and a channel of one bubble is of no use in another.
	Uncompressed bool
	// RetryMin and RetryMax bound the wait before a failed PUT is tried
	// again, 500 ms and 30 s by default.
	RetryMin, RetryMax time.Duration
	// Now is the clock and Rand the source of object names' random parts;
	// nil are time.Now and a random source. Both are called from two
	// goroutines.
	Now  func() time.Time
	Rand func() uint32
}

// SinkName is the sink's name in settings.
const SinkName = "bucket"

// backlogFactor is how much larger than FlushBytes an object may grow.
const backlogFactor = 8

// Sink is the bucket sink.
type Sink struct {
	cfg Config

	mu    sync.Mutex
	stats Stats
	// first and last are what Located tells.
	first, last int64
}

// Stats is what the sink did since it was made.
type Stats struct {
	// Objects and Bytes were stored; Records are in them.
	Objects, Bytes, Records int64
	// Failures counts PUTs that were tried again.
	Failures int64
	// LastKey was stored at LastAt.
	LastKey string
	LastAt  time.Time
	// Retrying is the error of the PUT that is being tried again since
	// RetryingSince, "" when there is none.
	Retrying      string
	RetryingSince time.Time
}

var _ sinks.Sink = (*Sink)(nil)

var retention = regexp.MustCompile(`^(none|[1-9][0-9]*d)$`)

// New makes the sink; it does not touch the store.
func New(cfg Config) (*Sink, error) {
	if cfg.Store == nil {
		return nil, errors.New("bucket sink: no store")
	}
	if err := checkNode(cfg.Node); err != nil {
		return nil, fmt.Errorf("bucket sink: %w", err)
	}
	cfg = cfg.withDefaults()
	if !retention.MatchString(cfg.Retention) {
		return nil, fmt.Errorf("bucket sink: retention %q is neither none nor <n>d", cfg.Retention)
	}
	return &Sink{cfg: cfg}, nil
}

func (c Config) withDefaults() Config {
	if c.FlushInterval <= 0 {
		c.FlushInterval = 10 * time.Second
	}
	if c.FlushBytes <= 0 {
		c.FlushBytes = 8 << 20
	}
	if c.QueueBytes <= 0 {
		c.QueueBytes = 256 << 20
	}
	if c.Retention == "" {
		c.Retention = "none"
	}
	if c.RetryMin <= 0 {
		c.RetryMin = 500 * time.Millisecond
	}
	if c.RetryMax <= 0 {
		c.RetryMax = 30 * time.Second
	}
	c.RetryMax = max(c.RetryMax, c.RetryMin)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Uint32
	}
	return c
}

func (c *Config) codec() compress.Compression {
	if c.Uncompressed {
		return compress.Codecs.Uncompressed
	}
	return compress.Codecs.Zstd
}

// limits are the sizes at which an object is complete, and at which it takes
// no more even while the one before is being written.
func (c *Config) limits() (flush, full int64) {
	most := max(1, c.QueueBytes/4)
	return min(c.FlushBytes, most), min(backlogFactor*c.FlushBytes, most)
}

// Name is "bucket".
func (s *Sink) Name() string { return SinkName }

// Stats tells what the sink did so far.
func (s *Sink) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Report is the sink's state in a few words, and the error it is retrying.
func (s *Sink) Report() (state, lastError string) {
	st := s.Stats()
	switch {
	case st.Retrying != "":
		return fmt.Sprintf("trying again since %s", st.RetryingSince.UTC().Format(time.RFC3339)), st.Retrying
	case st.LastKey == "":
		return "nothing stored yet", ""
	default:
		return "stored " + st.LastKey, ""
	}
}

// Located tells the times, in microseconds, in the names of the objects that
// hold the entries which are acknowledged just now.
func (s *Sink) Located() (first, last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first, s.last
}

func (s *Sink) locate(first, last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.last = first, last
}

// Run writes objects until ctx ends; see [sinks.Sink]. A store that fails is
// tried again for ever.
func (s *Sink) Run(ctx context.Context, queue sinks.Queue) error {
	r := &run{sink: s, queue: queue}
	r.each = r.record
	if err := r.resume(ctx); err != nil {
		return endOf(ctx, err)
	}
	err := r.loop(ctx)
	return endOf(ctx, errors.Join(err, r.abandon()))
}

// endOf is nil when ctx ended: what a run met then is no error of its own.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
