package blobstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"celldexport/sinks"
)

// Sink is the blob-stream sink.
type Sink struct {
	cfg   Config
	stats counters
	state condition
}

// Stats is what the sink did since it was made.
type Stats struct {
	// Records and Bytes of them were acknowledged, in Batches and Requests.
	Records, Bytes    int64
	Batches, Requests int64
	// Retries counts batches that were sent again, Undelivered the records
	// whose retry time ran out, once for each time, and Refused those too
	// large for any request or for their broker.
	Retries, Undelivered, Refused int64
	// Brokers is how many the sink knows of.
	Brokers int
}

// counters are the Stats with their lock.
type counters struct {
	mu sync.Mutex
	Stats
}

func (c *counters) change(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.Stats)
}

var _ sinks.Sink = (*Sink)(nil)

// New makes the sink; it does not reach for the brokers.
func New(cfg Config) (*Sink, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Sink{cfg: cfg}
	s.state = condition{log: cfg.Logger.With("topic", cfg.Shape.Topic), now: cfg.Now}
	return s, nil
}

// Name is "blob-stream".
func (s *Sink) Name() string { return SinkName }

// Stats tells what the sink did so far.
func (s *Sink) Stats() Stats {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	return s.stats.Stats
}

// Report is the sink's state in a few words, and why records wait.
func (s *Sink) Report() (state, lastError string) {
	if waiting, since, err := s.state.worst(); err != nil {
		if waiting == 0 {
			return "looking for brokers since " + since.UTC().Format(time.RFC3339), err.Error()
		}
		return fmt.Sprintf("%d partitions waiting since %s", waiting, since.UTC().Format(time.RFC3339)), err.Error()
	}
	st := s.Stats()
	if st.Brokers == 0 {
		return "looking for brokers", ""
	}
	return fmt.Sprintf("topic %s, %d brokers, %d records delivered", s.cfg.Shape.Topic, st.Brokers, st.Records), ""
}

// Run sends until ctx ends; see [sinks.Sink]. Brokers that cannot be found or
// reached, or that reject, are waited for.
func (s *Sink) Run(ctx context.Context, queue sinks.Queue) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	members := newMembers(s.cfg.Shape)
	transport := s.cfg.transport
	if transport == nil {
		pool := newPool()
		defer pool.close()
		members.changed = pool.keep
		transport = pool
	}
	work.Go(func() { s.watch(ctx, members) })
	r := &run{sink: s, queue: queue, lanes: map[uint32]*lane{}}
	r.each = r.takeRecord
	r.sender = &sender{
		sink: s, members: members, transport: transport, results: &r.results,
		slots: make(chan struct{}, s.cfg.Requests),
	}
	err := r.loop(ctx)
	ended := ctx.Err() != nil
	cancel()
	r.sender.work.Wait()
	work.Wait()
	s.state.forget()
	if ended {
		return nil
	}
	return err
}

// watch follows the brokers.
func (s *Sink) watch(ctx context.Context, m *members) {
	s.cfg.Source.Watch(ctx, func(list []broker) {
		m.set(list)
		s.stats.change(func(st *Stats) { st.Brokers = len(list) })
		if len(list) == 0 {
			s.state.lookup(errors.New("no broker is ready"))
		} else {
			s.state.lookup(nil)
		}
	}, s.state.lookup)
}
