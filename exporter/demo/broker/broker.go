// Package broker is a Kafka broker inside the demo's process and a consumer
// of its topic. The broker speaks the protocol over TCP, so the sink works as
// it does everywhere; it keeps its log in memory.
package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"celldexport/envelope"
)

// Broker is a running broker with one topic.
type Broker struct {
	cluster *kfake.Cluster
	topic   string
}

// Start starts a broker on a free port of the loopback address and makes the
// topic there, as an operator would before the export begins.
func Start(topic string, partitions int32) (*Broker, error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic))
	if err != nil {
		return nil, fmt.Errorf("start the demo's broker: %w", err)
	}
	return Of(cluster, topic), nil
}

// Of is a cluster that runs already, of which one topic is read.
func Of(cluster *kfake.Cluster, topic string) *Broker { return &Broker{cluster, topic} }

// Addrs are the bootstrap servers.
func (b *Broker) Addrs() []string { return b.cluster.ListenAddrs() }

// Close ends the broker; what it holds is gone.
func (b *Broker) Close() { b.cluster.Close() }

// Read reads the topic from its start to its present end: its partitions in
// any order, each in its own.
func (b *Broker) Read(ctx context.Context) ([]*envelope.Record, error) {
	left := map[int32]int64{}
	for _, p := range b.cluster.PartitionInfos(b.topic) {
		if p.HighWatermark > 0 {
			left[p.Partition] = p.HighWatermark
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs()...), kgo.ConsumeTopics(b.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, fmt.Errorf("consume topic %s: %w", b.topic, err)
	}
	defer client.Close()
	var list []*envelope.Record
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("consume topic %s: %w", b.topic, err)
		}
		fetches.EachRecord(func(m *kgo.Record) {
			rec, decodeErr := envelope.Decode(m.Value)
			if decodeErr != nil && err == nil {
				err = fmt.Errorf("message %d/%d of topic %s: %w", m.Partition, m.Offset, b.topic, decodeErr)
			}
			list = append(list, rec)
			if m.Offset+1 >= left[m.Partition] {
				delete(left, m.Partition)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
