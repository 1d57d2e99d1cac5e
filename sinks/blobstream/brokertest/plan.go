package brokertest

import (
	"encoding/binary"
	"math/bits"
	"sort"
)

// This is a second writing of the protocol's plan, from its rules and not from
// the producer's code, so that a mistake in one of them shows.

// sip13 is SipHash-1-3 of a whole text under a key of zeros.
func sip13(text []byte) uint64 {
	v := [4]uint64{0x736f6d6570736575, 0x646f72616e646f6d, 0x6c7967656e657261, 0x7465646279746573}
	mix := func(times int) {
		for range times {
			v[0], v[2] = v[0]+v[1], v[2]+v[3]
			v[1], v[3] = v[0]^bits.RotateLeft64(v[1], 13), v[2]^bits.RotateLeft64(v[3], 16)
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2], v[0] = v[2]+v[1], v[0]+v[3]
			v[1], v[3] = v[2]^bits.RotateLeft64(v[1], 17), v[0]^bits.RotateLeft64(v[3], 21)
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	last := make([]byte, 8)
	copy(last, text[len(text)/8*8:])
	last[7] = byte(len(text))
	for _, block := range append(blocks(text), last) {
		m := binary.LittleEndian.Uint64(block)
		v[3] ^= m
		mix(1)
		v[0] ^= m
	}
	v[2] ^= 0xff
	mix(3)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// blocks cuts the whole words off a text.
func blocks(text []byte) [][]byte {
	var list [][]byte
	for ; len(text) >= 8; text = text[8:] {
		list = append(list, text[:8])
	}
	return list
}

// owners is the plan over all topics that the brokers serve: the broker of
// every virtual partition of a writer, by topic.
func owners(topics []Topic, writer uint32, ids []string) map[string]map[uint32]string {
	plan := map[string]map[uint32]string{}
	sorted := append([]Topic(nil), topics...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Name < sorted[j].Name })
	load := map[string]int{}
	for _, t := range sorted {
		plan[t.Name] = map[uint32]string{}
		for logical := range t.Partitions {
			vp := writer*t.Partitions + logical
			if best := wanted(t.Name, vp, ids, load); best != "" {
				plan[t.Name][vp] = best
				load[best]++
			}
		}
	}
	return plan
}

// wanted picks the broker of a partition.
func wanted(topic string, vp uint32, ids []string, load map[string]int) string {
	best, bestScore := "", uint64(0)
	for _, id := range ids {
		text := append([]byte(topic), 0xff)
		text = binary.LittleEndian.AppendUint32(text, vp)
		text = append(append(text, id...), 0xff)
		h := sip13(text)
		switch {
		case best == "", load[id] < load[best]:
		case load[id] > load[best], h < bestScore, h == bestScore && id > best:
			continue
		}
		best, bestScore = id, h
	}
	return best
}
