package v8json

import (
	"encoding/base64"
	"math"
	"math/big"
	"slices"
	"strconv"
	"time"
)

// writer writes a tree as JSON.
type writer struct {
	tree  *tree
	keys  *keyring
	dst   []byte
	units int
	// digits is where in dst a boxed bigint was written, for values that
	// refer to a large one many times.
	digits map[int32][2]int
}

// append appends the JSON text of a node to dst.
func (w *writer) append(dst []byte, root int32) ([]byte, bool) {
	w.dst = dst
	ok := w.value(root, 0)
	return w.dst, ok
}

func (w *writer) put(text string) { w.dst = append(w.dst, text...) }

// charge counts units against the limit.
func (w *writer) charge(units int) bool {
	w.units += units
	return w.units <= MaxUnits
}

// valueUnits is what every value costs.
const valueUnits = 64

// value writes a node. It returns false when the node cannot be written.
func (w *writer) value(i int32, depth int) bool {
	n := &w.tree.nodes[i]
	if n.tag == tagReference {
		i = n.first
		n = &w.tree.nodes[i]
	}
	if depth > MaxDepth || n.open || !w.charge(valueUnits) {
		return false
	}
	switch n.tag {
	case tagNull:
		w.put("null")
	case tagTrue, tagBoxedTrue:
		w.put("true")
	case tagFalse, tagBoxedFalse:
		w.put("false")
	case tagUndefined, tagHole:
		w.put(`{"$undefined":true}`)
	case tagInt32:
		w.dst = strconv.AppendInt(w.dst, int64(zigzag(n.a)), 10)
	case tagUint32:
		w.dst = strconv.AppendUint(w.dst, uint64(n.a), 10)
	case tagDouble, tagBoxedNumber:
		w.number(w.tree.number(n))
	case tagOneByte, tagTwoByte, tagUTF8:
		return w.text(i)
	case tagBoxedString:
		return w.text(n.first)
	case tagBigInt, tagBoxedBigInt:
		return w.bigint(i)
	case tagDate:
		w.date(w.tree.number(n))
	case tagBuffer, tagResizable:
		return w.bytes("ArrayBuffer", n)
	case tagView:
		return w.bytes(viewTypes[n.sub].name, n)
	case tagRegExp:
		return w.regexp(n)
	case tagError:
		return w.error(n)
	default:
		return w.container(n, depth)
	}
	return true
}

// container writes a node with children.
func (w *writer) container(n *node, depth int) bool {
	n.open = true
	ok := false
	switch n.tag {
	case tagObject:
		ok = w.object(n, depth)
	case tagMap:
		ok = w.mapping(n, depth)
	case tagSet:
		ok = w.set(n, depth)
	case tagDense, tagSparse:
		ok = w.array(n, depth)
	}
	n.open = false
	return ok
}

func (w *writer) number(f float64) {
	if math.IsNaN(f) || math.IsInf(f, 0) || (f == 0 && math.Signbit(f)) {
		w.put(`{"$number":"`)
		if f == 0 {
			w.put("-")
		}
		w.dst = appendNumber(w.dst, f)
		w.put(`"}`)
		return
	}
	w.dst = appendNumber(w.dst, f)
}

func (w *writer) text(i int32) bool {
	dst, units, ok := w.tree.appendString(w.dst, &w.tree.nodes[i])
	w.dst = dst
	return ok && w.charge(units)
}

// largeBigInt is the size in bytes above which writing the digits of a bigint
// again costs more than remembering where they are.
const largeBigInt = 256

func (w *writer) bigint(i int32) bool {
	n := &w.tree.nodes[i]
	w.put(`{"$bigint":"`)
	from := len(w.dst)
	if at, ok := w.digits[i]; ok {
		w.dst = append(w.dst, w.dst[at[0]:at[1]]...)
	} else {
		raw := slices.Clone(w.tree.data[n.a:][:n.b>>1&bigintSizeMask])
		slices.Reverse(raw)
		v := new(big.Int).SetBytes(raw)
		if n.b&bigintSign != 0 {
			v.Neg(v)
		}
		w.dst = v.Append(w.dst, 10)
		if n.tag == tagBoxedBigInt && len(raw) > largeBigInt {
			if w.digits == nil {
				w.digits = make(map[int32][2]int)
			}
			w.digits[i] = [2]int{from, len(w.dst)}
		}
	}
	units := len(w.dst) - from
	w.put(`"}`)
	return w.charge(units)
}

// maxTime is the last point in time of a Date, in milliseconds from 1970.
const maxTime = 8.64e15

func (w *writer) date(ms float64) {
	if math.IsNaN(ms) || math.Abs(ms) > maxTime {
		w.put(`{"$date":null}`)
		return
	}
	t := time.UnixMilli(int64(ms)).UTC()
	w.put(`{"$date":"`)
	layout := "2006-01-02T15:04:05.000Z"
	if year := t.Year(); year < 0 || year > 9999 {
		// Years of other than four digits have a sign and six digits.
		sign := "+"
		if year < 0 {
			sign, year = "-", -year
		}
		w.put(sign)
		digits := strconv.Itoa(1_000_000 + year)
		w.put(digits[1:])
		layout = layout[len("2006"):]
	}
	w.dst = t.AppendFormat(w.dst, layout)
	w.put(`"}`)
}

func (w *writer) bytes(kind string, n *node) bool {
	if !w.charge(2 * int(n.b)) {
		return false
	}
	w.put(`{"$bytes":{"base64":"`)
	w.dst = base64.StdEncoding.AppendEncode(w.dst, w.tree.data[n.a:][:n.b])
	w.put(`","type":"`)
	w.put(kind)
	w.put(`"}}`)
	return true
}

func (w *writer) regexp(n *node) bool {
	w.put(`{"$regexp":{"source":`)
	source := w.tree.source(&w.tree.nodes[n.first])
	ok := true
	if w.dst, ok = appendUTF16(append(w.dst, '"'), source); !ok || !w.charge(len(source)/2) {
		return false
	}
	w.put(`,"flags":"`)
	for _, f := range regexpFlags {
		if n.a&f.bit != 0 {
			w.dst = append(w.dst, f.letter)
		}
	}
	w.put(`"}}`)
	return true
}

func (w *writer) error(n *node) bool {
	w.put(`{"$error":{"name":"`)
	w.put(errorNames[n.sub].name)
	w.put(`","message":`)
	if n.first == 0 {
		w.put(`""`)
	} else if !w.text(n.first) {
		return false
	}
	w.put(`}}`)
	return true
}

func (w *writer) object(n *node, depth int) bool {
	if n.sub&hasDollar != 0 {
		w.put(`{"$object":`)
	}
	w.put("{")
	if n.sub&hasIndex != 0 {
		for i, key := range w.keys.ordered(w.tree, n.first) {
			if !w.property(key.node, i > 0, depth) {
				return false
			}
		}
	} else {
		for k := n.first; k != 0; k = w.tree.nodes[w.tree.nodes[k].next].next {
			if !w.property(k, k != n.first, depth) {
				return false
			}
		}
	}
	w.put("}")
	if n.sub&hasDollar != 0 {
		w.put("}")
	}
	return true
}

// property writes a key and the value behind it.
func (w *writer) property(k int32, comma bool, depth int) bool {
	if comma {
		w.put(",")
	}
	key := &w.tree.nodes[k]
	if isString(key.tag) {
		if !w.text(k) {
			return false
		}
	} else {
		from := len(w.dst)
		w.dst = append(w.tree.appendKey(append(w.dst, '"'), key), '"')
		if !w.charge(len(w.dst) - from - 2) {
			return false
		}
	}
	w.put(":")
	return w.value(key.next, depth+1)
}

// array writes elements only. Properties that are array indexes are elements.
func (w *writer) array(n *node, depth int) bool {
	placed, length := w.tree.placed(w.keys, n)
	if uint64(length)*valueUnits > uint64(MaxUnits-w.units) {
		return false
	}
	w.put("[")
	element := n.first
	for i := uint64(0); i < length; i++ {
		if i > 0 {
			w.put(",")
		}
		at := int32(0)
		if i < uint64(n.b) {
			at, element = element, w.tree.nodes[element].next
		}
		if len(placed) > 0 && uint64(placed[0].index) == i {
			at, placed = w.tree.nodes[placed[0].node].next, placed[1:]
		}
		if at == 0 {
			w.put(`{"$undefined":true}`)
			if !w.charge(valueUnits) {
				return false
			}
		} else if !w.value(at, depth+1) {
			return false
		}
	}
	w.put("]")
	return true
}

// placed lists the properties of an array that are elements, ascending, and
// tells the length that the array has with them.
func (t *tree) placed(keys *keyring, n *node) (list []key, length uint64) {
	first := n.first
	for range n.b {
		first = t.nodes[first].next
	}
	length = uint64(n.a)
	if first == 0 {
		return nil, length
	}
	list = keys.ordered(t, first)
	end := slices.IndexFunc(list, func(k key) bool { return !k.isIndex })
	if end >= 0 {
		list = list[:end]
	}
	if len(list) > 0 {
		length = max(length, uint64(list[len(list)-1].index)+1)
	}
	return list, length
}

// item writes a member of a collection, where JavaScript turns -0 to 0.
func (w *writer) item(i int32, depth int) bool {
	if n := &w.tree.nodes[i]; n.tag == tagDouble && w.tree.number(n) == 0 {
		w.put("0")
		return w.charge(valueUnits)
	}
	return w.value(i, depth+1)
}

func (w *writer) mapping(n *node, depth int) bool {
	w.put(`{"$map":[`)
	if n.sub != 0 {
		n.first, n.sub = w.unique(n.first), 0
	}
	for k := n.first; k != 0; k = w.tree.nodes[w.tree.nodes[k].next].next {
		if k != n.first {
			w.put(",")
		}
		w.put("[")
		if !w.item(k, depth) {
			return false
		}
		w.put(",")
		if !w.value(w.tree.nodes[k].next, depth+1) {
			return false
		}
		w.put("]")
	}
	w.put("]}")
	return true
}

func (w *writer) set(n *node, depth int) bool {
	w.put(`{"$set":[`)
	if n.sub != 0 {
		n.first, n.sub = w.uniqueItems(n.first), 0
	}
	for i := n.first; i != 0; i = w.tree.nodes[i].next {
		if i != n.first {
			w.put(",")
		}
		if !w.item(i, depth) {
			return false
		}
	}
	w.put("]}")
	return true
}

// unique links a map's chain anew so that of equal keys the first remains,
// with the value of the last, as setting them one after the other does.
func (w *writer) unique(first int32) int32 {
	t := w.tree
	w.keys.loadItems(t, first, 2)
	at := make(map[string]int, len(w.keys.keys))
	var pairs [][2]int32
	for _, k := range w.keys.keys {
		id := string(w.keys.text(k))
		if i, ok := at[id]; ok {
			pairs[i][1] = t.nodes[k.node].next
			continue
		}
		at[id] = len(pairs)
		pairs = append(pairs, [2]int32{k.node, t.nodes[k.node].next})
	}
	var c chain
	for _, pair := range pairs {
		c.push(t, pair[0])
		c.push(t, pair[1])
	}
	t.nodes[c.last].next = 0
	return c.first
}

// uniqueItems links a set's chain anew so that of equal members the first
// remains.
func (w *writer) uniqueItems(first int32) int32 {
	t := w.tree
	w.keys.loadItems(t, first, 1)
	seen := make(map[string]bool, len(w.keys.keys))
	var c chain
	for _, k := range w.keys.keys {
		if id := string(w.keys.text(k)); !seen[id] {
			seen[id] = true
			c.push(t, k.node)
		}
	}
	t.nodes[c.last].next = 0
	return c.first
}
