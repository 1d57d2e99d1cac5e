package v8json

import (
	"encoding/binary"
	"math"
)

// reader reads the primitives of the format.
type reader struct {
	data []byte
	at   int
}

func (r *reader) left() int { return len(r.data) - r.at }

// tag passes over padding and takes the tag behind it.
func (r *reader) tag() (byte, bool) {
	for r.at < len(r.data) {
		t := r.data[r.at]
		r.at++
		if t != tagPadding {
			return t, true
		}
	}
	return 0, false
}

// peek is the next tag, 0 at the end. Padding before it is passed over.
func (r *reader) peek() byte {
	for r.at < len(r.data) {
		if t := r.data[r.at]; t != tagPadding {
			return t
		}
		r.at++
	}
	return 0
}

// varint reads a number in groups of seven bits, lowest first. Like V8, it
// drops bits beyond width and, when width is exceeded, takes the byte that
// follows for the next item.
func (r *reader) varint(width uint) (uint64, bool) {
	var v uint64
	for shift := uint(0); ; shift += 7 {
		if r.at >= len(r.data) {
			return 0, false
		}
		if shift >= width {
			return v, true
		}
		b := r.data[r.at]
		r.at++
		v |= uint64(b&0x7f) << shift & (1<<width - 1)
		if b < 0x80 {
			return v, true
		}
	}
}

func (r *reader) varint32() (uint32, bool) {
	v, ok := r.varint(32)
	return uint32(v), ok
}

func (r *reader) varint8() (byte, bool) {
	v, ok := r.varint(8)
	return byte(v), ok
}

// skip passes over n bytes and returns where they begin.
func (r *reader) skip(n uint32) (at uint32, ok bool) {
	if uint64(n) > uint64(r.left()) {
		return 0, false
	}
	at = uint32(r.at)
	r.at += int(n)
	return at, true
}

// float reads a double. Its byte order is the writer's, which is little-endian
// wherever the runtime runs.
func float(data []byte, at uint32) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(data[at:]))
}

func zigzag(v uint32) int32 { return int32(v>>1) ^ -int32(v&1) }
