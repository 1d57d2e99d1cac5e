package rowset

import (
	"bytes"
	"encoding/binary"
	"math"

	"celldexport/diffpage"
)

// Sort keys: a key's values one after another, written so that comparing the
// bytes of two keys of one table compares the values by storage class, then by
// value or bytes. Each value starts with its class and ends at a place that
// its own bytes tell, so two keys are equal only when all their values are.

// appendIntKey appends an integer: the sign bit flipped, big-endian.
func appendIntKey(dst []byte, v int64) []byte {
	dst = append(dst, byte(diffpage.Integer))
	return binary.BigEndian.AppendUint64(dst, uint64(v)^1<<63)
}

// appendRealKey appends a real: negative ones with all bits flipped, the
// others with the sign bit flipped. -0.0 sorts right before 0.0.
func appendRealKey(dst []byte, v float64) []byte {
	bits := math.Float64bits(v)
	if bits>>63 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	dst = append(dst, byte(diffpage.Real))
	return binary.BigEndian.AppendUint64(dst, bits)
}

// appendBytesKey appends text (as UTF-8) or a blob: a zero byte becomes 00 FF
// and 00 00 ends the value, so a prefix sorts first and nothing that follows
// in the key can be taken for part of it.
func appendBytesKey(dst []byte, class diffpage.Class, v []byte) []byte {
	dst = append(dst, byte(class))
	for {
		i := bytes.IndexByte(v, 0)
		if i < 0 {
			dst = append(dst, v...)
			return append(dst, 0, 0)
		}
		dst = append(dst, v[:i]...)
		dst = append(dst, 0, 0xff)
		v = v[i+1:]
	}
}
