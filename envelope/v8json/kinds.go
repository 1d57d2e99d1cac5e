package v8json

import "slices"

// viewType is a type of view of a buffer.
type viewType struct {
	name string
	// tag is the type's letter in V8's format, 0 when only Node.js has it.
	tag byte
	// unit is the size of an element in bytes.
	unit uint32
}

// viewTypes are the types in the order of the numbers that Node.js gives them.
var viewTypes = [...]viewType{
	{"Int8Array", 'b', 1},
	{"Uint8Array", 'B', 1},
	{"Uint8ClampedArray", 'C', 1},
	{"Int16Array", 'w', 2},
	{"Uint16Array", 'W', 2},
	{"Int32Array", 'd', 4},
	{"Uint32Array", 'D', 4},
	{"Float32Array", 'f', 4},
	{"Float64Array", 'F', 8},
	{"DataView", '?', 1},
	{"Buffer", 0, 1},
	{"BigInt64Array", 'q', 8},
	{"BigUint64Array", 'Q', 8},
	{"Float16Array", 'h', 2},
}

// viewKind finds a type by its letter; unit is 0 when there is none.
func viewKind(tag byte) (kind byte, unit uint32) {
	i := slices.IndexFunc(viewTypes[:], func(t viewType) bool { return t.tag == tag })
	if i < 0 || tag == 0 {
		return 0, 0
	}
	return byte(i), viewTypes[i].unit
}

// errorNames are the names of errors; Error is what has no letter.
var errorNames = [...]struct {
	tag  byte
	name string
}{
	{0, "Error"},
	{'E', "EvalError"},
	{'R', "RangeError"},
	{'F', "ReferenceError"},
	{'S', "SyntaxError"},
	{'T', "TypeError"},
	{'U', "URIError"},
}

// errorNumber finds a name by its letter, 0 when there is none.
func errorNumber(tag byte) byte {
	for i := 1; i < len(errorNames); i++ {
		if errorNames[i].tag == tag {
			return byte(i)
		}
	}
	return 0
}

// regexpFlags are the flags of a regular expression in the order in which
// JavaScript lists them.
var regexpFlags = [...]struct {
	bit    uint32
	letter byte
}{
	{1 << 7, 'd'}, {1 << 0, 'g'}, {1 << 1, 'i'}, {1 << 2, 'm'},
	{1 << 5, 's'}, {1 << 4, 'u'}, {1 << 8, 'v'}, {1 << 3, 'y'},
}

const unicodeFlag, unicodeSetsFlag = 1 << 4, 1 << 8

// validFlags says whether V8 takes the flags: those it knows, and no more than
// one of the two Unicode modes.
func validFlags(flags uint32) bool {
	known := uint32(0)
	for _, f := range regexpFlags {
		known |= f.bit
	}
	return flags&^known == 0 && flags&(unicodeFlag|unicodeSetsFlag) != unicodeFlag|unicodeSetsFlag
}
