//go:build cgo

package exporter_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"celldexport/envelope"
	"celldexport/exporter/consumer"
	"celldexport/exporter/demo/broker"
	"celldexport/internal/celldsim"
	"celldexport/internal/config"
)

// insertBig adds a row of n bytes that do not compress.
func insertBig(key string, n int) string {
	random, b := rand.New(rand.NewPCG(3, 4)), make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return fmt.Sprintf(`INSERT INTO items VALUES ('%s', x'%x')`, key, b)
}

// refusing is a Kafka topic with a limit, beside the bucket.
func refusing(t *testing.T, limit int) (*world, *host, *broker.Broker) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	b := broker.Of(cluster, placeTopic)
	t.Cleanup(b.Close)
	if err := cluster.CreateTopic(placeTopic, 2, map[string]string{"max.message.bytes": fmt.Sprint(limit)}); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.settings.Kafka.Brokers = b.Addrs()
	return w, a, b
}

// A Kafka sink is added and its topic never takes one row of a cell: one above
// a low limit, or one above export.max_record_bytes, which comes alone in an
// oversized fragment and does not fit the limit that the documentation asks
// for. The stream is sent whole once, one gap in that sink tells of the row,
// and life goes on behind it, delivered and certified.
func TestReBaseThatTheTopicRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit, row int
		once       bool
	}{
		"a low limit":          {30_000, 60_000, false},
		"a low limit, once":    {30_000, 60_000, true},
		"the documented limit": {1<<20 + 64<<10, 1_200_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a, b := refusing(t, tt.limit)
			c, other := a.activate("picked"), a.activate("other")
			w.write(c, createItems, `INSERT INTO items VALUES ('a', 1), ('z', 1)`, insertBig("big", tt.row))
			w.write(other, createItems, insertTwo)
			a.run()
			a.sync()
			a.halt()
			a.settings.Export.Sinks = []string{config.SinkBucket, config.SinkKafka}
			for i := range 2 {
				if tt.once {
					if left := a.once(); len(left) > 0 {
						t.Errorf("left: %v", left)
					}
				} else {
					a.run()
					a.sync()
					a.settled()
					w.write(c, fmt.Sprintf(`INSERT INTO items VALUES ('later', %d)`, i), `DELETE FROM items WHERE sku = 'later'`)
					a.sync()
					a.rounds(12) // in none of them is it sent again
					a.settled()
					if st := a.sinkNamed(config.SinkKafka); st.Dropped != 1 {
						t.Errorf("one record is refused: %+v", st)
					}
					a.halt()
				}
				refusedOnce(t, topicOf(t, b), c, other)
				w.write(c, fmt.Sprintf(`INSERT INTO items VALUES ('more%d', 3)`, i))
				w.write(other, `UPDATE items SET qty = qty + 1`)
			}
		})
	}
}

// refusedOnce holds a topic that refused one row of the snapshot of a cell.
func refusedOnce(t *testing.T, topic *consumer.Consumer, c, other *celldsim.Cell) {
	t.Helper()
	var gaps []*envelope.Gap
	for _, r := range topic.Records {
		if g, ok := r.Body.(*envelope.Gap); ok {
			gaps = append(gaps, g)
			if r.Stream.Cell != c.Scope() || r.Position.Compare(g.To) <= 0 {
				t.Errorf("a gap at %v of %v: %+v", r.Position, r.Stream, g)
			}
		}
	}
	if n := wholes(topic); len(gaps) != 1 || n[c.Scope()] != 1 || n[other.Scope()] != 1 {
		t.Errorf("gaps %+v, whole streams %v:%s", gaps, n, spelled(topic, c.Scope()))
	}
	diffs, err := topic.Compare(t.Context(), consumer.SourceOf(other))
	if err != nil {
		t.Fatal(err)
	}
	diffs = append(append(diffs, topic.Certified(consumer.SourceOf(c))...), topic.Certified(consumer.SourceOf(other))...)
	for _, d := range diffs {
		t.Errorf("%s:%s", d, spelled(topic, c.Scope()))
	}
	chained(t, config.SinkKafka, topic.Records)
	if rows, err := topic.State.Gaps(); err != nil || len(rows) != 1 || rows[0].Stream.Cell != c.Scope() || !strings.Contains(rows[0].Reason, "max.message.bytes") {
		t.Errorf("the consumer knows of %+v, %v", rows, err)
	}
}
