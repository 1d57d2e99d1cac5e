package blobstream_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/sinks/blobstream"
	"celldexport/sinks/blobstream/brokertest"
	"celldexport/sinks/blobstream/route"
	"celldexport/sinks/sinktest"
)

const topic = "celld-changes"

var shape = route.Shape{Topic: topic, Partitions: 16, Writers: 2, Writer: 1}

// world is the harness with a deployment of brokers and the sink.
type world struct {
	*sinktest.Harness
	t     testing.TB
	fleet *brokertest.Fleet
	sink  *blobstream.Sink
}

func newWorld(t testing.TB, opt brokertest.Options) *world {
	w := &world{t: t, fleet: newFleet(t, opt)}
	w.Harness = sinktest.New(t)
	return w
}

// newFleet makes a deployment that has the topic and no brokers.
func newFleet(t testing.TB, opt brokertest.Options) *brokertest.Fleet {
	opt.Topics = []brokertest.Topic{{Name: topic, Partitions: shape.Partitions, Writers: shape.Writers}}
	opt.Writer = shape.Writer
	fleet := brokertest.New(opt)
	t.Cleanup(fleet.Close)
	return fleet
}

// members is a source of brokers that the test changes.
type members struct {
	mu   sync.Mutex
	list []route.Broker
	news chan struct{}
}

func newMembers(list ...route.Broker) *members {
	return &members{list: list, news: make(chan struct{}, 1)}
}

func (m *members) set(list ...route.Broker) {
	m.mu.Lock()
	m.list = list
	m.mu.Unlock()
	select {
	case m.news <- struct{}{}:
	default:
	}
}

func (m *members) Watch(ctx context.Context, tell func([]route.Broker), _ func(error)) {
	for {
		m.mu.Lock()
		list := m.list
		m.mu.Unlock()
		tell(list)
		select {
		case <-ctx.Done():
			return
		case <-m.news:
		}
	}
}

// start starts a broker.
func start(t testing.TB, fleet *brokertest.Fleet, id, address string) route.Broker {
	t.Helper()
	b, err := fleet.Start(id, address)
	if err != nil {
		t.Fatal(err)
	}
	return route.Broker{ID: id, Address: b.Address()}
}

func (w *world) start(id, address string) route.Broker {
	w.t.Helper()
	return start(w.t, w.fleet, id, address)
}

// begin starts spool, engine and sink, again after End.
func (w *world) begin(cfg blobstream.Config) {
	w.t.Helper()
	cfg.Shape, cfg.Linger = shape, 10*time.Millisecond
	var err error
	if w.sink, err = blobstream.New(cfg); err != nil {
		w.t.Fatal(err)
	}
	w.Begin(w.sink)
}

// read is the topic as a consumer reads it, with what every message must be:
// in the partition of its stream, at its time.
func read(t testing.TB, fleet *brokertest.Fleet) [][]byte {
	t.Helper()
	list, err := fleet.Read(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	lines := make([][]byte, len(list))
	for i, m := range list {
		rec, err := envelope.Decode(m.Payload)
		if err != nil {
			t.Fatalf("message %d/%d is no record: %v", m.Partition, m.Offset, err)
		}
		if vp := shape.Partition(rec.Stream.Key()); vp != m.Partition || m.EventTsMs != rec.CommittedAt {
			t.Errorf("a record of %v of %d is in partition %d at %d, want %d", rec.Stream, rec.CommittedAt, m.Partition, m.EventTsMs, vp)
		}
		lines[i] = m.Payload
	}
	return lines
}

// check holds what a consumer has against the source and against what was
// sent, and returns how many records it has twice.
func (w *world) check() (copies int) {
	w.t.Helper()
	list := read(w.t, w.fleet)
	w.Certified(list)
	w.Ordered(list)
	return w.Exact(list)
}
