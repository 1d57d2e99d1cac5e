package celldsim

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf16"
)

// V8 encodes a value as the runtime stores it in key-value storage: the V8
// serialization format with its version written as 15. It takes nil, bool,
// int, int32, float64, string, []any and map[string]any (keys in byte order),
// nested as needed.
func V8(v any) ([]byte, error) {
	return appendV8([]byte{0xff, 0x0f}, v)
}

func appendV8(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, '0'), nil
	case bool:
		if v {
			return append(b, 'T'), nil
		}
		return append(b, 'F'), nil
	case int:
		if v < math.MinInt32 || v > math.MaxInt32 {
			return appendV8(b, float64(v))
		}
		return appendV8(b, int32(v))
	case int32:
		zigzag := uint32(v)<<1 ^ uint32(v>>31)
		return binary.AppendUvarint(append(b, 'I'), uint64(zigzag)), nil
	case float64:
		return binary.LittleEndian.AppendUint64(append(b, 'N'), math.Float64bits(v)), nil
	case string:
		return appendV8String(b, v), nil
	case []any:
		return appendV8Array(b, v)
	case map[string]any:
		return appendV8Object(b, v)
	}
	return nil, fmt.Errorf("encode a %T as a stored value: no such kind", v)
}

// appendV8String writes a one-byte string when every character is Latin-1,
// else a two-byte string, whose characters start at an even offset.
func appendV8String(b []byte, s string) []byte {
	units := utf16.Encode([]rune(s))
	if slices.Max(append(units, 0)) < 0x100 {
		b = binary.AppendUvarint(append(b, '"'), uint64(len(units)))
		for _, u := range units {
			b = append(b, byte(u))
		}
		return b
	}
	size := binary.AppendUvarint(nil, uint64(2*len(units)))
	if (len(b)+1+len(size))%2 == 1 {
		b = append(b, 0) // padding
	}
	b = append(append(b, 'c'), size...)
	for _, u := range units {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return b
}

func appendV8Array(b []byte, list []any) ([]byte, error) {
	length := uint64(len(list))
	b = binary.AppendUvarint(append(b, 'A'), length)
	for _, e := range list {
		var err error
		if b, err = appendV8(b, e); err != nil {
			return nil, err
		}
	}
	b = binary.AppendUvarint(append(b, '$'), 0) // no properties beside the elements
	return binary.AppendUvarint(b, length), nil
}

func appendV8Object(b []byte, object map[string]any) ([]byte, error) {
	b = append(b, 'o')
	for _, key := range slices.Sorted(maps.Keys(object)) {
		var err error
		if b, err = appendV8(appendV8String(b, key), object[key]); err != nil {
			return nil, err
		}
	}
	return binary.AppendUvarint(append(b, '{'), uint64(len(object))), nil
}
