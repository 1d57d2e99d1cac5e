package v8json

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// keyring compares keys. It holds those of one object or collection at a time.
type keyring struct {
	bytes []byte
	keys  []key
	// sorted is scratch for finding twins among many keys.
	sorted []key
}

// key is a key as JavaScript compares it.
type key struct {
	// from and to delimit its identity in the keyring's bytes; for a
	// property's key that is its text in UTF-8, lone surrogates encoded like
	// other characters.
	from, to uint32
	// index is the array index that it is, when isIndex.
	index   uint32
	isIndex bool
	// node is the key's node; a property's value is the next one.
	node int32
}

// keptKeys bounds the memory kept between values, in bytes and keys.
const keptKeys = 1 << 16

func (k *keyring) forget() {
	if cap(k.bytes) > keptKeys {
		k.bytes = nil
	}
	if cap(k.keys) > keptKeys {
		k.keys, k.sorted = nil, nil
	}
}

func (k *keyring) text(key key) []byte { return k.bytes[key.from:key.to] }

// load takes the keys of a chain of keys and values.
func (k *keyring) load(t *tree, first int32) {
	k.bytes, k.keys = k.bytes[:0], k.keys[:0]
	for n := first; n != 0; n = t.nodes[t.nodes[n].next].next {
		from := uint32(len(k.bytes))
		k.bytes = t.appendKey(k.bytes, &t.nodes[n])
		key := key{from: from, to: uint32(len(k.bytes)), node: n}
		key.index, key.isIndex = arrayIndex(k.bytes[from:])
		k.keys = append(k.keys, key)
	}
}

// check tells an object's traits; ok is false when two keys are equal.
func (k *keyring) check(t *tree, first int32) (traits byte, ok bool) {
	k.load(t, first)
	for _, key := range k.keys {
		if key.isIndex {
			traits |= hasIndex
		}
		if text := k.text(key); len(text) > 0 && text[0] == '$' {
			traits |= hasDollar
		}
	}
	return traits, !k.twins()
}

// checkArray reports whether an array may have the properties that begin at
// first: no two equal, none of them length or an element that exists.
func (k *keyring) checkArray(t *tree, array *node, first int32) bool {
	k.load(t, first)
	var elements []int32
	for _, key := range k.keys {
		if string(k.text(key)) == "length" {
			return false
		}
		if !key.isIndex || key.index >= array.b {
			continue
		}
		if elements == nil {
			elements = t.elements(array)
		}
		if t.nodes[elements[key.index]].tag != tagHole {
			return false
		}
	}
	return !k.twins()
}

// elements lists the element nodes of a dense array.
func (t *tree) elements(array *node) []int32 {
	list := make([]int32, 0, array.b)
	for n := array.first; uint32(len(list)) < array.b; n = t.nodes[n].next {
		list = append(list, n)
	}
	return list
}

// loadItems takes every step-th node of a chain as a key of a collection.
func (k *keyring) loadItems(t *tree, first int32, step int) {
	k.bytes, k.keys = k.bytes[:0], k.keys[:0]
	for n := first; n != 0; n = t.nodes[n].next {
		from := uint32(len(k.bytes))
		k.bytes = t.appendIdentity(k.bytes, n)
		k.keys = append(k.keys, key{from: from, to: uint32(len(k.bytes)), node: n})
		for range step - 1 {
			n = t.nodes[n].next
		}
	}
}

// fewKeys is up to how many keys are compared each with each.
const fewKeys = 12

// twins reports whether two keys are equal.
func (k *keyring) twins() bool {
	if len(k.keys) <= fewKeys {
		for i, key := range k.keys {
			for _, other := range k.keys[:i] {
				if bytes.Equal(k.text(key), k.text(other)) {
					return true
				}
			}
		}
		return false
	}
	k.sorted = append(k.sorted[:0], k.keys...)
	slices.SortFunc(k.sorted, func(a, b key) int { return bytes.Compare(k.text(a), k.text(b)) })
	for i := 1; i < len(k.sorted); i++ {
		if bytes.Equal(k.text(k.sorted[i-1]), k.text(k.sorted[i])) {
			return true
		}
	}
	return false
}

// ordered lists the keys of an object in JavaScript's order: array indexes
// ascending, then the others as written.
func (k *keyring) ordered(t *tree, first int32) []key {
	k.load(t, first)
	list := slices.Clone(k.keys)
	slices.SortStableFunc(list, func(a, b key) int {
		switch {
		case a.isIndex && b.isIndex:
			return cmp.Compare(a.index, b.index)
		case a.isIndex:
			return -1
		case b.isIndex:
			return 1
		}
		return 0
	})
	return list
}

// appendKey appends the text of a property's key.
func (t *tree) appendKey(dst []byte, n *node) []byte {
	if !isString(n.tag) {
		return appendNumber(dst, t.number(n))
	}
	raw := t.data[n.a:][:n.b]
	switch n.tag {
	case tagOneByte:
		for _, c := range raw {
			dst = utf8.AppendRune(dst, rune(c))
		}
	case tagTwoByte:
		dst = appendWTF8(dst, raw)
	default:
		dst = append(dst, wellFormed(raw)...)
	}
	return dst
}

// appendWTF8 appends UTF-16 as UTF-8, lone surrogates encoded like other
// characters, so that strings are equal when their texts are.
func appendWTF8(dst, raw []byte) []byte {
	for len(raw) >= 2 {
		unit := rune(binary.LittleEndian.Uint16(raw))
		raw = raw[2:]
		if utf16.IsSurrogate(unit) {
			if len(raw) >= 2 {
				if r := utf16.DecodeRune(unit, rune(binary.LittleEndian.Uint16(raw))); r != utf8.RuneError {
					raw = raw[2:]
					dst = utf8.AppendRune(dst, r)
					continue
				}
			}
			dst = append(dst, 0xe0|byte(unit>>12), 0x80|byte(unit>>6)&0xbf, 0x80|byte(unit)&0xbf)
			continue
		}
		dst = utf8.AppendRune(dst, unit)
	}
	return dst
}

// maxIndex is the largest array index.
const maxIndex = math.MaxUint32 - 1

// arrayIndex is the array index that a key's text spells.
func arrayIndex(text []byte) (index uint32, ok bool) {
	if len(text) == 0 || len(text) > 10 || (text[0] == '0' && len(text) > 1) {
		return 0, false
	}
	v := uint64(0)
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + uint64(c-'0')
	}
	return uint32(v), v <= maxIndex
}

// appendIdentity appends bytes that are equal for two values exactly when a
// Map takes them for the same key.
func (t *tree) appendIdentity(dst []byte, i int32) []byte {
	n := &t.nodes[i]
	switch n.tag {
	case tagUndefined, tagNull, tagTrue, tagFalse:
		return append(dst, n.tag)
	case tagInt32, tagUint32, tagDouble:
		f := t.number(n)
		if math.IsNaN(f) {
			f = math.NaN()
		}
		return binary.BigEndian.AppendUint64(append(dst, tagDouble), math.Float64bits(f+0)) // -0 + 0 is 0
	case tagBigInt:
		digits := bytes.TrimRight(t.data[n.a:][:n.b>>1&bigintSizeMask], "\x00")
		return append(append(dst, tagBigInt, byte(n.b&bigintSign)), digits...)
	case tagOneByte, tagTwoByte, tagUTF8:
		return t.appendKey(append(dst, tagUTF8), n)
	case tagReference:
		i = n.first
	}
	return binary.BigEndian.AppendUint32(append(dst, tagReference), uint32(i))
}
