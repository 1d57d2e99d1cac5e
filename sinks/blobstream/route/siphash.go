package route

import (
	"encoding/binary"
	"math/bits"
)

// sip hashes with SipHash-1-3 under a key of zeros: one round for every eight
// bytes, three at the end (J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast
// short-input PRF"). It is what Rust's standard hasher is made of, and so what
// brokers compute. Parts are written one after the other.
type sip struct {
	v0, v1, v2, v3 uint64
	// tail holds the bytes that do not fill a word yet, size all bytes.
	tail, size uint64
}

func newSip() sip {
	return sip{v0: 0x736f6d6570736575, v1: 0x646f72616e646f6d, v2: 0x6c7967656e657261, v3: 0x7465646279746573}
}

func (s *sip) round() {
	s.v0 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 13) ^ s.v0
	s.v0 = bits.RotateLeft64(s.v0, 32)
	s.v2 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 16) ^ s.v2
	s.v0 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 21) ^ s.v0
	s.v2 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 17) ^ s.v2
	s.v2 = bits.RotateLeft64(s.v2, 32)
}

func (s *sip) word(m uint64) {
	s.v3 ^= m
	s.round()
	s.v0 ^= m
}

func (s *sip) byte(b byte) {
	s.tail |= uint64(b) << (8 * (s.size & 7))
	s.size++
	if s.size&7 == 0 {
		s.word(s.tail)
		s.tail = 0
	}
}

func (s *sip) write(p []byte) {
	for len(p) > 0 && s.size&7 != 0 {
		s.byte(p[0])
		p = p[1:]
	}
	for ; len(p) >= 8; p = p[8:] {
		s.word(binary.LittleEndian.Uint64(p))
		s.size += 8
	}
	for _, b := range p {
		s.byte(b)
	}
}

func (s *sip) text(p string) {
	for i := range len(p) {
		s.byte(p[i])
	}
}

func (s *sip) sum() uint64 {
	s.word(s.tail | s.size<<56)
	s.v2 ^= 0xff
	s.round()
	s.round()
	s.round()
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}

// KeyHash is the hash of a message key: of its length as eight bytes,
// little-endian, then its bytes.
func KeyHash(key []byte) uint64 {
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(key)))
	s := newSip()
	s.write(size[:])
	s.write(key)
	return s.sum()
}

// score is how much a broker wants a partition: the hash of the topic, the
// partition as four bytes, little-endian, and the broker's id. Texts end with
// a byte that UTF-8 does not have.
func score(topic string, partition uint32, node string) uint64 {
	var id [4]byte
	binary.LittleEndian.PutUint32(id[:], partition)
	s := newSip()
	s.text(topic)
	s.byte(0xff)
	s.write(id[:])
	s.text(node)
	s.byte(0xff)
	return s.sum()
}
