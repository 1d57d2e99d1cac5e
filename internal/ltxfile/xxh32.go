package ltxfile

import (
	"encoding/binary"
	"math/bits"
)

// LZ4 frames carry xxHash-32 checksums (xxHash specification 0.1.1, seed 0).
const (
	xxPrime1 uint32 = 2654435761
	xxPrime2 uint32 = 2246822519
	xxPrime3 uint32 = 3266489917
	xxPrime4 uint32 = 668265263
	xxPrime5 uint32 = 374761393
)

func xxh32(b []byte) uint32 {
	le := binary.LittleEndian
	h := xxPrime5
	size := uint32(len(b))
	if len(b) >= 16 {
		one, two := xxPrime1, xxPrime2 // variables, since the sums wrap around
		v1, v2, v3, v4 := one+two, two, uint32(0), -one
		for len(b) >= 16 {
			v1 = xxRound(v1, le.Uint32(b))
			v2 = xxRound(v2, le.Uint32(b[4:]))
			v3 = xxRound(v3, le.Uint32(b[8:]))
			v4 = xxRound(v4, le.Uint32(b[12:]))
			b = b[16:]
		}
		h = bits.RotateLeft32(v1, 1) + bits.RotateLeft32(v2, 7) + bits.RotateLeft32(v3, 12) + bits.RotateLeft32(v4, 18)
	}
	h += size
	for len(b) >= 4 {
		h = bits.RotateLeft32(h+le.Uint32(b)*xxPrime3, 17) * xxPrime4
		b = b[4:]
	}
	for _, v := range b {
		h = bits.RotateLeft32(h+uint32(v)*xxPrime5, 11) * xxPrime1
	}
	h = (h ^ h>>15) * xxPrime2
	h = (h ^ h>>13) * xxPrime3
	return h ^ h>>16
}

func xxRound(v, in uint32) uint32 {
	return bits.RotateLeft32(v+in*xxPrime2, 13) * xxPrime1
}
