package v8json

import "math"

// parser reads a clone into a tree. It refuses what V8 refuses, but
// for patterns of regular expressions that are none.
type parser struct {
	reader
	tree    *tree
	keys    *keyring
	version uint32
	// viewFlags says whether views carry flags.
	viewFlags bool
}

func (p *parser) parse() (root int32, ok bool) {
	p.tree.reset(p.data)
	root = p.value(0)
	return root, root != 0
}

// value reads a value at a nesting depth and returns its node, 0 when it is
// refused.
func (p *parser) value(depth int) int32 {
	if depth > MaxDepth {
		return 0
	}
	n := p.bare(depth)
	if n == 0 {
		return 0
	}
	// A view stands behind its buffer or a reference to it.
	buffer := n
	if p.tree.nodes[n].tag == tagReference {
		buffer = p.tree.nodes[n].first
	}
	if t := p.tree.nodes[buffer].tag; (t == tagBuffer || t == tagResizable) && p.peek() == tagView {
		p.at++
		return p.view(buffer)
	}
	return n
}

// bare reads a value without the view that may follow a buffer.
func (p *parser) bare(depth int) int32 {
	tag, ok := p.tag()
	for ok && tag == tagObjectCount { // once a hint for the reader
		if _, ok = p.varint32(); ok {
			tag, ok = p.tag()
		}
	}
	if !ok {
		return 0
	}
	switch tag {
	case tagUndefined, tagNull, tagTrue, tagFalse:
		return p.tree.add(node{tag: tag})
	case tagInt32, tagUint32:
		v, ok := p.varint32()
		return p.keep(ok, node{tag: tag, a: v})
	case tagDouble:
		at, ok := p.skip(8)
		return p.keep(ok, node{tag: tag, a: at})
	case tagBigInt:
		at, bits, ok := p.bigint()
		return p.keep(ok, node{tag: tag, a: at, b: bits})
	case tagOneByte, tagTwoByte, tagUTF8:
		return p.text(tag)
	case tagReference:
		id, ok := p.varint32()
		if !ok || uint64(id) >= uint64(len(p.tree.ids)) || p.tree.ids[id] == 0 {
			return 0
		}
		return p.tree.add(node{tag: tag, first: p.tree.ids[id]})
	default:
		return p.object(tag, depth)
	}
}

// keep adds a node that was read, or nothing.
func (p *parser) keep(ok bool, n node) int32 {
	if !ok {
		return 0
	}
	return p.tree.add(n)
}

// object reads a value that references can name.
func (p *parser) object(tag byte, depth int) int32 {
	switch tag {
	case tagObject, tagSparse, tagDense, tagMap, tagSet:
		// These may refer to themselves, so they have their number at once.
		n := p.tree.add(node{tag: tag})
		p.tree.ids = append(p.tree.ids, n)
		if !p.fill(n, depth) {
			return 0
		}
		return n
	}
	id := p.tree.id()
	n := p.closed(tag, id, depth)
	if n != 0 {
		p.tree.ids[id] = n
	}
	return n
}

// fill reads the children of a container.
func (p *parser) fill(n int32, depth int) bool {
	switch p.tree.nodes[n].tag {
	case tagObject:
		return p.plain(n, depth)
	case tagMap:
		return p.list(n, depth, tagMapEnd, 2)
	case tagSet:
		return p.list(n, depth, tagSetEnd, 1)
	}
	return p.array(n, depth)
}

// closed reads an object that has no children, or whose children cannot refer
// to it.
func (p *parser) closed(tag byte, id, depth int) int32 {
	switch tag {
	case tagBoxedTrue, tagBoxedFalse:
		return p.tree.add(node{tag: tag})
	case tagDate, tagBoxedNumber:
		at, ok := p.skip(8)
		return p.keep(ok, node{tag: tag, a: at})
	case tagBoxedBigInt:
		at, bits, ok := p.bigint()
		return p.keep(ok, node{tag: tag, a: at, b: bits})
	case tagBoxedString:
		text := p.string(depth)
		return p.keep(text != 0, node{tag: tag, first: text})
	case tagRegExp:
		text := p.string(depth)
		if text == 0 {
			return 0
		}
		flags, ok := p.varint32()
		return p.keep(ok && validFlags(flags), node{tag: tag, first: text, a: flags})
	case tagBuffer, tagResizable:
		return p.buffer(tag)
	case tagError:
		return p.error(id, depth)
	case tagHost:
		return p.host()
	}
	// Transfers and shared memory mean nothing outside the process that wrote
	// them; other tags do not exist.
	return 0
}

func (p *parser) text(tag byte) int32 {
	size, ok := p.varint32()
	if !ok || (tag == tagTwoByte && size%2 != 0) {
		return 0
	}
	at, ok := p.skip(size)
	return p.keep(ok, node{tag: tag, a: at, b: size})
}

// string reads a value that has to be a string.
func (p *parser) string(depth int) int32 {
	n := p.value(depth + 1)
	if n == 0 || !isString(p.tree.nodes[n].tag) {
		return 0
	}
	return n
}

// The bit field of a bigint: its sign, then its size in bytes.
const (
	bigintSign     = 1
	bigintSizeMask = 1<<30 - 1
)

func (p *parser) bigint() (at, bits uint32, ok bool) {
	if bits, ok = p.varint32(); !ok || bits == bigintSign {
		return 0, 0, false // zero has no sign
	}
	at, ok = p.skip(bits >> 1 & bigintSizeMask)
	return at, bits, ok
}

// plain reads the properties of an object.
func (p *parser) plain(n int32, depth int) bool {
	var c chain
	count, ok := p.properties(&c, tagObjectEnd, depth)
	if !ok {
		return false
	}
	stated, ok := p.varint32()
	if !ok || stated != count {
		return false
	}
	sub, ok := p.keys.check(p.tree, c.first)
	p.tree.nodes[n].first, p.tree.nodes[n].sub = c.first, sub
	return ok
}

// properties reads keys and values up to the end tag.
func (p *parser) properties(c *chain, end byte, depth int) (count uint32, ok bool) {
	for {
		switch p.peek() {
		case 0:
			return 0, false
		case end:
			p.at++
			return count, true
		}
		key := p.value(depth + 1)
		if key == 0 || !isKey(p.tree.nodes[key].tag) {
			return 0, false
		}
		value := p.value(depth + 1)
		if value == 0 {
			return 0, false
		}
		c.push(p.tree, key)
		c.push(p.tree, value)
		count++
	}
}

// list reads a map or a set: items up to the end tag, then their number.
func (p *parser) list(n int32, depth int, end byte, step int) bool {
	var c chain
	count := uint32(0)
	for p.peek() != end {
		for range step {
			item := p.value(depth + 1)
			if item == 0 {
				return false
			}
			c.push(p.tree, item)
			count++
		}
	}
	p.at++
	stated, ok := p.varint32()
	p.tree.nodes[n].first = c.first
	p.keys.loadItems(p.tree, c.first, step)
	if p.keys.twins() {
		p.tree.nodes[n].sub = 1
	}
	return ok && stated == count
}

// array reads a dense or a sparse array.
func (p *parser) array(n int32, depth int) bool {
	length, ok := p.varint32()
	if !ok {
		return false
	}
	var c chain
	end, elements := byte(tagSparseEnd), uint32(0)
	if p.tree.nodes[n].tag == tagDense {
		end, elements = tagDenseEnd, length
		if uint64(length) > uint64(p.left()) {
			return false
		}
		if !p.elements(&c, length, depth) {
			return false
		}
	}
	last := c.last
	count, ok := p.properties(&c, end, depth)
	if !ok {
		return false
	}
	stated, ok := p.varint32()
	if !ok || stated != count {
		return false
	}
	if stated, ok = p.varint32(); !ok || stated != length {
		return false
	}
	a := &p.tree.nodes[n]
	a.first, a.a, a.b = c.first, length, elements
	first := c.first
	if last != 0 {
		first = p.tree.nodes[last].next
	}
	return first == 0 || p.keys.checkArray(p.tree, a, first)
}

// elements reads the elements of a dense array, holes among them.
func (p *parser) elements(c *chain, length uint32, depth int) bool {
	for range length {
		var element int32
		if p.peek() == tagHole {
			p.at++
			element = p.tree.add(node{tag: tagHole})
		} else if element = p.value(depth + 1); element == 0 {
			return false
		}
		c.push(p.tree, element)
	}
	return true
}

func (p *parser) buffer(tag byte) int32 {
	size, ok := p.varint32()
	if !ok {
		return 0
	}
	if tag == tagResizable {
		if limit, ok := p.varint32(); !ok || size > limit {
			return 0
		}
	}
	at, ok := p.skip(size)
	return p.keep(ok, node{tag: tag, a: at, b: size})
}

// Flags of a view of a resizable buffer.
const (
	viewTracksLength = 1 << iota
	viewOfResizable
)

// view reads a view of a buffer that was read before.
func (p *parser) view(buffer int32) int32 {
	tag, ok := p.varint8()
	if !ok {
		return 0
	}
	offset, ok := p.varint32()
	if !ok {
		return 0
	}
	size, ok := p.varint32()
	b := p.tree.nodes[buffer]
	if !ok || offset > b.b || size > b.b-offset {
		return 0
	}
	var flags uint32
	if p.viewFlags {
		if flags, ok = p.varint32(); !ok {
			return 0
		}
	}
	id := p.tree.id()
	kind, unit := viewKind(tag)
	if unit == 0 || offset%unit != 0 || size%unit != 0 {
		return 0
	}
	if (flags&viewOfResizable != 0) != (b.tag == tagResizable) || (flags&viewTracksLength != 0 && b.tag != tagResizable) {
		return 0
	}
	if flags&viewTracksLength != 0 {
		size = (b.b - offset) / unit * unit
	}
	n := p.tree.add(node{tag: tagView, sub: kind, a: b.a + offset, b: size})
	p.tree.ids[id] = n
	return n
}

// host reads a view that Node.js wrote: the number of its type, its size in
// bytes and the bytes.
func (p *parser) host() int32 {
	kind, ok := p.varint32()
	if !ok || kind >= uint32(len(viewTypes)) {
		return 0
	}
	size, ok := p.varint32()
	if !ok {
		return 0
	}
	at, ok := p.skip(size)
	size -= size % viewTypes[kind].unit
	return p.keep(ok, node{tag: tagView, sub: byte(kind), a: at, b: size})
}

// The items of an error.
const (
	errorMessage = 'm'
	errorCause   = 'c'
	errorStack   = 's'
	errorEnd     = '.'
)

// error reads an error. Releases of V8 differ in the order of its items.
func (p *parser) error(id, depth int) int32 {
	// The cause may refer to the error.
	n := p.tree.add(node{tag: tagError})
	for {
		tag, ok := p.varint8()
		if !ok {
			return 0
		}
		switch tag {
		case errorMessage:
			text := p.string(depth)
			if text == 0 {
				return 0
			}
			p.tree.nodes[n].first = text
		case errorStack:
			if p.string(depth) == 0 {
				return 0
			}
			p.tree.ids[id] = n
		case errorCause:
			p.tree.ids[id] = n
			if p.value(depth+1) == 0 {
				return 0
			}
		case errorEnd:
			return n
		default:
			name := errorNumber(tag)
			if name == 0 {
				return 0
			}
			p.tree.nodes[n].sub = name
		}
	}
}

// isKey says whether a node may be a property's key: a string or a number.
func isKey(tag byte) bool {
	return isString(tag) || tag == tagInt32 || tag == tagUint32 || tag == tagDouble
}

// number is a numeric node's value.
func (t *tree) number(n *node) float64 {
	switch n.tag {
	case tagInt32:
		return float64(zigzag(n.a))
	case tagUint32:
		return float64(n.a)
	case tagDouble, tagBoxedNumber, tagDate:
		return float(t.data, n.a)
	}
	return math.NaN()
}
