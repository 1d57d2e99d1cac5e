package schema

import (
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// Encoding is the text encoding of a database, by the number its header
// stores at offset 56 (SQLite file format 1.3.13).
type Encoding uint32

// The encodings of SQLite.
const (
	UTF8    Encoding = 1
	UTF16LE Encoding = 2
	UTF16BE Encoding = 3
)

// String is the encoding's name as PRAGMA encoding takes it.
func (e Encoding) String() string {
	switch e {
	case UTF16LE:
		return "UTF-16le"
	case UTF16BE:
		return "UTF-16be"
	}
	return "UTF-8"
}

// AppendUTF8 appends the stored bytes of a text to dst as UTF-8 and reports
// whether they are valid in the encoding. An embedded NUL is a character like
// any other. Where they are not valid (a broken or overlong sequence, an
// unpaired surrogate, half a code unit) dst comes back as it was. Nothing is
// allocated beyond the growth of dst.
func (e Encoding) AppendUTF8(dst, stored []byte) ([]byte, bool) {
	switch e {
	case UTF16LE:
		return appendUTF16(dst, stored, binary.LittleEndian)
	case UTF16BE:
		return appendUTF16(dst, stored, binary.BigEndian)
	}
	if !utf8.Valid(stored) {
		return dst, false
	}
	return append(dst, stored...), true
}

type byteOrder interface{ Uint16([]byte) uint16 }

func appendUTF16[O byteOrder](dst, stored []byte, order O) ([]byte, bool) {
	if len(stored)%2 != 0 {
		return dst, false
	}
	out := dst
	for i := 0; i < len(stored); i += 2 {
		r := rune(order.Uint16(stored[i:]))
		if utf16.IsSurrogate(r) {
			i += 2
			if i >= len(stored) {
				return dst, false
			}
			r = utf16.DecodeRune(r, rune(order.Uint16(stored[i:])))
			if r == utf8.RuneError {
				return dst, false
			}
		}
		out = utf8.AppendRune(out, r)
	}
	return out, true
}
