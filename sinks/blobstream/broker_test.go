package blobstream_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/sinks/blobstream"
	"celldexport/sinks/blobstream/brokertest"
	"celldexport/sinks/blobstream/discover"
	blobstreampb "celldexport/sinks/blobstream/proto"
	"celldexport/sinks/blobstream/route"
	"celldexport/sinks/sinktest"
)

// TestEveryFault has brokers fail in all ways, members change, brokers crash
// and come back, and the exporter restart in the middle of it all.
func TestEveryFault(t *testing.T) {
	var mu sync.Mutex
	requests, calm := 0, false
	seen := map[brokertest.Fault]int{}
	w := newWorld(t, brokertest.Options{
		FlushDelay: 2 * time.Millisecond, DrainDelay: 20 * time.Millisecond, LeaseTime: 50 * time.Millisecond,
		Fault: func(string, *blobstreampb.ProduceBatchesRequest) brokertest.Fault {
			mu.Lock()
			defer mu.Unlock()
			if requests++; calm || requests%3 > 0 {
				return brokertest.None
			}
			faults := []brokertest.Fault{brokertest.DropBefore, brokertest.LoseAnswer, brokertest.Hang, brokertest.TooFew, brokertest.Overloaded, brokertest.Partly}
			f := faults[requests/3%len(faults)]
			seen[f]++
			return f
		},
	})
	ids := []string{"broker-a", "broker-b", "broker-c"}
	running := map[string]*brokertest.Broker{}
	addresses := map[string]string{}
	up := func(id string) {
		b, err := w.fleet.Start(id, addresses[id])
		if err != nil {
			t.Fatal(err)
		}
		running[id], addresses[id] = b, b.Address()
	}
	source := newMembers()
	tell := func(members ...string) {
		w.fleet.SetMembers(members...)
		var list []route.Broker
		for _, id := range members {
			list = append(list, route.Broker{ID: id, Address: addresses[id]})
		}
		source.set(list...)
	}
	for _, id := range ids {
		up(id)
	}
	tell(ids...)
	cfg := blobstream.Config{Source: source, RequestTimeout: 60 * time.Millisecond, Retry: 200 * time.Millisecond, BatchRecords: 20}
	w.begin(cfg)
	for round := range 12 {
		w.Fill(round*60, round*60+60, 7)
		time.Sleep(40 * time.Millisecond)
		switch round {
		case 2:
			tell("broker-a", "broker-c")
		case 4:
			running["broker-a"].Crash()
		case 5:
			up("broker-a")
			tell(ids...)
		case 6, 9:
			w.End()
			w.begin(cfg)
		case 8:
			running["broker-b"].Crash()
			tell("broker-a", "broker-c")
		}
	}
	next := 12 * 60
	sinktest.Eventually(t, "fault of each kind", func() bool {
		mu.Lock()
		kinds := len(seen)
		mu.Unlock()
		if kinds < 6 { // a slow machine has asked seldom so far
			w.Fill(next, next+20, 7)
			next += 20
			time.Sleep(40 * time.Millisecond)
		}
		return kinds == 6
	})
	mu.Lock()
	calm = true
	mu.Unlock()
	w.Flush()
	copies := w.check()
	t.Logf("faults %v, %d copies, %+v", seen, copies, w.sink.Stats())
	if copies == 0 || len(seen) != 6 {
		t.Errorf("%d copies after faults %v", copies, seen)
	}
}

// TestOutage: brokers that are not there at first, for longer than the retry
// time. Nothing is given up.
func TestOutage(t *testing.T) {
	w := newWorld(t, brokertest.Options{})
	b := w.start("broker-a", "")
	w.fleet.SetMembers("broker-a")
	w.fleet.Close()
	w.begin(blobstream.Config{Source: discover.Static{b}, Retry: 50 * time.Millisecond})
	w.Fill(0, 300, 7)
	sinktest.Eventually(t, "undelivered records", func() bool { return w.sink.Stats().Undelivered > 300 })
	if state, trouble := w.sink.Report(); !strings.Contains(trouble, "refused") || !strings.Contains(state, "partitions waiting") {
		t.Errorf("report %s: %s", state, trouble)
	}
	w.start("broker-a", b.Address)
	w.Flush()
	w.check()
	if st := w.sink.Stats(); st.Refused != 0 {
		t.Errorf("%+v", st)
	}
}

// TestWrongNodeID: a broker listed under another id than its own rejects all;
// the report says what to look at. Once it is listed right the records go out.
func TestWrongNodeID(t *testing.T) {
	w := newWorld(t, brokertest.Options{})
	right := w.start("broker-a", "")
	other := w.start("broker-b", "")
	w.fleet.SetMembers("broker-a", "broker-b")
	source := newMembers(route.Broker{ID: "broker-b", Address: right.Address}, route.Broker{ID: "broker-a", Address: other.Address})
	w.begin(blobstream.Config{Source: source})
	w.Fill(0, 50, 7)
	sinktest.Eventually(t, "trouble", func() bool { _, trouble := w.sink.Report(); return strings.Contains(trouble, "its node id") })
	source.set(right, other)
	w.Flush()
	if copies := w.check(); copies != 0 {
		t.Errorf("%d records were stored twice", copies)
	}
}

// TestMissingTopic: an unknown topic is no loss. The records go out when the
// brokers know it.
func TestMissingTopic(t *testing.T) {
	var mu sync.Mutex
	fault := brokertest.Unknown
	w := newWorld(t, brokertest.Options{Fault: func(string, *blobstreampb.ProduceBatchesRequest) brokertest.Fault {
		mu.Lock()
		defer mu.Unlock()
		return fault
	}})
	b := w.start("broker-a", "")
	w.fleet.SetMembers("broker-a")
	w.begin(blobstream.Config{Source: discover.Static{b}})
	w.Fill(0, 50, 7)
	sinktest.Eventually(t, "trouble", func() bool {
		_, trouble := w.sink.Report()
		return strings.Contains(trouble, "does not know the topic")
	})
	mu.Lock()
	fault = brokertest.None
	mu.Unlock()
	w.Flush()
	w.check()
}

// TestTooLarge: a record above every request is refused for good: one gap at
// the consumer, the rest certified.
func TestTooLarge(t *testing.T) {
	w := newWorld(t, brokertest.Options{})
	b := w.start("broker-a", "")
	w.fleet.SetMembers("broker-a")
	w.begin(blobstream.Config{Source: discover.Static{b}})
	w.Fill(0, 14, 7)
	id := sinktest.Stream(2)
	w.Next(id, &envelope.Schema{
		TableGeneration: envelope.TableGeneration{Table: "wide", Generation: 1},
		SQL:             "CREATE TABLE wide(a) -- " + strings.Repeat("x", 16<<20),
		Columns:         []envelope.ColumnDef{{Name: "a"}},
	})
	w.Fill(14, 28, 7)
	w.Flush()
	list, err := w.Engine.Refusals()
	if err != nil || len(list) != 1 || list[0].Stream != id || !strings.Contains(list[0].Reason, "max_record_bytes") {
		t.Fatalf("refusals %+v, %v", list, err)
	}
	w.Tell(list[0])
	w.Flush()
	lines := read(t, w.fleet)
	w.Ordered(lines)
	state := sinktest.StateOf(t, lines)
	w.CertifiedToTheEnd(state)
	if gaps, err := state.Gaps(); err != nil || len(gaps) != 1 {
		t.Errorf("gaps %v, %v", gaps, err)
	}
}

// TestTooLargeForBrokers: a record above what brokers take, though no request
// need be, is one gap at the consumer too, after the retry time.
func TestTooLargeForBrokers(t *testing.T) {
	w := newWorld(t, brokertest.Options{MaxRequest: 1 << 20})
	b := w.start("broker-a", "")
	w.fleet.SetMembers("broker-a")
	w.begin(blobstream.Config{Source: discover.Static{b}, Retry: 300 * time.Millisecond})
	w.Fill(0, 14, 7)
	w.Unit(2, 999, strings.Repeat("x", 2<<20))
	w.Fill(14, 28, 7)
	w.Flush()
	list, err := w.Engine.Refusals()
	if err != nil || len(list) != 1 || list[0].Stream != sinktest.Stream(2) || !strings.Contains(list[0].Reason, "broker-a refused it as too large") {
		t.Fatalf("refusals %+v, %v", list, err)
	}
	if st := w.Status(); st.Dropped != 1 || w.sink.Stats().Refused != 1 {
		t.Errorf("%d records are counted as dropped, %+v", st.Dropped, w.sink.Stats())
	}
	w.Tell(list[0])
	w.Flush()
	lines := read(t, w.fleet)
	w.Ordered(lines)
	state := sinktest.StateOf(t, lines)
	w.CertifiedToTheEnd(state)
	if gaps, err := state.Gaps(); err != nil || len(gaps) != 1 {
		t.Errorf("gaps %v, %v", gaps, err)
	}
}

// TestLargeBatches sends more than one request takes.
func TestLargeBatches(t *testing.T) {
	w := newWorld(t, brokertest.Options{MaxRequest: 1 << 20})
	b := w.start("broker-a", "")
	w.fleet.SetMembers("broker-a")
	w.begin(blobstream.Config{Source: discover.Static{b}, BatchBytes: 4 << 20})
	for i := range 40 {
		w.Unit(i%3, int64(i), strings.Repeat(fmt.Sprint(i), 100_000))
	}
	w.Sync()
	w.Flush()
	if copies := w.check(); copies != 0 {
		t.Errorf("%d records were stored twice", copies)
	}
}
