//go:build cgo

package kafka

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"celldexport/envelope"
	"celldexport/sinks/delivery"
	"celldexport/sinks/sinktest"
	"celldexport/sinks/sinktest/loopback"
)

func produceFault(c *kfake.Cluster, err *kerr.Error, count int) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err, Count: count})
}

// Errors that pass are waited for by the client itself: nothing is sent twice.
func TestTooFewReplicasAreWaitedFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fault := produceFault(c, kerr.NotEnoughReplicas, 8)
	w := newWorld(t)
	w.begin(Config{Brokers: c.ListenAddrs()})
	w.Fill(0, 200, 5)
	w.Flush()
	if fault.Hits() == 0 {
		t.Error("the fault was not met")
	}
	list := consume(t, c.ListenAddrs())
	w.check(list)
	if resent := w.inOrder(list); resent != 0 {
		t.Errorf("%d messages were sent twice", resent)
	}
}

// Stored and answered as an error: the client sends again under the same
// sequence number, and the broker does not store twice.
func TestStoredButNotAcknowledged(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fault := produceFault(c, kerr.NotEnoughReplicasAfterAppend, 5)
	w := newWorld(t)
	w.begin(Config{Brokers: c.ListenAddrs()})
	w.Fill(0, 200, 5)
	w.Flush()
	if fault.Hits() == 0 {
		t.Error("the fault was not met")
	}
	list := consume(t, c.ListenAddrs())
	w.check(list)
	if resent := w.inOrder(list); resent != 0 {
		t.Errorf("%d messages are there twice", resent)
	}
}

// An answer that takes longer than a record may: the record counts as
// undelivered and is sent again from the spool, byte by byte the same, though
// the broker has it.
func TestLateAnswersAreSentAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var held atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if held.Load() < 2 {
			held.Add(1)
			c.SleepControl(func() { time.Sleep(1200 * time.Millisecond) })
		}
		return nil, nil, false
	})
	w := newWorld(t)
	w.begin(Config{Brokers: c.ListenAddrs(), Retry: 400 * time.Millisecond})
	w.Fill(0, 100, 5)
	w.Flush()
	if w.sink.Stats().Stalls == 0 {
		t.Error("nothing counted as undelivered")
	}
	list := consume(t, c.ListenAddrs())
	w.check(list)
	w.inOrder(list)
	w.Logs.Wait(t, "no acknowledgement within 400ms")
	w.Logs.Wait(t, "kafka takes records again")
}

// An outage far longer than a record may take ends without a loss, and its
// reason is told.
func TestOutage(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	dir := t.TempDir()
	open := func() *kfake.Cluster {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(dir), kfake.SyncWrites(), kfake.SeedTopics(4, testTopic))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	w := newWorld(t)
	w.begin(Config{Brokers: []string{addr}, Retry: 500 * time.Millisecond})
	w.Fill(0, 50, 5)
	w.Logs.Wait(t, "Connection refused")
	c := open()
	w.Flush()
	c.Close()
	w.Fill(50, 150, 5)
	sinktest.Eventually(t, "trouble", func() bool { _, trouble := w.sink.Report(); return trouble != "" })
	time.Sleep(1500 * time.Millisecond)
	w.Fill(150, 250, 5)
	c = open()
	defer c.Close()
	w.Flush()
	if state, trouble := w.sink.Report(); trouble != "" {
		t.Errorf("after the outage: %s: %s", state, trouble)
	}
	list := consume(t, []string{addr})
	w.check(list)
	w.inOrder(list)
	if st := w.Status(); st.Dropped != 0 || st.Restarts != 0 {
		t.Errorf("after an outage %d records are dropped, and the sink was restarted %d times", st.Dropped, st.Restarts)
	}
}

// freePort is a port that is the test's until its end.
func freePort(t *testing.T) int {
	t.Helper()
	p, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p.Number()
}

// A topic that is missing is the reason that is told. It is not made; when
// somebody makes it, records go out.
func TestMissingTopic(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := newWorld(t)
	w.begin(Config{Brokers: c.ListenAddrs()})
	w.Fill(0, 20, 5)
	w.Logs.Wait(t, `topic \"celld-changes\" does not exist`)
	if c.TopicInfo(testTopic) != nil {
		t.Fatal("the topic was made by asking for it")
	}
	if err := c.CreateTopic(testTopic, 3, nil); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	w.check(consume(t, c.ListenAddrs()))
}

// A producer that failed for good is replaced, and everything it had not
// delivered is sent again.
func TestFatalErrorRebuildsTheProducer(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*kfake.Cluster){
		"lost sequence numbers": func(c *kfake.Cluster) { produceFault(c, kerr.OutOfOrderSequenceNumber, 1) },
		"fenced":                func(c *kfake.Cluster) { produceFault(c, kerr.InvalidProducerEpoch, 1) },
		"unknown producer":      func(c *kfake.Cluster) { produceFault(c, kerr.UnknownProducerID, 1) },
		"not allowed":           func(c *kfake.Cluster) { produceFault(c, kerr.TopicAuthorizationFailed, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			w := newWorld(t)
			w.begin(Config{Brokers: c.ListenAddrs()})
			w.Fill(0, 50, 5)
			w.Flush()
			fail(c)
			w.Fill(50, 150, 5)
			w.Flush()
			list := consume(t, c.ListenAddrs())
			w.check(list)
			w.inOrder(list)
		})
	}
	t.Run("said by the client", func(t *testing.T) {
		c := newCluster(t)
		w := newWorld(t)
		w.begin(Config{Brokers: c.ListenAddrs()})
		w.Fill(0, 50, 5)
		w.Flush()
		opened := make(chan *session, 1)
		w.sink.opened = func(s *session) { opened <- s }
		produceFault(c, kerr.TopicAuthorizationFailed, 1)
		w.Fill(50, 60, 5)
		var s *session
		select {
		case s = <-opened:
		case <-time.After(sinktest.Within):
			t.Fatal("no session was opened")
		}
		s.p.TestFatalError(kafka.ErrOutOfOrderSequenceNumber, "as if the broker had lost its state")
		w.Fill(60, 150, 5)
		w.Flush()
		list := consume(t, c.ListenAddrs())
		w.check(list)
		w.inOrder(list)
	})
}

// A record that the topic will never take is given up after it was refused
// alone; those that shared its batch and those behind it arrive. Nothing is
// certified over the hole before the gap is there.
func TestTooLargeForTheTopic(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.CreateTopic(testTopic, 1, map[string]string{"max.message.bytes": "20000"}); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.begin(Config{Brokers: c.ListenAddrs(), MaxRecordBytes: 1 << 20})
	w.Fill(0, 40, 5)
	w.Unit(2, 999, noise(60000))
	w.Fill(40, 80, 5)
	w.Flush()
	w.Logs.Wait(t, "max.message.bytes is less than a record may take")

	st := w.Status()
	if st.Dropped != 1 || w.sink.Stats().Refused != 1 {
		t.Errorf("%d records are counted as dropped, the sink refused %d, want 1", st.Dropped, w.sink.Stats().Refused)
	}
	held, ok, err := w.Engine.Delivered(sinktest.Stream(2), 3, SinkName)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if held.Certified != nil && held.Certified.TXID >= 9 {
		t.Errorf("stream 2 is certified to %v before the gap is told", held.Certified)
	}
	list, err := w.Engine.Refusals()
	if err != nil || len(list) != 1 {
		t.Fatalf("%d refusals, %v, want one", len(list), err)
	}
	r := list[0]
	if !strings.Contains(r.Reason, "max.message.bytes (20000)") || !strings.Contains(r.Reason, "1114112") || r.Stream != sinktest.Stream(2) {
		t.Errorf("refusal %+v names neither limit nor what is needed", r)
	}
	w.Tell(r)
	w.Flush()
	if again, err := w.Engine.Refusals(); err != nil || len(again) != 0 {
		t.Errorf("after the gap: %v %v", again, err)
	}
	checkOneGap(t, w, consume(t, c.ListenAddrs()), r)
}

// A topic that takes every message but not batches of many gets smaller ones,
// whether its limit may be read or not; nothing is refused.
func TestBatchesTooLargeForTheTopic(t *testing.T) {
	t.Parallel()
	for name, readable := range map[string]bool{"limit known": true, "limit hidden": false} {
		t.Run(name, func(t *testing.T) {
			c, err := kfake.NewCluster(kfake.NumBrokers(1))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.CreateTopic(testTopic, 1, map[string]string{"max.message.bytes": "60000"}); err != nil {
				t.Fatal(err)
			}
			if !readable {
				c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
			}
			w := newWorld(t)
			for i := range 1500 {
				if i == 0 {
					w.begin(Config{Brokers: c.ListenAddrs()})
				}
				w.Unit(i%5, int64(i), noise(1000))
			}
			w.Unit(3, 5000, noise(40000))
			w.Sync()
			w.Flush()
			if st := w.sink.Stats(); st.Refused != 0 || st.Sessions > 8 || readable && st.Sessions != 2 {
				t.Errorf("%d records are refused, in %d sessions", st.Refused, st.Sessions)
			}
			list := consume(t, c.ListenAddrs())
			w.check(list)
			w.inOrder(list)
		})
	}
}

// noise is text that does not compress below the limit.
func noise(bytes int) string {
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, bytes)
	for i := range text {
		text[i] = byte('!' + 2 + random.IntN(90)) // no quote
	}
	return strings.ReplaceAll(string(text), `\\`, "/")
}

// checkOneGap holds that the consumer has everything but the refused record,
// knows so, and has the rest certified.
func checkOneGap(t *testing.T, w *world, list []message, r delivery.Refusal) {
	t.Helper()
	w.inOrder(list)
	gaps, at := 0, map[envelope.Position]bool{}
	for _, m := range list {
		checkMessage(t, m)
		at[m.rec.Position] = at[m.rec.Position] || m.rec.Stream == r.Stream && m.rec.Body.Kind() == envelope.KindRows
		if g, ok := m.rec.Body.(*envelope.Gap); ok {
			gaps++
			if g.From != r.From || g.To != r.To || m.rec.Stream != r.Stream {
				t.Errorf("gap %+v of %v, refused was %+v", g, m.rec.Stream, r)
			}
		}
		mark, ok := m.rec.Body.(*envelope.Watermark)
		if ok && m.rec.Stream == r.Stream && mark.Through.Compare(r.To) >= 0 && gaps == 0 {
			t.Errorf("watermark through %v comes before the gap", mark.Through)
		}
	}
	if gaps != 1 || at[r.To] {
		t.Errorf("%d gaps; the refused unit at %v arrived: %v", gaps, r.To, at[r.To])
	}
	state := sinktest.StateOf(t, values(list))
	w.CertifiedToTheEnd(state)
	rows, err := state.Gaps()
	if err != nil || len(rows) != 1 {
		t.Errorf("the consumer knows of %d gaps, %v", len(rows), err)
	}
}

// A refusal that was acknowledged and not yet told survives a restart, and so
// does a gap that is in the spool.
func TestRefusalsSurviveARestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w := newWorld(t)
	cfg := Config{Brokers: c.ListenAddrs(), MaxRecordBytes: 4096, Properties: properties(t, "message.max.bytes=70000")}
	w.begin(cfg)
	w.Fill(0, 10, 5)
	w.Unit(1, 7, strings.Repeat("x", 80000))
	w.Sync()
	w.Flush()
	w.End()
	w.begin(cfg)
	list, err := w.Engine.Refusals()
	if err != nil || len(list) != 1 {
		t.Fatalf("%d refusals after a restart, %v, want one", len(list), err)
	}
	if r := list[0]; !strings.Contains(r.Reason, "the client's message.max.bytes (70000)") {
		t.Errorf("the reason is %q", r.Reason)
	}
	broken := produceFault(c, kerr.NotEnoughReplicas, -1)
	w.Tell(list[0])
	w.End()
	w.begin(cfg)
	if again, err := w.Engine.Refusals(); err != nil || len(again) != 0 {
		t.Errorf("with the gap in the spool: %v, %v", again, err)
	}
	broken.Remove()
	w.Fill(10, 20, 5)
	w.Flush()
	checkOneGap(t, w, consume(t, c.ListenAddrs()), list[0])
}

// Ending does not wait for brokers that do not answer, however much is under
// way.
func TestEndsWithStalledBrokers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	stalled := make(chan struct{})
	answer := sync.OnceFunc(func() { close(stalled) })
	t.Cleanup(answer) // before the cluster's end, which waits for it
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.SleepControl(func() { <-stalled })
		return nil, nil, false
	})
	w := newWorld(t)
	w.begin(Config{Brokers: c.ListenAddrs()})
	w.Fill(0, 5000, 5)
	sinktest.Eventually(t, "messages under way", func() bool { return w.sink.Stats().Partitions > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := w.Engine.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush: %v", err)
	}
	w.End() // within its time
	answer()
	w.begin(Config{Brokers: c.ListenAddrs()})
	w.Flush()
	list := consume(t, c.ListenAddrs())
	w.check(list)
	w.Exact(values(list))
}

// One partition that does not answer does not stop the others.
func TestOneStuckPartition(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	part := partitionOf(t, c, 0)
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{part}, Topic: testTopic, Err: kerr.NotEnoughReplicas, Count: -1})
	w := newWorld(t)
	w.begin(Config{Brokers: c.ListenAddrs(), Retry: time.Second})
	w.Fill(0, 500, 5)
	sinktest.Eventually(t, "the other streams", func() bool {
		for n := range 5 {
			if partitionOf(t, c, n) != part && count(t, c, n) < 101 {
				return false
			}
		}
		return true
	})
	if got := w.Status(); got.Records > 400 {
		t.Errorf("%d records are acknowledged behind one that is not", got.Records)
	}
	fault.Remove()
	w.Flush()
	list := consume(t, c.ListenAddrs())
	w.check(list)
	w.inOrder(list)
}

// partitionOf is where stream n goes: librdkafka's default partitioner takes
// the CRC32 of the key.
func partitionOf(t *testing.T, c *kfake.Cluster, n int) int32 {
	t.Helper()
	return int32(crc(sinktest.Stream(n).Key()) % uint32(len(c.PartitionInfos(testTopic))))
}

func count(t *testing.T, c *kfake.Cluster, n int) int {
	t.Helper()
	found := 0
	for _, m := range consume(t, c.ListenAddrs()) {
		if m.rec.Stream == sinktest.Stream(n) && m.rec.Body.Kind() != envelope.KindWatermark {
			found++
		}
	}
	return found
}
