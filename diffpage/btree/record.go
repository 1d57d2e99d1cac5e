package btree

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// Field is one value of a record: its serial type and its bytes (SQLite file
// format 2.1).
type Field struct {
	Serial uint64
	Body   []byte
}

// Fields appends the fields of a record to dst, which saves allocations when
// it has room. Bytes behind the last field are ignored, as SQLite does.
func Fields(record []byte, dst []Field) ([]Field, error) {
	size, n := varint(record)
	if n == 0 || size < uint64(n) || size > uint64(len(record)) {
		return dst, fmt.Errorf("a record of %d bytes has a header of %d: %w", len(record), size, ErrCorrupt)
	}
	header, body := record[n:size], record[size:]
	for len(header) > 0 {
		serial, n := varint(header)
		if n == 0 {
			return dst, fmt.Errorf("the header of a record ends inside a number: %w", ErrCorrupt)
		}
		header = header[n:]
		length := SerialLen(serial)
		if serial == 10 || serial == 11 {
			return dst, fmt.Errorf("a record uses the reserved serial type %d: %w", serial, ErrCorrupt)
		}
		if length > uint64(len(body)) {
			return dst, fmt.Errorf("a value of %d bytes is larger than what is left of its record, %d: %w", length, len(body), ErrCorrupt)
		}
		dst = append(dst, Field{serial, body[:length:length]})
		body = body[length:]
	}
	return dst, nil
}

// Differ reports, without decoding them, that two records of one length and
// one header differ in a value: in bytes that belong to a field in which every
// bit counts. False says nothing: two integers of eight bytes can be the same
// real where that is what the column holds, and two reals can both be NaN,
// which is NULL.
func Differ(a, b []byte) bool {
	if len(a) != len(b) || len(a) == 0 || a[0] == 0 || a[0] >= 0x80 || int(a[0]) > len(a) {
		return false
	}
	at := firstDifference(a, b)
	size := int(a[0])
	if at < size || at == len(a) {
		return false
	}
	end := uint64(size)
	for header := a[1:size]; len(header) > 0; {
		serial, n := varint(header)
		if n == 0 {
			return false
		}
		header = header[n:]
		if end += SerialLen(serial); end > uint64(at) {
			return end <= uint64(len(a)) && (serial < 6 || serial >= 12)
		}
	}
	return false
}

// firstDifference is the index of the first byte in which two slices of one
// length differ, their length when there is none.
func firstDifference(a, b []byte) int {
	b = b[:len(a)]
	i := 0
	for ; i+8 <= len(a); i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for ; i < len(a) && a[i] == b[i]; i++ {
	}
	return i
}

// SerialLen is the number of bytes a value of the serial type has.
func SerialLen(serial uint64) uint64 {
	if serial >= 12 {
		return (serial - 12) / 2
	}
	return uint64([12]uint8{0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0}[serial])
}

// Int is the value of a field of serial type 1 to 6, 8 or 9.
func (f *Field) Int() int64 {
	b := f.Body
	switch f.Serial {
	case 1:
		return int64(int8(b[0]))
	case 2:
		return int64(int16(binary.BigEndian.Uint16(b)))
	case 3:
		return int64(int32(uint32(b[0])<<24|uint32(b[1])<<16|uint32(b[2])<<8) >> 8)
	case 4:
		return int64(int32(binary.BigEndian.Uint32(b)))
	case 5:
		return int64(int16(binary.BigEndian.Uint16(b)))<<32 | int64(binary.BigEndian.Uint32(b[2:]))
	case 6:
		return int64(binary.BigEndian.Uint64(b))
	case 9:
		return 1
	}
	return 0
}

// Real is the value of a field of serial type 7.
func (f *Field) Real() float64 {
	if f.Serial != 7 {
		return 0
	}
	return math.Float64frombits(binary.BigEndian.Uint64(f.Body))
}
