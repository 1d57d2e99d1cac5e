package brokertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	blobstreampb "celldexport/sinks/blobstream/proto"
)

// Message is a record as a consumer gets it.
type Message struct {
	Partition uint32
	Offset    uint64
	Payload   []byte
	EventTsMs int64
}

// Read reads a whole topic through the protocol, as a consumer does, from one
// broker: by partition, then offset.
func (f *Fleet) Read(ctx context.Context, topic string) ([]Message, error) {
	f.mu.Lock()
	var address string
	for _, b := range f.brokers {
		address = b.address
	}
	i := slices.IndexFunc(f.opt.Topics, func(t Topic) bool { return t.Name == topic })
	f.mu.Unlock()
	if address == "" || i < 0 {
		return nil, fmt.Errorf("read topic %s: no broker or no such topic", topic)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(68<<20)))
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", topic, err)
	}
	defer conn.Close()
	client := blobstreampb.NewBrokerServiceClient(conn)
	var list []Message
	all := &blobstreampb.FullRecoveryMetadataCoverage{}
	for vp := range f.opt.Topics[i].Partitions * f.opt.Topics[i].Writers {
		all.VirtualPartitionIds = append(all.VirtualPartitionIds, vp)
	}
	for _, window := range f.store.windows() {
		answer, err := client.ReadMetadataWindow(ctx, &blobstreampb.ReadMetadataWindowRequest{
			Topic: topic, WindowStartUnixSeconds: window,
			Consistency: blobstreampb.MetadataReadConsistency_METADATA_READ_CONSISTENCY_STRONG,
			Coverage:    &blobstreampb.ReadMetadataWindowRequest_FullRecovery{FullRecovery: all},
		})
		if err != nil {
			return nil, fmt.Errorf("read window %d: %w", window, err)
		}
		if answer.GetSuccess() == nil {
			return nil, fmt.Errorf("read window %d: %s", window, answer.GetFailure())
		}
		for _, seg := range answer.GetSuccess().Segments {
			messages, err := readSegment(ctx, client, seg.Metadata)
			if err != nil {
				return nil, err
			}
			list = append(list, messages...)
		}
	}
	slices.SortFunc(list, func(a, b Message) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return list, nil
}

// readSegment reads the chunks of one object.
func readSegment(ctx context.Context, client blobstreampb.BrokerServiceClient, meta *blobstreampb.SegmentMetadataV1) ([]Message, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", meta.BlobKey, err)
	}
	defer decoder.Close()
	var list []Message
	for _, part := range meta.Partitions {
		for _, b := range part.Batches {
			answer, err := client.ReadBlobRanges(ctx, &blobstreampb.ReadBlobRangesRequest{
				BlobKey: meta.BlobKey, Ranges: []*blobstreampb.BlobRangeRequest{{Start: b.ByteStart, End: b.ByteEnd}},
			})
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", meta.BlobKey, err)
			}
			if answer.GetSuccess() == nil {
				return nil, fmt.Errorf("read %s: %s", meta.BlobKey, answer.GetFailure())
			}
			raw, err := decoder.DecodeAll(answer.GetSuccess().Ranges[0].Payload, nil)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", meta.BlobKey, err)
			}
			var chunk blobstreampb.StoredRecordBatch
			if err := proto.Unmarshal(raw, &chunk); err != nil {
				return nil, fmt.Errorf("read %s: %w", meta.BlobKey, err)
			}
			if chunk.VirtualPartitionId != part.VirtualPartitionId {
				return nil, fmt.Errorf("read %s: a chunk of partition %d where %d was", meta.BlobKey, chunk.VirtualPartitionId, part.VirtualPartitionId)
			}
			for i, r := range chunk.Records {
				list = append(list, Message{part.VirtualPartitionId, b.SeqStart + uint64(i), r.Payload, r.EventTsMs})
			}
		}
	}
	return list, nil
}
