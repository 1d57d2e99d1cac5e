//go:build cgo

package kafka

import (
	"encoding/binary"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Batches are compressed with lz4 unless the file says otherwise.
func TestCompressionOnTheWire(t *testing.T) {
	t.Parallel()
	const lz4, zstd, none = 3, 4, 0 // of a batch's attributes
	for lines, want := range map[string]uint16{"": lz4, "compression.type=zstd": zstd, "compression.codec=NONE": none, "topic.compression.type=zstd": zstd} {
		t.Run(lines, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			var mu sync.Mutex
			codecs := map[uint16]int{}
			c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				mu.Lock()
				defer mu.Unlock()
				for _, topic := range r.(*kmsg.ProduceRequest).Topics {
					for _, part := range topic.Partitions {
						codecs[binary.BigEndian.Uint16(part.Records[21:])&7]++
					}
				}
				return nil, nil, false
			})
			w := newWorld(t)
			w.begin(Config{Brokers: c.ListenAddrs(), Properties: properties(t, lines)})
			w.Fill(0, 1000, 5)
			w.Flush()
			mu.Lock()
			defer mu.Unlock()
			// What does not get smaller is sent as it is.
			if got := maps.Clone(codecs); got[want] == 0 || len(got) > 1 && (len(got) > 2 || got[none] == 0) {
				t.Errorf("batches by codec: %v, want %d", got, want)
			}
		})
	}
}

// Brokers that come back are noticed at once: librdkafka's pauses between
// attempts to connect are cut down, unless the file says otherwise.
func TestReconnectsSoon(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		retry       time.Duration
		lines, want string
	}{{0, "", "500"}, {time.Second, "", "125"}, {100 * time.Millisecond, "", "50"}, {0, "reconnect.backoff.max.ms=0x1B58", "7000"}} {
		s, err := New(Config{Brokers: []string{"127.0.0.1:1"}, Topic: testTopic, Retry: test.retry, Properties: properties(t, test.lines)})
		if err != nil {
			t.Fatal(err)
		}
		found, err := s.conf.inForce()
		if err != nil || found["reconnect.backoff.max.ms"] != test.want || found["reconnect.backoff.ms"] != "50" {
			t.Errorf("%v, %q: at most %q, at first %q, %v", test.retry, test.lines, found["reconnect.backoff.max.ms"], found["reconnect.backoff.ms"], err)
		}
	}
}

// A session that follows a failure asks for the topic anew, also when nothing
// is asked for in between.
func TestTopicIsAskedForAfterAFailure(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w := newWorld(t)
	w.begin(Config{Brokers: c.ListenAddrs(), Properties: properties(t, "topic.metadata.refresh.interval.ms=-1")})
	w.Fill(0, 100, 5)
	w.Flush()
	morePartitions(t, c.ListenAddrs(), 9)
	w.Fill(100, 200, 5)
	w.Flush()
	if got := w.sink.Stats().Partitions; got != 4 {
		t.Fatalf("%d partitions are known before the failure: it would not matter", got)
	}
	asked := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Observe: true, Count: -1})
	produceFault(c, kerr.TopicAuthorizationFailed, 1)
	w.Fill(200, 400, 5)
	w.Flush()
	if got := w.sink.Stats().Partitions; got != 9 || asked.Hits() == 0 {
		t.Errorf("after the failure %d partitions are known, metadata was asked for %d times", got, asked.Hits())
	}
	list := consume(t, c.ListenAddrs())
	w.check(list)
	w.Exact(values(list))
}

// morePartitions gives the test topic n partitions.
func morePartitions(t *testing.T, brokers []string, n int32) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = testTopic, n
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Topics, req.TimeoutMillis = append(req.Topics, topic), 5000
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("more partitions: %v, %+v", err, resp)
	}
}

// Records at the limit and a byte beside it, that compress or not, over topics
// that take less than a record and its headers, and as much as is asked for:
// what does not fit is refused once, names the limit, and holds nothing up.
func TestRecordsAtTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	dense := strings.ReplaceAll(noise(limit+limit/10), `\`, "/") // nothing that JSON makes longer
	for _, test := range []struct {
		topic   int
		lines   string
		refused int
	}{{1000012, "", 3}, {limit, "compression.type=none", 6}, {limit + 64<<10, "", 0}, {limit + 64<<10, "message.max.bytes=1114112", 0}} {
		t.Run(fmt.Sprintf("%d %s", test.topic, test.lines), func(t *testing.T) {
			t.Parallel()
			c, err := kfake.NewCluster(kfake.NumBrokers(1))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			if err := c.CreateTopic(testTopic, 2, map[string]string{"max.message.bytes": fmt.Sprint(test.topic)}); err != nil {
				t.Fatal(err)
			}
			w := newWorld(t)
			w.begin(Config{Brokers: c.ListenAddrs(), MaxRecordBytes: limit, Properties: properties(t, test.lines)})
			w.Fill(0, 6, 6)
			for i, over := range []int{-1, 0, 1} {
				w.Unit(i, 7, strings.Repeat("x", limit+over-w.around(i, 7)))
				w.Unit(3+i, 7, dense[:limit+over-w.around(3+i, 7)])
			}
			w.Fill(6, 12, 6)
			w.Flush()
			list, err := w.Engine.Refusals()
			if err != nil || len(list) != test.refused || w.Status().Dropped != int64(test.refused) {
				t.Fatalf("%d refusals, %v, %d records dropped, want %d", len(list), err, w.Status().Dropped, test.refused)
			}
			for _, r := range list {
				if !strings.Contains(r.Reason, fmt.Sprintf("max.message.bytes (%d)", test.topic)) || !strings.Contains(r.Reason, "1114112") {
					t.Errorf("the reason is %q", r.Reason)
				}
				w.Tell(r)
			}
			w.Flush()
			if st := w.sink.Stats(); st.Stalls > 0 || st.Sessions > 20 {
				t.Errorf("%d sessions, %d of them stalled\n%s", st.Sessions, st.Stalls, w.Logs)
			}
			got := consume(t, c.ListenAddrs(), kgo.FetchMaxPartitionBytes(4<<20))
			w.inOrder(got)
			sizes, seen := map[int]int{}, map[string]bool{}
			for _, m := range got {
				if !seen[string(m.Value)] {
					sizes[len(m.Value)-limit]++
				}
				seen[string(m.Value)] = true
			}
			want := 2 - test.refused/3
			if sizes[-1] != want || sizes[0] != want || sizes[1] != want {
				t.Errorf("of the records a byte below the limit, at it and a byte above, there are %d, %d and %d, want %d each", sizes[-1], sizes[0], sizes[1], want)
			}
			if test.refused == 0 {
				w.check(got)
			}
		})
	}
}
