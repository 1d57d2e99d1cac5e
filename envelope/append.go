package envelope

import (
	"bytes"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
)

// AppendNull appends the JSON of NULL.
func AppendNull(dst []byte) []byte { return append(dst, "null"...) }

// AppendInt appends the JSON of an INTEGER.
func AppendInt(dst []byte, i int64) []byte { return strconv.AppendInt(dst, i, 10) }

// The magnitudes between which a real is spelled without an exponent.
const (
	minDecimal = 1e-5
	maxDecimal = 1e16
)

// AppendReal appends the JSON of a REAL: the shortest digits that read back
// as f, always with a fraction or an exponent so that no reader takes it for
// an INTEGER. From 1e-5 up to below 1e16 it is decimal notation, otherwise
// d.ddde+N. Infinities are {"$real":"inf"} and {"$real":"-inf"}, NaN is NULL.
func AppendReal(dst []byte, f float64) []byte {
	abs := math.Abs(f)
	switch {
	case math.IsNaN(f):
		return AppendNull(dst)
	case math.IsInf(f, 1):
		return append(dst, `{"$real":"inf"}`...)
	case math.IsInf(f, -1):
		return append(dst, `{"$real":"-inf"}`...)
	case abs == 0 || abs >= minDecimal && abs < maxDecimal:
		start := len(dst)
		dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
		if bytes.IndexByte(dst[start:], '.') < 0 {
			dst = append(dst, '.', '0')
		}
		return dst
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// strconv pads the exponent to two digits.
	if n := len(dst); dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// AppendText appends the JSON of a TEXT given as UTF-8. Bytes that are not
// valid UTF-8 are appended as [AppendBlob] would, so that they can be read
// back exactly.
func AppendText(dst, utf8 []byte) []byte {
	start := len(dst)
	dst, ok := appendQuoted(dst, utf8, false)
	if !ok {
		return AppendBlob(dst[:start], utf8)
	}
	return dst
}

// AppendBlob appends the JSON of a BLOB: {"$blob":"<standard base64, padded>"}.
func AppendBlob(dst, raw []byte) []byte {
	dst = append(dst, `{"$blob":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, raw)
	return append(dst, `"}`...)
}

// appendBlob is AppendBlob of the bytes of a string.
func appendBlob(dst []byte, raw string) []byte {
	dst = append(dst, `{"$blob":"`...)
	// Whole groups of three bytes encode independently of what follows, so
	// the string goes through a small buffer instead of a copy of all of it.
	var group [384]byte
	for len(raw) > 0 {
		n := copy(group[:], raw)
		dst = base64.StdEncoding.AppendEncode(dst, group[:n])
		raw = raw[n:]
	}
	return append(dst, `"}`...)
}

// AppendString appends s as a JSON string; bytes that are not UTF-8 become
// U+FFFD, one for each maximal bad sequence. Names are written with it.
func AppendString(dst []byte, s string) []byte {
	dst, _ = appendQuoted(dst, s, true)
	return dst
}

// appendStringOrNull appends a string, or null for nil.
func appendStringOrNull(dst []byte, s *string) []byte {
	if s == nil {
		return AppendNull(dst)
	}
	return AppendString(dst, *s)
}

// appendUintOrNull appends a number, or null for nil.
func appendUintOrNull(dst []byte, n *uint64) []byte {
	if n == nil {
		return AppendNull(dst)
	}
	return strconv.AppendUint(dst, *n, 10)
}

// appendStrings appends an array of strings.
func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, s)
	}
	return append(dst, ']')
}

// appendValues appends an array of values.
func appendValues(dst []byte, list []Value) []byte {
	dst = append(dst, '[')
	for i := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = list[i].Append(dst)
	}
	return append(dst, ']')
}

// AppendValues appends the JSON array of a list of values, as keys and rows
// are written. Equal lists give equal bytes and different lists different
// ones, so it also serves as a map key.
func AppendValues(dst []byte, list []Value) []byte {
	return appendValues(slices.Grow(dst, 2+8*len(list)), list)
}
