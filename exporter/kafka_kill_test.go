//go:build cgo

package exporter_test

import (
	"bytes"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"celldexport/envelope"
	"celldexport/exporter/consumer"
	"celldexport/exporter/demo/broker"
	"celldexport/internal/config"
)

// tardy has a broker's answers come late, so that a process that is killed
// leaves messages that are stored and not answered.
type tardy struct{ net.Listener }

func (l tardy) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return tardyConn{c}, err
}

type tardyConn struct{ net.Conn }

func (c tardyConn) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(rand.Int64N(int64(60 * time.Millisecond))))
	return c.Conn.Write(b)
}

// lifeOf runs the exporter until it has the brokers store something, and a
// moment more.
func (v *victim) lifeOf(cluster *kfake.Cluster) {
	v.t.Helper()
	stored := func() (n int64) {
		for _, p := range cluster.PartitionInfos(placeTopic) {
			n += p.HighWatermark
		}
		return n
	}
	c, before := v.h.startChildWith(childSpec{Bucket: v.bucket, Puts: v.puts, Brokers: v.h.settings.Kafka.Brokers}), stored()
	for end := time.Now().Add(patience); stored() == before && time.Now().Before(end); {
		v.step()
		time.Sleep(5 * time.Millisecond)
	}
	for end := time.Now().Add(time.Duration(v.rand.Int64N(int64(200 * time.Millisecond)))); time.Now().Before(end); {
		v.step()
		time.Sleep(5 * time.Millisecond)
	}
	v.must(c.kill())
}

// copies holds every record of a topic against its other copies and returns
// how many there are.
func (v *victim) copies(records []*envelope.Record) (again int) {
	v.t.Helper()
	type id struct {
		key      envelope.Key
		fragment uint32
	}
	seen := make(map[id][]byte)
	for _, r := range records {
		enc, err := envelope.Encode(r)
		v.must(err)
		at, text := id{r.Key(), r.Fragment}, enc.AppendJSON(nil)
		if before, ok := seen[at]; ok {
			again++
			if !bytes.Equal(before, text) {
				v.t.Errorf("a record was sent again with other bytes:\n%s\n%s", before, text)
			}
		}
		seen[at] = text
	}
	return again
}

// The exporter is killed again and again while it sends to brokers that answer
// late: what the topic's consumer holds is the cells, certified to their
// heads, without a gap. What the brokers had stored unanswered is there twice,
// byte by byte the same.
func TestKillKafka(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, placeTopic), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return tardy{l}, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	b := broker.Of(cluster, placeTopic)
	defer b.Close()
	v := newVictim(t, seed(t, 3))
	v.h.settings.Export.Sinks = []string{config.SinkKafka, config.SinkBucket}
	v.h.settings.Kafka.Brokers = b.Addrs()
	for range 6 {
		v.lifeOf(cluster)
	}
	before := topicOf(t, b)
	v.finish()
	v.whole(v.equal(v.cells...))
	v.identical()

	topic := topicOf(t, b)
	for _, c := range v.cells {
		diffs, err := topic.Compare(t.Context(), consumer.SourceOf(c))
		v.must(err)
		for _, d := range append(diffs, topic.Certified(consumer.SourceOf(c))...) {
			t.Error(d)
		}
	}
	v.whole(topic)
	again := v.copies(topic.Records)
	t.Logf("%d records in the topic, %d of them copies; %d before the last life", len(topic.Records), again, len(before.Records))
	if again == 0 || len(before.Records) == 0 {
		t.Errorf("%d records were there when the last life began, %d are copies: nothing was sent again after a kill", len(before.Records), again)
	}
}
