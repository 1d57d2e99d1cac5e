//go:build cgo

package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"celldexport/sinks/sinktest"
)

// Of what librdkafka's mock brokers can do, its binding offers slowness and
// being down, not errors: those are the other fake's.

// mockCluster is a cluster of mock brokers with the test topic.
func mockCluster(t *testing.T, n int) (*kafka.MockCluster, []string) {
	t.Helper()
	mock, err := kafka.NewMockCluster(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mock.Close)
	if err := mock.CreateTopic(testTopic, 4, 1); err != nil {
		t.Fatal(err)
	}
	return mock, strings.Split(mock.BootstrapServers(), ",")
}

// readMock reads the test topic with librdkafka's own consumer, since others do
// not understand the mock brokers.
func readMock(t *testing.T, addresses []string) (list [][]byte) {
	t.Helper()
	c, err := kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers": strings.Join(addresses, ","), "group.id": "test", "enable.partition.eof": true, "enable.auto.commit": false,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	topic := testTopic
	var parts []kafka.TopicPartition
	for part := range int32(4) {
		parts = append(parts, kafka.TopicPartition{Topic: &topic, Partition: part, Offset: kafka.OffsetBeginning})
	}
	if err := c.Assign(parts); err != nil {
		t.Fatal(err)
	}
	ended := map[int32]bool{}
	for end := time.Now().Add(30 * time.Second); len(ended) < len(parts); {
		switch e := c.Poll(100).(type) {
		case *kafka.Message:
			if e.TopicPartition.Error != nil {
				t.Fatal(e.TopicPartition.Error)
			}
			list = append(list, e.Value)
		case kafka.PartitionEOF:
			ended[e.Partition] = true
		}
		if time.Now().After(end) {
			t.Fatalf("of %d partitions %d are read", len(parts), len(ended))
		}
	}
	return list
}

// One broker of several is down for longer than a record may take: the
// partitions of the others go on, and nothing is lost when it is back.
func TestOneMockBrokerDown(t *testing.T) {
	t.Parallel()
	mock, addresses := mockCluster(t, 3)
	w := newWorld(t)
	w.begin(Config{Brokers: addresses, Retry: time.Second})
	w.Fill(0, 200, 5)
	w.Flush()
	for id := 1; id <= 3; id++ {
		if err := mock.SetBrokerDown(id); err != nil {
			t.Fatal(err)
		}
		from, answered := id*200, w.sink.Stats().Messages
		w.Fill(from, from+200, 5)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		err := w.Engine.Flush(ctx)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if err := mock.SetBrokerUp(id); err != nil {
			t.Fatal(err)
		}
		w.Flush()
		t.Logf("broker %d down: %d messages acknowledged since", id, w.sink.Stats().Messages-answered)
	}
	if st := w.Status(); st.Dropped != 0 || st.BacklogEntries != 0 {
		t.Errorf("%d are dropped, %d entries wait", st.Dropped, st.BacklogEntries)
	}
	list := readMock(t, addresses)
	w.Certified(list)
	w.Exact(list)
}

// Mock brokers take longer to answer than a record may take: it counts as
// undelivered and is sent again, and all of it arrives once they are faster.
func TestMockBrokersSlowerThanRetry(t *testing.T) {
	t.Parallel()
	mock, addresses := mockCluster(t, 1)
	w := newWorld(t)
	w.begin(Config{Brokers: addresses, Retry: 300 * time.Millisecond})
	w.Fill(0, 100, 5)
	w.Flush()
	if err := mock.SetRoundtripDuration(1, 900*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	w.Fill(100, 200, 5)
	sinktest.Eventually(t, "a session without an answer", func() bool { return w.sink.Stats().Stalls > 0 })
	if err := mock.SetRoundtripDuration(1, 0); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	if st := w.sink.Stats(); st.Refused != 0 {
		t.Errorf("%d records are refused", st.Refused)
	}
	list := readMock(t, addresses)
	w.Certified(list)
	w.Exact(list)
}

// Librdkafka's own mock brokers answer late: records come faster than they
// are acknowledged, every report is taken, and the end comes in time also
// when a broker is gone.
func TestSlowBrokers(t *testing.T) {
	t.Parallel()
	mock, addresses := mockCluster(t, 1)
	if err := mock.SetRoundtripDuration(1, 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.begin(Config{Brokers: addresses, Retry: 5 * time.Second})
	const units = 4000
	for i := range 10 {
		w.Fill(i*units/10, (i+1)*units/10, 5)
	}
	w.Flush()
	if st := w.Status(); st.Dropped != 0 || st.BacklogEntries != 0 || st.Records < units {
		t.Errorf("%d records are delivered, %d dropped, %d entries wait", st.Records, st.Dropped, st.BacklogEntries)
	}
	if st := w.sink.Stats(); st.Sessions != 1 || st.Stalls != 0 {
		t.Errorf("%d sessions, %d of them stalled", st.Sessions, st.Stalls)
	}

	if err := mock.SetBrokerDown(1); err != nil {
		t.Fatal(err)
	}
	w.Fill(units, units+500, 5)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := w.Engine.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush with the broker down: %v", err)
	}
	if err := mock.SetBrokerUp(1); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	if st := w.Status(); st.Dropped != 0 || st.BacklogEntries != 0 {
		t.Errorf("after the outage %d are dropped, %d entries wait", st.Dropped, st.BacklogEntries)
	}
}
