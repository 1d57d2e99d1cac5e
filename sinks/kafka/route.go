package kafka

import (
	"fmt"
	"hash/crc32"
	"sync/atomic"
)

// route chooses a message's partition by its key as librdkafka would, with
// its property partitioner: which message went where must be known to count
// what arrived. The number of partitions may change while it is in use.
type route struct {
	hash       func(key []byte) uint32
	partitions atomic.Uint32
}

// newRoute knows librdkafka's partitioners but random, which would not keep a
// stream together; "" is its default. A key is never empty here, so it does
// not matter what they do with messages without one.
func newRoute(partitioner string) (*route, error) {
	switch partitioner {
	case "", "consistent", "consistent_random":
		return &route{hash: crc32.ChecksumIEEE}, nil
	case "murmur2", "murmur2_random":
		return &route{hash: murmur2}, nil
	case "fnv1a", "fnv1a_random":
		return &route{hash: fnv1a}, nil
	}
	return nil, fmt.Errorf("kafka.properties: partitioner %q is not known; consistent_random, consistent, murmur2_random, murmur2, fnv1a_random and fnv1a are", partitioner)
}

// of is the partition of a key.
func (r *route) of(key []byte) int32 {
	return int32(r.hash(key) % r.partitions.Load())
}

// murmur2 is the hash of Java's producer, without its sign.
func murmur2(key []byte) uint32 {
	const m = 0x5bd1e995
	h := 0x9747b28c ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24
		k *= m
		k ^= k >> 24
		h = h*m ^ k*m
	}
	for i := len(key) - 1; i >= 0; i-- {
		h ^= uint32(key[i]) << (8 * i)
	}
	if len(key) > 0 {
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h & 0x7fffffff
}

// fnv1a is the hash of Sarama's producer: as a signed number, without its
// sign.
func fnv1a(key []byte) uint32 {
	h := uint32(0x811c9dc5)
	for _, c := range key {
		h = (h ^ uint32(c)) * 0x01000193
	}
	if int32(h) < 0 {
		h = -h
	}
	return h
}
