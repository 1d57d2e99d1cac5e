package ltxfile

import (
	"encoding/binary"
	"hash/crc64"
)

// The file checksum is CRC-64/ISO, whose polynomial is so sparse that eight
// bytes are folded in with shifts alone: x^64 is congruent to
//
//	p = x^4 + x^3 + x + 1 = (x + 1)(x^3 + 1)
//
// and, since squaring in GF(2) only spreads the exponents, x^256 to
//
//	p^4 = x^16 + x^12 + x^4 + 1.
//
// Bits are reflected: bit 63 is x^0, so multiplying by x is a shift to the
// right and what falls out on that side stands for x^64 and up. Four words
// are folded side by side, which keeps the processor busy where a table per
// byte would wait for memory; hash/crc64 is a fraction as fast.

// crc is the state of a running checksum, not yet inverted.
type crc uint64

// newCRC is the state before the first byte.
const newCRC = ^crc(0)

// sum is the checksum of all bytes so far, as the format stores it.
func (c crc) sum() uint64 { return ^uint64(c) | ChecksumFlag }

// update folds in more bytes.
func (c crc) update(b []byte) crc {
	s := uint64(c)
	le := binary.LittleEndian
	if len(b) >= 32 {
		s0 := s ^ le.Uint64(b)
		s1 := le.Uint64(b[8:])
		s2 := le.Uint64(b[16:])
		s3 := le.Uint64(b[24:])
		b = b[32:]
		for len(b) >= 32 {
			s0 = timesX256(s0) ^ le.Uint64(b)
			s1 = timesX256(s1) ^ le.Uint64(b[8:])
			s2 = timesX256(s2) ^ le.Uint64(b[16:])
			s3 = timesX256(s3) ^ le.Uint64(b[24:])
			b = b[32:]
		}
		s = timesX64(timesX64(timesX64(timesX64(s0)^s1)^s2) ^ s3)
	}
	for len(b) >= 8 {
		s = timesX64(s ^ le.Uint64(b))
		b = b[8:]
	}
	table := crc64.MakeTable(crc64.ISO)
	for _, v := range b {
		s = table[byte(s)^v] ^ s>>8
	}
	return crc(s)
}

// timesX64 multiplies by x^64.
func timesX64(s uint64) uint64 {
	over := s<<63 ^ s<<61 ^ s<<60
	return s ^ s>>1 ^ s>>3 ^ s>>4 ^ timesP(over)
}

// timesX256 multiplies by x^256.
func timesX256(s uint64) uint64 {
	over := s<<60 ^ s<<52 ^ s<<48
	return s ^ s>>4 ^ s>>12 ^ s>>16 ^ timesP(over)
}

// timesP multiplies a polynomial of degree below 60 by p.
func timesP(s uint64) uint64 {
	s ^= s >> 1
	return s ^ s>>3
}

// PageChecksum is one page's part of the rolling checksum of a database: the
// rolling checksum is the exclusive or of the parts of all pages but the one
// that SQLite locks, with ChecksumFlag set.
func PageChecksum(pgno uint32, data []byte) uint64 {
	var number [4]byte
	binary.BigEndian.PutUint32(number[:], pgno)
	return newCRC.update(number[:]).update(data).sum()
}
