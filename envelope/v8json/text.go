package v8json

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"celldexport/envelope"
)

// appendString appends a string node as a JSON string and counts its UTF-16
// code units. It returns false for half a surrogate pair, which no JSON text
// in UTF-8 can hold.
func (t *tree) appendString(dst []byte, n *node) (_ []byte, units int, ok bool) {
	raw := t.data[n.a:][:n.b]
	switch n.tag {
	case tagOneByte:
		return appendLatin1(append(dst, '"'), raw), len(raw), true
	case tagTwoByte:
		dst, ok = appendUTF16(append(dst, '"'), raw)
		return dst, len(raw) / 2, ok
	default:
		for i, r := 0, rune(0); i < len(raw); units += utf16.RuneLen(r) {
			var size int
			r, size = utf8.DecodeRune(raw[i:])
			i += size
		}
		return envelope.AppendString(dst, string(raw)), units, true
	}
}

// appendLatin1 appends the rest of a JSON string, its end included.
func appendLatin1(dst, raw []byte) []byte {
	start := 0
	for i, c := range raw {
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, raw[start:i]...)
		start = i + 1
		if c >= utf8.RuneSelf {
			dst = utf8.AppendRune(dst, rune(c))
		} else {
			dst = appendEscape(dst, c)
		}
	}
	return append(append(dst, raw[start:]...), '"')
}

// appendUTF16 appends the rest of a JSON string, its end included.
func appendUTF16(dst, raw []byte) ([]byte, bool) {
	for i := 0; i < len(raw); i += 2 {
		unit := rune(binary.LittleEndian.Uint16(raw[i:]))
		switch {
		case unit < utf8.RuneSelf:
			if c := byte(unit); c < 0x20 || c == '"' || c == '\\' {
				dst = appendEscape(dst, c)
			} else {
				dst = append(dst, c)
			}
		case utf16.IsSurrogate(unit):
			if i += 2; i >= len(raw) {
				return dst, false
			}
			r := utf16.DecodeRune(unit, rune(binary.LittleEndian.Uint16(raw[i:])))
			if r == utf8.RuneError {
				return dst, false
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = utf8.AppendRune(dst, unit)
		}
	}
	return append(dst, '"'), true
}

// appendEscape appends the escape of a character that may not stand raw.
func appendEscape(dst []byte, c byte) []byte {
	const short = "\"\"\\\\\bb\ff\nn\rr\tt"
	for i := 0; i < len(short); i += 2 {
		if short[i] == c {
			return append(dst, '\\', short[i+1])
		}
	}
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
}

// wellFormed is raw with one U+FFFD for each maximal sequence of bytes that
// is not UTF-8, as V8 reads such strings.
func wellFormed(raw []byte) []byte {
	if utf8.Valid(raw) {
		return raw
	}
	var text string
	// A JSON string written by this program always reads back.
	if err := json.Unmarshal(envelope.AppendString(nil, string(raw)), &text); err != nil {
		return nil
	}
	return []byte(text)
}

// JavaScript writes numbers from smallDecimal up to, not including,
// largeDecimal without an exponent.
const smallDecimal, largeDecimal = 1e-6, 1e21

// appendNumber appends a number as JavaScript spells it: shortest digits that
// read back the same. -0 is 0; NaN and infinities are their names.
func appendNumber(dst []byte, f float64) []byte {
	switch abs := math.Abs(f); {
	case f == 0:
		return append(dst, '0')
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	case abs >= smallDecimal && abs < largeDecimal:
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// strconv pads the exponent to two digits.
	if n := len(dst); dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
