package celldsim

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// StorageClass is a storage class of SQLite.
type StorageClass uint8

// The storage classes, in SQLite's order of comparison.
const (
	Null StorageClass = iota
	Integer
	Real
	Text
	Blob
)

// Value is one SQL value. Values compare with ==: class and exact payload, so
// 1 and 1.0 differ, and so do 0.0 and -0.0.
type Value struct {
	Class StorageClass
	// Bits is the value of an Integer, or the IEEE 754 bits of a Real.
	Bits int64
	// Bytes is the UTF-8 of a Text or the bytes of a Blob. Text that is not
	// valid in the database's encoding is a Blob of its stored bytes.
	Bytes string
}

// Float returns the value of a Real.
func (v Value) Float() float64 { return math.Float64frombits(uint64(v.Bits)) }

// String formats the value for a test's report.
func (v Value) String() string {
	switch v.Class {
	case Integer:
		return fmt.Sprint(v.Bits)
	case Real:
		return fmt.Sprintf("%g (real)", v.Float())
	case Text:
		return fmt.Sprintf("%.80q", v.Bytes)
	case Blob:
		return fmt.Sprintf("x'%.80x'", v.Bytes)
	}
	return "NULL"
}

// scanValues reads the n pairs of storage class and value of a row.
func scanValues(rows *sql.Rows, n int, encoding string) ([]Value, error) {
	raw := make([]any, 2*n)
	into := make([]any, 2*n)
	for i := range raw {
		into[i] = &raw[i]
	}
	if err := rows.Scan(into...); err != nil {
		return nil, err
	}
	values := make([]Value, n)
	for i := range values {
		var err error
		if values[i], err = valueOf(raw[2*i], raw[2*i+1], encoding); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// valueOf interprets one pair.
func valueOf(class, v any, encoding string) (Value, error) {
	switch class {
	case "null":
		return Value{}, nil
	case "integer":
		if n, ok := v.(int64); ok {
			return Value{Class: Integer, Bits: n}, nil
		}
	case "real":
		if x, ok := v.(float64); ok {
			return Value{Class: Real, Bits: int64(math.Float64bits(x))}, nil
		}
	case "text":
		b, ok := v.([]byte)
		if text, valid := decodeText(b, encoding); ok && valid {
			return Value{Class: Text, Bytes: text}, nil
		}
		return Value{Class: Blob, Bytes: string(b)}, nil
	case "blob":
		b, _ := v.([]byte) // the driver gives nil for an empty blob
		return Value{Class: Blob, Bytes: string(b)}, nil
	}
	return Value{}, fmt.Errorf("a value of class %v came as a %T", class, v)
}

// decodeText turns stored text into UTF-8 and says whether it was valid in
// the database's encoding.
func decodeText(b []byte, encoding string) (string, bool) {
	var order binary.ByteOrder
	switch encoding {
	case "UTF-16le":
		order = binary.LittleEndian
	case "UTF-16be":
		order = binary.BigEndian
	default:
		return string(b), utf8.Valid(b)
	}
	if len(b)%2 == 1 {
		return "", false
	}
	var text strings.Builder
	for i := 0; i < len(b); i += 2 {
		r := rune(order.Uint16(b[i:]))
		if utf16.IsSurrogate(r) {
			var low rune
			if i+4 <= len(b) {
				low = rune(order.Uint16(b[i+2:]))
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				return "", false
			}
			i += 2
		}
		text.WriteRune(r)
	}
	return text.String(), true
}

// compareValues orders values by class and then by payload; text and blobs
// by their bytes.
func compareValues(a, b Value) int {
	switch {
	case a.Class != b.Class:
		return int(a.Class) - int(b.Class)
	case a.Class == Real && a.Float() < b.Float():
		return -1
	case a.Class == Real && a.Float() > b.Float():
		return 1
	case a.Bits < b.Bits:
		return -1
	case a.Bits > b.Bits:
		return 1
	}
	return strings.Compare(a.Bytes, b.Bytes)
}
