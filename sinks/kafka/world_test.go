//go:build cgo

package kafka

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"celldexport/envelope"
	"celldexport/sinks/sinktest"
)

func TestMain(m *testing.M) {
	if topic := os.Getenv(childBroker); topic != "" {
		if err := serveAsBroker(topic); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const testTopic = "celld-changes"

// world is the harness with the sink made for one topic.
type world struct {
	*sinktest.Harness
	t     testing.TB
	topic string
	sink  *Sink
	// opened, when set, is called with every new session.
	opened func(*session)
}

func newWorld(t testing.TB) *world {
	return &world{Harness: sinktest.New(t), t: t, topic: testTopic}
}

// begin starts spool, engine and sink, again after End.
func (w *world) begin(cfg Config) {
	w.t.Helper()
	cfg.Topic, cfg.Logger = w.topic, w.Logger()
	var err error
	if w.sink, err = New(cfg); err != nil {
		w.t.Fatal(err)
	}
	if w.opened != nil {
		w.sink.opened = w.opened
	}
	w.Begin(w.sink)
}

// message is a message as a consumer gets it.
type message struct {
	*kgo.Record
	rec *envelope.Record
}

// consume reads the test topic.
func consume(t testing.TB, brokers []string, opts ...kgo.Opt) []message {
	t.Helper()
	return consumeTopic(t, testTopic, brokers, opts...)
}

// consumeTopic reads a topic from its start to its present end.
func consumeTopic(t testing.TB, topic string, brokers []string, opts ...kgo.Opt) []message {
	t.Helper()
	opts = append(opts, kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
	client, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends := topicEnds(t, client, topic)
	var list []message
	for left := ends.count(); left > 0; {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		fetches := client.PollFetches(ctx)
		cancel()
		if err := fetches.Err(); err != nil {
			t.Fatalf("consume: %v", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			rec, err := envelope.Decode(r.Value)
			if err != nil {
				t.Fatalf("message %d/%d is no record: %v", r.Partition, r.Offset, err)
			}
			list = append(list, message{r, rec})
			left -= ends.reached(r)
		})
	}
	return list
}

// check holds what a consumer of the topic has against the source: the same
// rows, certified to the last unit, every message under its key with its time
// and headers, no gap.
func (w *world) check(list []message) {
	w.t.Helper()
	if answered := w.sink.Stats().Messages; int64(len(list)) < answered {
		w.t.Errorf("the brokers acknowledged %d messages, %d are read", answered, len(list))
	}
	for _, m := range list {
		checkMessage(w.t, m)
	}
	w.Certified(values(list))
}

// values are the messages' records as JSON.
func values(list []message) [][]byte {
	lines := make([][]byte, len(list))
	for i, m := range list {
		lines[i] = m.Value
	}
	return lines
}

func checkMessage(t testing.TB, m message) {
	t.Helper()
	env := m.rec.Envelope
	if !bytes.Equal(m.Key, env.Stream.Key()) {
		t.Errorf("message %d/%d of %v has key %q", m.Partition, m.Offset, env.Stream, m.Key)
	}
	if got := m.Timestamp.UnixMilli(); got != env.CommittedAt {
		t.Errorf("message %d/%d has timestamp %d, its commit was at %d", m.Partition, m.Offset, got, env.CommittedAt)
	}
	headers := map[string]string{}
	for _, h := range m.Headers {
		headers[h.Key] = string(h.Value)
	}
	if headers["celld-kind"] != string(m.rec.Body.Kind()) || headers["celld-schema-version"] != SchemaVersion ||
		headers["content-type"] != "application/json" || len(headers) != 3 {
		t.Errorf("message %d/%d of kind %s has headers %v", m.Partition, m.Offset, m.rec.Body.Kind(), headers)
	}
}

// inOrder holds that every stream is in one partition, in order, and all of it
// there, to the byte. It returns how many messages are copies of others.
func (w *world) inOrder(list []message) (copies int) {
	w.t.Helper()
	parts := map[envelope.Stream]int32{}
	for _, m := range list {
		id := m.rec.Stream
		if p, ok := parts[id]; ok && p != m.Partition {
			w.t.Errorf("stream %v is in partitions %d and %d", id, p, m.Partition)
		}
		parts[id] = m.Partition
	}
	w.Ordered(values(list))
	return w.Exact(values(list))
}

func newCluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(4, testTopic)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
