package v8json

// The tags of the format.
const (
	tagPadding     = 0
	tagObjectCount = '?'
	tagHole        = '-'
	tagUndefined   = '_'
	tagNull        = '0'
	tagTrue        = 'T'
	tagFalse       = 'F'
	tagInt32       = 'I'
	tagUint32      = 'U'
	tagDouble      = 'N'
	tagBigInt      = 'Z'
	tagUTF8        = 'S'
	tagOneByte     = '"'
	tagTwoByte     = 'c'
	tagReference   = '^'
	tagObject      = 'o'
	tagObjectEnd   = '{'
	tagSparse      = 'a'
	tagSparseEnd   = '@'
	tagDense       = 'A'
	tagDenseEnd    = '$'
	tagDate        = 'D'
	tagBoxedTrue   = 'y'
	tagBoxedFalse  = 'x'
	tagBoxedNumber = 'n'
	tagBoxedBigInt = 'z'
	tagBoxedString = 's'
	tagRegExp      = 'R'
	tagMap         = ';'
	tagMapEnd      = ':'
	tagSet         = '\''
	tagSetEnd      = ','
	tagBuffer      = 'B'
	tagResizable   = '~'
	tagView        = 'V'
	tagError       = 'r'
	tagHost        = '\\'
)

// node is one value. Its scalars stay in the stored bytes, at a position that
// a and b tell; what they mean depends on the tag:
//
//	int32, uint32               a is the value, as read
//	double, date, boxed number  a is where the eight bytes are
//	strings                     the bytes are at a, b of them
//	bigint, boxed bigint        the digits are at a, b holds size and sign
//	reference                   first is the node it refers to
//	object                      first is a chain of keys and values, sub its traits
//	arrays                      a is the length; first is a chain of b elements, then keys and values
//	map, set                    first is a chain of keys and values, of values
//	boxed string, regexp        first is the text, a the flags
//	error                       sub is its name's number, first the message or 0
//	buffer                      the bytes are at a, b of them
//	view, host object           sub is the type's number, the bytes are at a, b of them
type node struct {
	tag, sub byte
	// open is set while the value is being written.
	open        bool
	next, first int32
	a, b        uint32
}

// Traits of an object's keys.
const (
	hasIndex  = 1 << iota // a key is an array index, so their order is not the chain's
	hasDollar             // a key begins with a dollar sign
)

// tree holds the nodes of one stored value. Node 0 is none.
type tree struct {
	data  []byte
	nodes []node
	// ids are the nodes of objects by the number that references use, 0 while
	// an object cannot be referred to yet.
	ids []int32
}

func (t *tree) reset(data []byte) {
	t.data = data
	t.nodes = append(t.nodes[:0], node{})
	t.ids = t.ids[:0]
}

func (t *tree) add(n node) int32 {
	t.nodes = append(t.nodes, n)
	return int32(len(t.nodes) - 1)
}

// id takes the next number for an object that cannot be referred to yet.
func (t *tree) id() int {
	t.ids = append(t.ids, 0)
	return len(t.ids) - 1
}

// chain builds a list of nodes.
type chain struct{ first, last int32 }

func (c *chain) push(t *tree, n int32) {
	if c.first == 0 {
		c.first = n
	} else {
		t.nodes[c.last].next = n
	}
	c.last = n
}

// isString says whether a node is a primitive string.
func isString(tag byte) bool { return tag == tagOneByte || tag == tagTwoByte || tag == tagUTF8 }
