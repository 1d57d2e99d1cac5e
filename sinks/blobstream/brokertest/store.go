package brokertest

import (
	"fmt"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	blobstreampb "celldexport/sinks/blobstream/proto"
)

// windowSeconds is the length of a metadata window.
const windowSeconds = 300

// store is what all brokers of a deployment share: objects and their rows.
type store struct {
	mu sync.Mutex
	// next is the next offset of each partition.
	next  map[lot]uint64
	blobs map[string][]byte
	rows  []row
	// open collects batches until the flush.
	open  *flush
	flake uint64
}

// row is a row of the metadata table: one topic's part of an object.
type row struct {
	topic  string
	window int64
	seg    *blobstreampb.BrokerSegmentMetadata
}

// flush is one object in the making.
type flush struct {
	batches []accepted
	done    chan struct{}
	err     error
}

type accepted struct {
	batch *blobstreampb.ProduceBatchRequest
	start uint64
}

func newStore() *store {
	return &store{next: map[lot]uint64{}, blobs: map[string][]byte{}}
}

// append gives a batch its offsets, in the order of acceptance, and waits
// until it is stored.
func (s *store) append(b *blobstreampb.ProduceBatchRequest, delay time.Duration) error {
	l := lot{b.Topic, b.VirtualPartitionId}
	s.mu.Lock()
	if s.open == nil {
		s.open = &flush{done: make(chan struct{})}
		time.AfterFunc(delay, s.flush)
	}
	f := s.open
	f.batches = append(f.batches, accepted{b, s.next[l]})
	s.next[l] += uint64(len(b.Records))
	s.mu.Unlock()
	<-f.done
	return f.err
}

// flush stores what was accepted.
func (s *store) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.open
	s.open = nil
	byTopic := map[string][]accepted{}
	for _, a := range f.batches {
		byTopic[a.batch.Topic] = append(byTopic[a.batch.Topic], a)
	}
	for topic, batches := range byTopic {
		if err := s.put(topic, batches); err != nil {
			f.err = err
		}
	}
	close(f.done)
}

// put stores one topic's batches as an object and its row.
func (s *store) put(topic string, batches []accepted) error {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("compress a chunk: %w", err)
	}
	defer encoder.Close()
	now := time.Now()
	s.flake++
	id := flakeAt(now) | s.flake&0xff<<16
	window := now.Unix() / windowSeconds * windowSeconds
	meta := &blobstreampb.SegmentMetadataV1{
		BlobKey:     fmt.Sprintf("blobs/%s/%d/%d-%d.zst", topic, window, id, s.flake),
		CreatedTsMs: now.UnixMilli(), MetadataPublishedTsMs: now.UnixMilli(),
		Compression: &blobstreampb.StoredSegmentCompression{Codec: blobstreampb.StoredSegmentCompression_CODEC_ZSTD, Level: 3},
	}
	var blob []byte
	index := map[uint32]*blobstreampb.SegmentPartitionIndex{}
	for _, a := range batches {
		vp := a.batch.VirtualPartitionId
		chunk, err := proto.Marshal(&blobstreampb.StoredRecordBatch{VirtualPartitionId: vp, Records: a.batch.Records})
		if err != nil {
			return fmt.Errorf("encode a chunk: %w", err)
		}
		from := len(blob)
		blob = encoder.EncodeAll(chunk, blob)
		part := index[vp]
		if part == nil {
			part = &blobstreampb.SegmentPartitionIndex{VirtualPartitionId: vp}
			index[vp] = part
			meta.Partitions = append(meta.Partitions, part)
		}
		part.Batches = append(part.Batches, &blobstreampb.SegmentBatchMetadata{
			SeqStart: a.start, SeqEnd: a.start + uint64(len(a.batch.Records)),
			ByteStart: uint64(from), ByteEnd: uint64(len(blob)),
		})
	}
	s.blobs[meta.BlobKey] = blob
	s.rows = append(s.rows, row{topic, window, &blobstreampb.BrokerSegmentMetadata{SnowflakeId: id, Metadata: meta}})
	return nil
}

// flakeAt is the lowest snowflake id of a time: 10 ms units since September
// 2014, above 25 bits.
func flakeAt(t time.Time) uint64 {
	epoch := time.Date(2014, 9, 1, 0, 0, 0, 0, time.UTC)
	return uint64(t.Sub(epoch)/(10*time.Millisecond)) << 25
}

// window lists the rows of a window, with the partitions that were asked for.
func (s *store) window(topic string, start int64, bounds map[uint32]uint64) []*blobstreampb.BrokerSegmentMetadata {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*blobstreampb.BrokerSegmentMetadata
	for _, r := range s.rows {
		if r.topic != topic || r.window != start {
			continue
		}
		meta := proto.CloneOf(r.seg.Metadata)
		meta.Partitions = meta.Partitions[:0]
		for _, p := range r.seg.Metadata.Partitions {
			if least, asked := bounds[p.VirtualPartitionId]; asked && r.seg.SnowflakeId >= least {
				meta.Partitions = append(meta.Partitions, p)
			}
		}
		if len(meta.Partitions) > 0 {
			list = append(list, &blobstreampb.BrokerSegmentMetadata{SnowflakeId: r.seg.SnowflakeId, Metadata: meta})
		}
	}
	return list
}

func (s *store) blob(key string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.blobs[key]
	return b, ok
}

// windows lists the windows that hold something.
func (s *store) windows() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []int64
	seen := map[int64]bool{}
	for _, r := range s.rows {
		if !seen[r.window] {
			seen[r.window] = true
			list = append(list, r.window)
		}
	}
	return list
}
