package exporter_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"celldexport/envelope"
	"celldexport/exporter/consumer"
	"celldexport/internal/celldsim"
	"celldexport/internal/config"
	"celldexport/sinks/blobstream/brokertest"
	blobstreampb "celldexport/sinks/blobstream/proto"
)

// place is where a sink of brokers sends to: they can be down and come back
// with all that they stored.
type place struct {
	t *testing.T
	// sink is its name in settings.
	sink string
	// use points settings at the brokers.
	use      func(*config.Settings)
	down, up func()
	// mute has the brokers store what they get and their answers be lost.
	mute func()
	// records are what a consumer of the topic gets.
	records func() []*envelope.Record
	// stored counts what the brokers have, and can be asked while they are
	// mute.
	stored func() int
}

// places are the kinds of place there are, to be opened by name.
func places() map[string]func(t *testing.T) *place {
	all := map[string]func(t *testing.T) *place{config.SinkBlobStream: blobStreamPlace}
	addKafkaPlace(all)
	return all
}

// blobStreamPlace has two brokers, which crash and start again together.
func blobStreamPlace(t *testing.T) *place {
	var muted atomic.Bool
	fleet := brokertest.New(brokertest.Options{
		Topics: []brokertest.Topic{{Name: "celld-changes", Partitions: 8, Writers: 1}},
		Fault: func(string, *blobstreampb.ProduceBatchesRequest) brokertest.Fault {
			if muted.Load() {
				return brokertest.LoseAnswer
			}
			return brokertest.None
		},
	})
	t.Cleanup(fleet.Close)
	addresses := map[string]string{"broker-a": "", "broker-b": ""}
	running := map[string]*brokertest.Broker{}
	up := func() {
		muted.Store(false)
		for id, address := range addresses {
			if running[id] != nil {
				continue
			}
			b, err := fleet.Start(id, address)
			if err != nil {
				t.Fatal(err)
			}
			addresses[id], running[id] = b.Address(), b
		}
	}
	up()
	fleet.SetMembers("broker-a", "broker-b")
	p := &place{
		t: t, sink: config.SinkBlobStream, up: up, mute: func() { muted.Store(true) },
		use: func(s *config.Settings) {
			var brokers []string
			for id, address := range addresses {
				brokers = append(brokers, id+"="+address)
			}
			s.BlobStream = config.BlobStream{Brokers: brokers, Partitions: 8}
		},
		down: func() {
			for id, b := range running {
				b.Crash()
				delete(running, id)
			}
		},
		records: func() []*envelope.Record {
			messages, err := fleet.Read(t.Context(), "celld-changes")
			if err != nil {
				t.Fatal(err)
			}
			var list []*envelope.Record
			for _, m := range messages {
				rec, err := envelope.Decode(m.Payload)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, rec)
			}
			return list
		},
	}
	p.stored = func() int { return len(p.records()) }
	return p
}

// consumer is what reads the place's topic.
func (p *place) consumer() *consumer.Consumer {
	p.t.Helper()
	c := &consumer.Consumer{Records: p.records()}
	if err := c.Apply(); err != nil {
		p.t.Fatal(err)
	}
	return c
}

// equal holds what the place stored against the cells: the same rows,
// certified to their heads, nothing of a lost history, no hole, and chains of
// watermarks that go on each from its own last.
func (p *place) equal(w *world, cells ...*celldsim.Cell) *consumer.Consumer {
	p.t.Helper()
	c := p.consumer()
	sound(w, p.sink, c, cells...)
	return c
}

// sound is every validator over what one sink stored.
func sound(w *world, sink string, c *consumer.Consumer, cells ...*celldsim.Cell) {
	w.t.Helper()
	for _, cell := range cells {
		diffs, err := c.Compare(w.t.Context(), consumer.SourceOf(cell))
		w.must(err)
		diffs = append(diffs, c.Certified(consumer.SourceOf(cell))...)
		for _, d := range diffs {
			w.t.Errorf("sink %s: %s", sink, d)
		}
		if len(diffs) > 0 {
			w.t.Logf("sink %s has of cell %s:%s", sink, cell.Scope(), spelled(c, cell.Scope()))
		}
	}
	for _, d := range c.Phantoms(w.survived) {
		w.t.Errorf("sink %s: %s", sink, d)
	}
	if gaps, err := c.State.Gaps(); err != nil || len(gaps) > 0 {
		w.t.Errorf("sink %s: gaps %+v, %v", sink, gaps, err)
	}
	chained(w.t, sink, c.Records)
}

// spelled is what a sink stored of a cell, in its order, with what it counts.
func spelled(c *consumer.Consumer, cell string) string {
	var b strings.Builder
	for _, r := range c.Records {
		if r.Stream.Cell != cell {
			continue
		}
		if m, ok := r.Body.(*envelope.Watermark); ok {
			from := "null"
			if m.From != nil {
				from = m.From.String()
			}
			fmt.Fprintf(&b, " (%s, %v] %d positions %d records;", from, m.Through, m.Commits, m.Records)
		} else {
			fmt.Fprintf(&b, " %s %v;", r.Body.Kind(), r.Position)
		}
	}
	return b.String()
}

// chainOf is a stream's epoch, which has one chain of watermarks in each sink.
type chainOf struct {
	stream envelope.Stream
	epoch  uint64
}

// chained reports watermarks that do not begin where the one before in their
// chain ended. Those that were sent twice count once.
func chained(t *testing.T, sink string, records []*envelope.Record) {
	t.Helper()
	last := map[chainOf]envelope.Position{}
	for _, r := range records {
		m, ok := r.Body.(*envelope.Watermark)
		if !ok {
			continue
		}
		key := chainOf{r.Stream, m.Through.Epoch}
		end, begun := last[key]
		switch {
		case begun && m.Through.Compare(end) <= 0: // again
		case m.From == nil && begun, m.From != nil && (!begun || *m.From != end):
			t.Errorf("sink %s: %v: a watermark from %v through %v follows one through %v", sink, r.Stream, m.From, m.Through, end)
		default:
			last[key] = m.Through
		}
	}
}

// wholes counts the snapshots of whole streams by cell, each once.
func wholes(c *consumer.Consumer) map[string]int {
	seen, count := map[string]bool{}, map[string]int{}
	for _, r := range c.Records {
		if end, ok := r.Body.(*envelope.SnapshotEnd); ok && end.Scope == envelope.ScopeStream && !seen[r.Stream.Cell+end.SnapshotID] {
			seen[r.Stream.Cell+end.SnapshotID] = true
			count[r.Stream.Cell]++
		}
	}
	return count
}
