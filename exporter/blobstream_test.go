package exporter_test

import (
	"fmt"
	"strings"
	"testing"

	"celldexport/envelope"
	"celldexport/exporter/consumer"
	"celldexport/internal/celldsim"
	"celldexport/internal/config"
	"celldexport/sinks/blobstream/brokertest"
)

// TestBlobStream exports to brokers and to the bucket at once, from settings
// as an operator writes them: a consumer of either holds the cells, key-value
// data decoded. The exporter restarts between.
func TestBlobStream(t *testing.T) {
	t.Parallel()
	fleet := brokertest.New(brokertest.Options{
		Topics: []brokertest.Topic{{Name: "celld-changes", Partitions: 8, Writers: 2}}, Writer: 1,
	})
	defer fleet.Close()
	var brokers []string
	for _, id := range []string{"broker-a", "broker-b"} {
		b, err := fleet.Start(id, "")
		if err != nil {
			t.Fatal(err)
		}
		brokers = append(brokers, id+"="+b.Address())
	}
	fleet.SetMembers("broker-a", "broker-b")

	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	a.settings.Export.Sinks = []string{config.SinkBucket, config.SinkBlobStream}
	a.settings.BlobStream = config.BlobStream{Brokers: brokers, Partitions: 8, Zones: []string{"west", "east"}, Zone: "east"}
	var cells []*celldsim.Cell
	for i := range 5 {
		cells = append(cells, a.activate(fmt.Sprintf("cell %d", i)))
	}
	for round := range 3 {
		for i, c := range cells {
			if round == 0 {
				w.write(c, createItems)
			}
			w.write(c, fmt.Sprintf(`INSERT OR REPLACE INTO items VALUES ('k%d', %d)`, round, i))
			value, err := celldsim.V8(map[string]any{"$round": round, "cell": fmt.Sprint(i), "list": []any{nil, 1.5}})
			w.must(err)
			w.must(celldsim.PutKV(c, fmt.Sprintf("key %d", round), value))
			_, err = c.Capture()
			w.must(err)
			w.must(c.Upload(t.Context()))
		}
		if left := a.once(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	w.equal(cells...)

	messages, err := fleet.Read(t.Context(), "celld-changes")
	w.must(err)
	topic := &consumer.Consumer{}
	decoded := 0
	for _, m := range messages {
		if m.Partition < 8 || m.Partition > 15 {
			t.Errorf("a message is in partition %d, the zone's are 8 to 15", m.Partition)
		}
		rec, err := envelope.Decode(m.Payload)
		w.must(err)
		topic.Records = append(topic.Records, rec)
		decoded += strings.Count(string(m.Payload), `{\"$object\":{\"$round\":`)
	}
	w.must(topic.Apply())
	for _, c := range cells {
		diffs, err := topic.Compare(t.Context(), consumer.SourceOf(c))
		w.must(err)
		for _, d := range append(diffs, topic.Certified(consumer.SourceOf(c))...) {
			t.Error(d)
		}
	}
	if decoded < 15 {
		t.Errorf("%d key-value values are decoded, 15 were written", decoded)
	}
}
