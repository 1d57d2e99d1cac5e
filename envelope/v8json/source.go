package v8json

import (
	"encoding/binary"
	"unicode/utf16"
)

// source is the source property of a regular expression in UTF-16: the
// pattern, escaped where it could not stand between slashes.
func (t *tree) source(pattern *node) []byte {
	raw := t.utf16(pattern)
	if len(raw) == 0 {
		return appendASCII(nil, "(?:)")
	}
	dst := make([]byte, 0, len(raw)+8)
	class, escaped := false, false
	for ; len(raw) >= 2; raw = raw[2:] {
		unit := binary.LittleEndian.Uint16(raw)
		end := lineEnd(unit)
		switch {
		case end != "":
			if !escaped {
				dst = appendASCII(dst, `\`)
			}
			dst = appendASCII(dst, end)
		case unit == '/' && !class && !escaped:
			dst = appendASCII(dst, `\/`)
		default:
			dst = append(dst, raw[:2]...)
		}
		if !escaped && unit == '[' {
			class = true
		}
		if !escaped && unit == ']' {
			class = false
		}
		escaped = !escaped && unit == '\\'
	}
	return dst
}

// lineEnd is the escape of a character that ends a line, without its
// backslash.
func lineEnd(unit uint16) string {
	switch unit {
	case '\n':
		return "n"
	case '\r':
		return "r"
	case 0x2028:
		return "u2028"
	case 0x2029:
		return "u2029"
	}
	return ""
}

// utf16 is the text of a string node as UTF-16, low byte first.
func (t *tree) utf16(n *node) []byte {
	raw := t.data[n.a:][:n.b]
	if n.tag == tagTwoByte {
		return raw
	}
	var dst []byte
	if n.tag == tagOneByte {
		for _, c := range raw {
			dst = append(dst, c, 0)
		}
		return dst
	}
	for _, r := range string(wellFormed(raw)) {
		dst = appendUnits(dst, r)
	}
	return dst
}

func appendASCII(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = append(dst, s[i], 0)
	}
	return dst
}

// appendUnits appends a character as UTF-16.
func appendUnits(dst []byte, r rune) []byte {
	var units [2]uint16
	for _, u := range utf16.AppendRune(units[:0], r) {
		dst = binary.LittleEndian.AppendUint16(dst, u)
	}
	return dst
}
