package v8json

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendLegacy appends a value that an early version stored as JSON text:
// without white space, strings with no more escapes than they need, and
// everything else as it stands. Keys keep their order, also equal ones, and
// numbers their spelling, so that nothing that JSON.stringify once wrote is
// changed by reading it.
//
// It returns false, and dst as it was, for text that is not JSON, is not
// UTF-8, escapes half a surrogate pair, or nests too deep for the standard
// library (10,000 levels).
func AppendLegacy(dst, text []byte) ([]byte, bool) {
	if !utf8.Valid(text) || !json.Valid(text) {
		return dst, false
	}
	start := len(dst)
	for len(text) > 0 {
		switch c := text[0]; c {
		case ' ', '\t', '\r', '\n':
			text = text[1:]
		case '"':
			end := stringEnd(text)
			var ok bool
			if dst, ok = appendUnescaped(dst, text[:end]); !ok {
				return dst[:start], false
			}
			text = text[end:]
		default:
			dst = append(dst, c)
			text = text[1:]
		}
	}
	return dst, true
}

// stringEnd is the length of the JSON string that valid text begins with.
func stringEnd(text []byte) int {
	for i := 1; ; i++ {
		switch text[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
}

// appendUnescaped appends a JSON string with only the escapes it needs.
func appendUnescaped(dst, quoted []byte) ([]byte, bool) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return append(dst, quoted...), true
	}
	dst = append(dst, '"')
	for i := 1; i < len(quoted)-1; {
		if quoted[i] != '\\' {
			dst = append(dst, quoted[i])
			i++
			continue
		}
		c := quoted[i+1]
		if c != 'u' {
			dst = appendShort(dst, c)
			i += 2
			continue
		}
		r, size := escaped(quoted[i:])
		if r == utf8.RuneError && size == 0 {
			return dst, false
		}
		dst = appendRune(dst, r)
		i += size
	}
	return append(dst, '"'), true
}

// appendShort appends an escape of two characters; a slash needs none.
func appendShort(dst []byte, c byte) []byte {
	if c == '/' {
		return append(dst, c)
	}
	return append(dst, '\\', c)
}

// appendRune appends a character of a JSON string.
func appendRune(dst []byte, r rune) []byte {
	if r < 0x20 || r == '"' || r == '\\' {
		return appendEscape(dst, byte(r))
	}
	return utf8.AppendRune(dst, r)
}

// escaped reads a \uXXXX escape or a pair of them. The size is 0 for half a
// surrogate pair.
func escaped(s []byte) (r rune, size int) {
	r = hex4(s[2:])
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(s) < 12 || s[6] != '\\' || s[7] != 'u' {
		return utf8.RuneError, 0
	}
	if r = utf16.DecodeRune(r, hex4(s[8:])); r == utf8.RuneError {
		return r, 0
	}
	return r, 12
}

// hex4 reads four hexadecimal digits.
func hex4(s []byte) rune {
	v, err := strconv.ParseUint(string(s[:4]), 16, 32)
	if err != nil {
		return utf8.RuneError
	}
	return rune(v)
}
