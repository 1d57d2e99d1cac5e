//go:build cgo

package kafka

import (
	"math/rand/v2"
	"testing"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"celldexport/sinks/sinktest"
)

// Every partitioner sends a key where librdkafka itself would.
func TestRouteIsThatOfLibrdkafka(t *testing.T) {
	t.Parallel()
	const partitions = 7
	mock, err := kafka.NewMockCluster(1)
	if err != nil {
		t.Fatal(err)
	}
	defer mock.Close()
	if err := mock.CreateTopic(testTopic, partitions, 1); err != nil {
		t.Fatal(err)
	}
	keys := [][]byte{sinktest.Stream(1).Key(), {0}, {0xff}, {0x80, 0x81}, []byte("abc"), []byte("grüße")}
	random := rand.New(rand.NewPCG(1, 2))
	for len(keys) < 200 {
		key := make([]byte, 1+random.IntN(70))
		for i := range key {
			key[i] = byte(random.Uint32())
		}
		keys = append(keys, key)
	}
	for _, name := range []string{"", "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"} {
		t.Run(name, func(t *testing.T) {
			r, err := newRoute(name)
			if err != nil {
				t.Fatal(err)
			}
			r.partitions.Store(partitions)
			m := kafka.ConfigMap{"bootstrap.servers": mock.BootstrapServers(), "linger.ms": 0}
			if name != "" {
				m["partitioner"] = name
			}
			p, err := kafka.NewProducer(&m)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			reports := make(chan kafka.Event, len(keys))
			topic := testTopic
			for i, key := range keys {
				message := kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}, Key: key, Opaque: i}
				if err := p.Produce(&message, reports); err != nil {
					t.Fatal(err)
				}
			}
			for range keys {
				report, ok := (<-reports).(*kafka.Message)
				if !ok || report.TopicPartition.Error != nil {
					t.Fatalf("not delivered: %v", report)
				}
				key := keys[report.Opaque.(int)]
				if got, want := r.of(key), report.TopicPartition.Partition; got != want {
					t.Errorf("key %x goes to partition %d, librdkafka sends it to %d", key, got, want)
				}
			}
		})
	}
	for _, name := range []string{"random", "Murmur2", "sticky"} {
		if _, err := newRoute(name); err == nil {
			t.Errorf("partitioner %q is taken", name)
		}
	}
}

// Streams go to partitions that a topic gets later, without a new session and
// without a loss.
func TestMorePartitions(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w := newWorld(t)
	w.begin(Config{Brokers: c.ListenAddrs(), Properties: properties(t, "topic.metadata.refresh.interval.ms=100")})
	w.Fill(0, 300, 5)
	w.Flush()
	sessions := w.sink.Stats().Sessions

	morePartitions(t, c.ListenAddrs(), 9)
	w.Fill(300, 600, 5) // some of it on the way while the partitions come
	sinktest.Eventually(t, "the new partitions", func() bool { return w.sink.Stats().Partitions == 9 })
	w.Fill(600, 900, 5)
	w.Flush()

	list := consume(t, c.ListenAddrs())
	w.check(list)
	w.Exact(values(list))
	if st := w.sink.Stats(); st.Sessions != sessions {
		t.Errorf("%d sessions were opened for the new partitions\n%s", st.Sessions-sessions, w.Logs)
	}
	late := false
	for _, m := range list {
		late = late || m.Partition >= 4
	}
	if !late {
		t.Error("nothing is in the new partitions")
	}
}
