// Package v8json turns values of the Durable Object key-value storage, which
// are stored in V8's serialization format, into JSON text.
//
// What JSON has is itself: null, booleans, strings, finite numbers in
// JavaScript's spelling, arrays, plain objects with their keys in JavaScript's
// order (array indexes ascending, then the others as written). What it lacks
// is an object of one key:
//
//	NaN, Infinity, -0       {"$number":"NaN"}
//	undefined, array holes  {"$undefined":true}
//	bigint                  {"$bigint":"-12"}
//	Date                    {"$date":"2026-01-01T00:00:00.000Z"}, null when invalid
//	RegExp                  {"$regexp":{"source":"a+","flags":"gi"}}
//	Map, Set                {"$map":[[key,value]]}, {"$set":[value]}
//	buffers and their views {"$bytes":{"base64":"AQI=","type":"Uint8Array"}}
//	Error                   {"$error":{"name":"TypeError","message":"no"}}
//	stored stub             {"$stub":value}
//
// A boxed primitive is the primitive. An object with a key that begins with a
// dollar sign is wrapped as {"$object":{...}}, so every such key in the text
// is one of these. Properties of arrays other than elements, causes and stacks
// of errors are left out. An object that is referred to twice appears twice.
//
// A value does not decode when V8 would refuse it, when it refers to itself,
// when a string holds half a surrogate pair, and when it is too large: more
// than [MaxStored] bytes, more than [MaxUnits] when written out, or nested
// deeper than [MaxDepth]. It is exported as its stored bytes then.
//
// One thing that V8 refuses does decode: a regular expression whose pattern,
// or pattern with these flags, is none to it, such as "(". Which patterns are
// valid differs between its releases, so a check would take valid ones away
// from readers sooner or later, while a pattern that is not valid arrives
// unchanged. V8 stores only patterns that it had accepted.
//
// The format is the one of V8's ValueSerializer, wire versions 13 to 15; it
// has no specification but its source. Values that hold a Node.js Buffer or
// view, which Node.js writes as host objects, decode too.
package v8json

const (
	// MaxStored is the size in bytes above which a stored value is not
	// decoded.
	MaxStored = 2 << 20
	// MaxUnits bounds what a value may expand to: 64 units for every value
	// and hole, one for every UTF-16 code unit of a string or key, two for
	// every byte of a buffer, counted as often as they are written.
	MaxUnits = 64 << 20
	// MaxDepth bounds the nesting of values. V8 itself gives up where its
	// stack ends, in a default build at 2,000 to 3,500 levels.
	// The JSON nests at most three times as deep.
	MaxDepth = 3000
)

const (
	stubMark   = 0x01
	headerMark = 0xff
	// The wire versions that V8 reads without its option for older ones.
	oldestVersion, newestVersion = 13, 15
	// versionOfLostFlags is the version under which some releases of V8 wrote
	// buffer views already with the flags that belong to the next one.
	versionOfLostFlags = 13
)

// Append appends the JSON text of a stored value to dst. It returns false,
// and dst as it was, when the value does not decode.
func Append(dst, stored []byte) ([]byte, bool) {
	return new(Decoder).Append(dst, stored)
}

// Decoder decodes one value after the other and keeps its memory in between.
// The zero Decoder is ready; it is used by one goroutine.
type Decoder struct {
	tree tree
	keys keyring
}

// keptNodes bounds the memory that a Decoder keeps between values.
const keptNodes = 1 << 14

// Append is like the function [Append].
func (d *Decoder) Append(dst, stored []byte) ([]byte, bool) {
	if len(stored) > MaxStored {
		return dst, false
	}
	start, text := len(dst), dst
	stub := len(stored) > 0 && stored[0] == stubMark
	clone := stored
	if stub {
		clone = stored[1:]
		text = append(text, `{"$stub":`...)
	}
	root, ok := d.parse(clone)
	if ok {
		w := writer{tree: &d.tree, keys: &d.keys}
		text, ok = w.append(text, root)
	}
	d.forget()
	if !ok {
		return dst[:start], false
	}
	if stub {
		text = append(text, '}')
	}
	return text, true
}

// parse reads a clone, header first.
func (d *Decoder) parse(clone []byte) (root int32, ok bool) {
	r := reader{data: clone}
	if len(clone) == 0 || clone[0] != headerMark {
		return 0, false
	}
	r.at++
	version, ok := r.varint32()
	if !ok || version < oldestVersion || version > newestVersion {
		return 0, false
	}
	p := parser{reader: r, tree: &d.tree, keys: &d.keys, version: version, viewFlags: version > versionOfLostFlags}
	if root, ok = p.parse(); !ok && version == versionOfLostFlags {
		p = parser{reader: r, tree: &d.tree, keys: &d.keys, version: version, viewFlags: true}
		root, ok = p.parse()
	}
	return root, ok
}

func (d *Decoder) forget() {
	if cap(d.tree.nodes) > keptNodes {
		d.tree = tree{}
	}
	d.tree.data = nil
	d.keys.forget()
}
