package envelope

import (
	"cmp"
	"math"
	"strings"
	"unicode/utf8"
)

// Class is the storage class of a value, in the order in which classes sort.
type Class uint8

// The storage classes (SQLite, Datatypes 2).
const (
	ClassNull Class = iota
	ClassInteger
	ClassReal
	ClassText
	ClassBlob
)

// Value is one SQL value. Values are comparable with == and usable as map
// keys: two are equal when class and payload are, so 1 and 1.0 differ and so
// do 0.0 and -0.0. The zero Value is NULL. Reals are never NaN, which SQLite
// stores as NULL, and texts are always valid UTF-8.
type Value struct {
	class Class
	num   uint64 // the integer, or the bits of the real
	str   string // the text, or the bytes of the blob
}

// Null is the NULL value.
func Null() Value { return Value{} }

// Int is an INTEGER.
func Int(i int64) Value { return Value{class: ClassInteger, num: uint64(i)} }

// Real is a REAL; NaN gives NULL, as in SQLite.
func Real(f float64) Value {
	if math.IsNaN(f) {
		return Value{}
	}
	return Value{class: ClassReal, num: math.Float64bits(f)}
}

// Text is a TEXT. Text that is not valid UTF-8 has no place in a record as
// text; it gives a blob of its bytes, as it is exported.
func Text(s string) Value {
	if !utf8.ValidString(s) {
		return Value{class: ClassBlob, str: s}
	}
	return Value{class: ClassText, str: s}
}

// Blob is a BLOB. The bytes are copied.
func Blob(b []byte) Value { return Value{class: ClassBlob, str: string(b)} }

// Class is the value's storage class.
func (v Value) Class() Class { return v.class }

// Int is the value of an INTEGER, 0 for other classes.
func (v Value) Int() int64 {
	if v.class != ClassInteger {
		return 0
	}
	return int64(v.num)
}

// Real is the value of a REAL, 0 for other classes.
func (v Value) Real() float64 {
	if v.class != ClassReal {
		return 0
	}
	return math.Float64frombits(v.num)
}

// Text is the value of a TEXT, "" for other classes.
func (v Value) Text() string {
	if v.class != ClassText {
		return ""
	}
	return v.str
}

// Blob is a copy of the bytes of a BLOB, nil for other classes.
func (v Value) Blob() []byte {
	if v.class != ClassBlob {
		return nil
	}
	return []byte(v.str)
}

// Compare orders values totally: by storage class (NULL, INTEGER, REAL, TEXT,
// BLOB), then by number or bytes, -0.0 before 0.0. It is 0 exactly for equal
// values.
func (v Value) Compare(w Value) int {
	if v.class != w.class {
		return cmp.Compare(v.class, w.class)
	}
	switch v.class {
	case ClassInteger:
		return cmp.Compare(int64(v.num), int64(w.num))
	case ClassReal:
		return cmp.Or(
			cmp.Compare(math.Float64frombits(v.num), math.Float64frombits(w.num)),
			-cmp.Compare(v.num, w.num), // only zeros: the negative one has the larger bits
		)
	case ClassText, ClassBlob:
		return strings.Compare(v.str, w.str)
	default:
		return 0
	}
}

// Append appends the value's JSON.
func (v Value) Append(dst []byte) []byte {
	switch v.class {
	case ClassInteger:
		return AppendInt(dst, int64(v.num))
	case ClassReal:
		return AppendReal(dst, math.Float64frombits(v.num))
	case ClassText:
		return AppendString(dst, v.str)
	case ClassBlob:
		return appendBlob(dst, v.str)
	default:
		return AppendNull(dst)
	}
}

// String is the value's JSON.
func (v Value) String() string { return string(v.Append(nil)) }
