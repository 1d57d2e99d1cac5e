package envelope

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// appendQuoted appends s as a JSON string with the short escapes and \u00xx
// for the other control characters; everything else stays raw. At bytes that
// are not UTF-8 it writes U+FFFD when lossy, and otherwise stops and reports
// false.
func appendQuoted[T string | []byte](dst []byte, s T, lossy bool) (_ []byte, ok bool) {
	dst = append(dst, '"')
	start := 0 // of the bytes not yet copied
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
			if !lossy {
				return dst, false
			}
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\uFFFD"...)
			i += badLen(string(s[i:min(i+utf8.UTFMax, len(s))]))
			start = i
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		dst = appendEscape(dst, c)
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"'), true
}

// appendEscape appends the escape of a character that may not stand raw.
func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	default:
		return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
}

// badLen is the length of the maximal bad sequence that s starts with: the
// longest prefix of a well-formed sequence that breaks off, at least one byte
// (Unicode 3.9, U+FFFD substitution of maximal subparts).
func badLen(s string) int {
	lo, hi, want := byte(0x80), byte(0xBF), 0
	switch c := s[0]; {
	case c >= 0xC2 && c <= 0xDF:
		want = 1
	case c >= 0xE0 && c <= 0xEF:
		want = 2
		if c == 0xE0 {
			lo = 0xA0 // below would be an overlong form
		} else if c == 0xED {
			hi = 0x9F // above would be a surrogate
		}
	case c >= 0xF0 && c <= 0xF4:
		want = 3
		if c == 0xF0 {
			lo = 0x90
		} else if c == 0xF4 {
			hi = 0x8F // above is beyond U+10FFFF
		}
	}
	n := 1
	for n <= want && n < len(s) && s[n] >= lo && s[n] <= hi {
		n++
		lo, hi = 0x80, 0xBF
	}
	return n
}
