//go:build cgo

package kafka

import (
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// partEnds are the ends of the partitions that hold anything.
type partEnds map[int32]int64

func (p partEnds) count() int { return len(p) }

// reached is 1 when a record is the last one of its partition.
func (p partEnds) reached(r *kgo.Record) int {
	if end, ok := p[r.Partition]; ok && r.Offset+1 >= end {
		delete(p, r.Partition)
		return 1
	}
	return 0
}

// topicEnds asks each partition's leader for its end, and holds that nothing
// before it was deleted.
func topicEnds(t testing.TB, client *kgo.Client, topic string) partEnds {
	t.Helper()
	const first, last = -2, -1 // as the protocol spells them
	for part, at := range topicOffsets(t, client, topic, first) {
		t.Errorf("partition %d begins at %d: the broker deleted what was before", part, at)
	}
	return topicOffsets(t, client, topic, last)
}

// topicOffsets asks each partition's leader for one of its offsets; those that
// are 0 are left out.
func topicOffsets(t testing.TB, client *kgo.Client, topic string, which int64) partEnds {
	t.Helper()
	md := kmsg.NewPtrMetadataRequest()
	md.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	topics, err := md.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for _, part := range topics.Topics[0].Partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = part.Partition, which
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	ends := partEnds{}
	for _, shard := range client.RequestSharded(t.Context(), req) {
		if shard.Err != nil {
			t.Fatal(shard.Err)
		}
		for _, part := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
			if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
				t.Fatalf("the offset of partition %d: %v", part.Partition, err)
			}
			if part.Offset > 0 {
				ends[part.Partition] = part.Offset
			}
		}
	}
	return ends
}

func crc(key []byte) uint32 { return crc32.ChecksumIEEE(key) }

// properties writes a file of properties.
func properties(t testing.TB, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kafka.properties")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
