//go:build cgo

package exporter_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"celldexport/envelope"
	"celldexport/exporter/consumer"
	"celldexport/exporter/demo/broker"
	"celldexport/internal/celldsim"
	"celldexport/internal/config"
)

// topicOf is what a consumer of the topic holds.
func topicOf(t *testing.T, b *broker.Broker) *consumer.Consumer {
	t.Helper()
	records, err := b.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := &consumer.Consumer{Records: records}
	if err := c.Apply(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestKafka exports to Kafka and to the bucket at once, from settings as an
// operator writes them: a consumer of either holds the cells, certified to
// their heads. The exporter restarts between.
func TestKafka(t *testing.T) {
	t.Parallel()
	b, err := broker.Start("celld-changes", 4)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.settings.Export.Sinks = []string{config.SinkKafka, config.SinkBucket}
	a.settings.Kafka.Brokers = b.Addrs()
	var cells []*celldsim.Cell
	for i := range 4 {
		cells = append(cells, a.activate(fmt.Sprintf("cell %d", i)))
	}
	for round := range 3 {
		for i, c := range cells {
			if round == 0 {
				w.write(c, createItems)
			}
			w.write(c, fmt.Sprintf(`INSERT OR REPLACE INTO items VALUES ('k%d', %d)`, round, i))
		}
		if left := a.once(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	w.equal(cells...)
	topic := topicOf(t, b)
	for _, c := range cells {
		diffs, err := topic.Compare(t.Context(), consumer.SourceOf(c))
		w.must(err)
		for _, d := range append(diffs, topic.Certified(consumer.SourceOf(c))...) {
			t.Error(d)
		}
	}
}

// TestKafkaRefusesARecord has a topic that never takes one row: it is told by
// one gap in that sink only, before anything is certified over it, also when
// the process ends at once; the bucket has everything.
func TestKafkaRefusesARecord(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	b := broker.Of(cluster, "celld-changes")
	defer b.Close()
	if err := cluster.CreateTopic("celld-changes", 2, map[string]string{"max.message.bytes": "30000"}); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.settings.Export.Sinks = []string{config.SinkBucket, config.SinkKafka}
	a.settings.Kafka.Brokers = b.Addrs()
	c, other := a.activate("picked"), a.activate("other")
	random := rand.New(rand.NewPCG(3, 4))
	big := make([]byte, 60000)
	for i := range big {
		big[i] = byte(random.Uint32())
	}
	w.write(c, createItems, `INSERT INTO items VALUES ('small', 1)`)
	w.write(other, createItems, `INSERT INTO items VALUES ('small', 1)`)
	w.write(c, fmt.Sprintf(`INSERT INTO items VALUES ('big', x'%x')`, big), `INSERT INTO items VALUES ('after', 2)`)
	refused := c.TXID() - 1
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	w.equal(c, other)

	topic := topicOf(t, b)
	gaps := 0
	for _, r := range topic.Records {
		if g, ok := r.Body.(*envelope.Gap); ok {
			gaps++
			if r.Stream.Cell != c.Scope() || g.To.TXID != refused || !strings.Contains(g.Reason, "max.message.bytes (30000)") {
				t.Errorf("gap of %v: %+v, refused was %d", r.Stream, g, refused)
			}
		}
		if m, ok := r.Body.(*envelope.Watermark); ok && gaps == 0 && r.Stream.Cell == c.Scope() && m.Through.TXID >= refused {
			t.Errorf("certified through %v before the gap", m.Through)
		}
	}
	if gaps != 1 {
		t.Errorf("%d gaps, want one", gaps)
	}
	for _, d := range append(topic.Certified(consumer.SourceOf(c)), topic.Certified(consumer.SourceOf(other))...) {
		t.Error(d)
	}
	if rows, err := topic.State.Gaps(); err != nil || len(rows) != 1 {
		t.Errorf("the consumer knows of %d holes, %v", len(rows), err)
	}
	for _, r := range w.consumer().Records {
		if r.Body.Kind() == envelope.KindGap {
			t.Error("the bucket got the gap")
		}
	}

	// Life goes on behind it.
	w.write(c, `INSERT INTO items VALUES ('later', 3)`)
	a.run()
	a.sync()
	begin := time.Now()
	a.halt()
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("ending took %v", took)
	}
	for _, d := range topicOf(t, b).Certified(consumer.SourceOf(c)) {
		t.Error(d)
	}
}
