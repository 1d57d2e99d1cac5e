package blobstream

import (
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	blobstreampb "celldexport/sinks/blobstream/proto"
)

// maxRequest is the largest request in bytes: brokers take 16 MiB, some with
// and some without the five bytes that frame a message.
const maxRequest = 16<<20 - 64

// entry is an entry of the queue on its way.
type entry struct {
	seq uint64
	// left counts its records that are not acknowledged; whole is set when
	// all of them were read.
	left  int
	whole bool
}

// item is one record on its way.
type item struct {
	entry   *entry
	payload []byte
	// number is of the record within its entry.
	number int64
	// at is the commit time in milliseconds.
	at int64
}

func (i *item) bytes() int { return len(i.payload) }

// itemOverhead is about what a record takes in memory beside its bytes.
const itemOverhead = 160

// weight is what the record takes of the memory.
func (i *item) weight() int64 { return int64(i.bytes()) + itemOverhead }

// wireSize is the size of the record within a batch.
func (i *item) wireSize() int {
	size := field(len(i.payload))
	if i.at != 0 {
		size += 1 + protowire.SizeVarint(uint64(i.at))
	}
	return field(size)
}

// field is the size of a field of n bytes with a number below 16.
func field(n int) int { return 1 + protowire.SizeBytes(n) }

// batchHead is the size of a batch without records.
func batchHead(topic string, partition uint32) int {
	size := field(len(topic))
	if partition != 0 {
		size += 1 + protowire.SizeVarint(uint64(partition))
	}
	return size
}

// lane is a partition: records in order, at most one batch of them under way.
type lane struct {
	partition uint32
	waiting   []item
	bytes     int
	// flying is set while a batch is under way, queued while the lane is among
	// those that are ready, dropped while it is not among the run's lanes.
	flying, queued, dropped bool
}

// batch is what is sent of a lane at once.
type batch struct {
	lane  *lane
	items []item
	// bytes are those of payloads, wire those of the encoded batch.
	bytes, wire int
	// began is when the batch's retry time began.
	began time.Time
	// refused are those of items that are given up.
	refused []refused
}

// refused is a record that is given up, and why.
type refused struct {
	item   *item
	reason string
}

// backlogFactor is how many times larger than BatchBytes a batch may grow that
// waited for the one before it: a partition has one batch under way, and the
// broker takes about a second for each.
const backlogFactor = 8

// cut takes a batch from the front of the lane.
func (l *lane) cut(cfg *Config) *batch {
	b := &batch{lane: l, wire: batchHead(cfg.Shape.Topic, l.partition)}
	count := 0
	for ; count < len(l.waiting); count++ {
		i := &l.waiting[count]
		size, wire := i.bytes(), i.wireSize()
		if count > 0 && (count >= cfg.BatchRecords || b.bytes+size > backlogFactor*cfg.BatchBytes || field(b.wire+wire) > maxRequest) {
			break
		}
		b.bytes += size
		b.wire += wire
	}
	if count == len(l.waiting) {
		b.items, l.waiting = l.waiting, nil
	} else {
		b.items = slices.Clone(l.waiting[:count])
		clear(l.waiting[:count])
		l.waiting = l.waiting[count:]
	}
	l.bytes -= b.bytes
	l.flying = true
	return b
}

// full says whether the lane has enough for a batch.
func (l *lane) full(cfg *Config) bool {
	return len(l.waiting) >= cfg.BatchRecords || l.bytes >= cfg.BatchBytes
}

// message is the batch as it is sent.
func (b *batch) message(topic string, items []item) *blobstreampb.ProduceBatchRequest {
	m := &blobstreampb.ProduceBatchRequest{Topic: topic, VirtualPartitionId: b.lane.partition}
	m.Records = make([]*blobstreampb.Record, len(items))
	records := make([]blobstreampb.Record, len(items))
	for n := range items {
		records[n].Payload, records[n].EventTsMs = items[n].payload, items[n].at
		m.Records[n] = &records[n]
	}
	return m
}
