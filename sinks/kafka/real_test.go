//go:build cgo

package kafka

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// realBrokers are brokers that are no fake of ours, by the variable BROKERS.
func realBrokers(t testing.TB) []string {
	t.Helper()
	list := os.Getenv("BROKERS")
	if list == "" {
		t.Skip("BROKERS is not set, so there is no Kafka to test against: make test-kafka starts one")
	}
	return strings.Split(list, ",")
}

// makeTopic makes a topic of its own for a test. Messages carry commit times,
// which the tests' own are long past: by default a broker would delete them when
// it comes to look.
func makeTopic(t testing.TB, brokers []string, name string, partitions int32, configs map[string]string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	all := map[string]string{"retention.ms": "-1"}
	maps.Copy(all, configs)
	for key, value := range all {
		topic.Configs = append(topic.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: key, Value: &value})
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		t.Fatalf("make topic %s: %v", name, err)
	}
}

// newRealWorld is a world whose topic is made on real brokers.
func newRealWorld(t *testing.T, brokers []string, partitions int32, configs map[string]string) *world {
	t.Helper()
	w := newWorld(t)
	w.topic = fmt.Sprintf("celld-changes-%x", rand.Uint64())
	if partitions > 0 {
		makeTopic(t, brokers, w.topic, partitions, configs)
	}
	return w
}

func TestApacheKafka(t *testing.T) {
	brokers := realBrokers(t)
	limit := map[string]string{"max.message.bytes": "1114112"}
	t.Run("everything in order", func(t *testing.T) {
		for _, compression := range []string{"lz4", "zstd", "snappy", "gzip", "none"} {
			w := newRealWorld(t, brokers, 6, limit)
			w.begin(Config{Brokers: brokers, Properties: properties(t, "compression.type="+compression)})
			w.Fill(0, 2000, 5)
			w.Flush()
			list := consumeTopic(t, w.topic, brokers)
			w.check(list)
			if resent := w.inOrder(list); resent != 0 {
				t.Errorf("%s: %d messages were sent twice", compression, resent)
			}
		}
	})
	t.Run("restarts", func(t *testing.T) {
		w := newRealWorld(t, brokers, 3, limit)
		for round := range 5 {
			w.begin(Config{Brokers: brokers})
			w.Fill(round*400, (round+1)*400, 5)
			if round < 4 {
				time.Sleep(time.Duration(round*30) * time.Millisecond)
				w.End()
			}
		}
		w.Flush()
		list := consumeTopic(t, w.topic, brokers)
		w.check(list)
		w.inOrder(list)
	})
	t.Run("a topic made late", func(t *testing.T) {
		w := newRealWorld(t, brokers, 0, nil)
		w.begin(Config{Brokers: brokers})
		w.Fill(0, 50, 5)
		w.Logs.Wait(t, "does not exist")
		makeTopic(t, brokers, w.topic, 2, limit)
		w.Flush()
		w.check(consumeTopic(t, w.topic, brokers))
	})
	t.Run("records at the limit", func(t *testing.T) { realSizes(t, brokers) })
	t.Run("a record too large", func(t *testing.T) {
		w := newRealWorld(t, brokers, 1, map[string]string{"max.message.bytes": "20000"})
		w.begin(Config{Brokers: brokers})
		w.Fill(0, 40, 5)
		w.Unit(2, 999, noise(60000))
		w.Fill(40, 80, 5)
		w.Flush()
		refusals, err := w.Engine.Refusals()
		if err != nil || len(refusals) != 1 || !strings.Contains(refusals[0].Reason, "max.message.bytes (20000)") {
			t.Fatalf("refusals %+v, %v", refusals, err)
		}
		w.Tell(refusals[0])
		w.Flush()
		checkOneGap(t, w, consumeTopic(t, w.topic, brokers), refusals[0])
	})
	t.Run("timestamps refused", func(t *testing.T) {
		w := newRealWorld(t, brokers, 1, map[string]string{"message.timestamp.before.max.ms": "1000"})
		w.begin(Config{Brokers: brokers})
		w.Fill(0, 5, 5)
		w.Flush()
		refusals, err := w.Engine.Refusals()
		if err != nil || len(refusals) != 5 || !strings.Contains(refusals[0].Reason, "message.timestamp.before.max.ms") {
			t.Errorf("%d refusals %+v, %v", len(refusals), refusals, err)
		}
	})
}

// realSizes sends records of exactly the largest size, compressible and not:
// a topic with the documented limit takes them.
func realSizes(t *testing.T, brokers []string) {
	w := newRealWorld(t, brokers, 2, map[string]string{"max.message.bytes": "1114112"})
	w.begin(Config{Brokers: brokers, MaxRecordBytes: 1 << 20})
	const overhead = 700 // of the envelope and the record around the text
	for i := range 6 {
		size := 1<<20 - overhead + i
		if i%2 == 0 {
			w.Unit(i, 1, strings.Repeat("x", size))
		} else {
			w.Unit(i, 1, noise(size))
		}
	}
	w.Sync()
	w.Flush()
	if st := w.Status(); st.Dropped != 0 {
		t.Errorf("%d records are dropped", st.Dropped)
	}
	w.check(consumeTopic(t, w.topic, brokers, kgo.FetchMaxPartitionBytes(4<<20)))
}
