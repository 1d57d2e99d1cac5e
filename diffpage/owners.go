package diffpage

// role is what a page is to the tree that owns it.
type role uint8

const (
	// roleNone: no table tree owns the page. It belongs to an index, to the
	// free list, to the pointer map, or is the lock page; its content is of no
	// interest and never parsed.
	roleNone role = iota
	// roleTree: a page of the table's tree. Its parent is 0 for the root.
	roleTree
	// roleHead: the first overflow page of a row. Its parent is the page the
	// row is on.
	roleHead
	// roleRest: any other overflow page. Its parent is the head of its chain,
	// so the row is two steps away however long the chain is.
	roleRest
)

// owner is the entry of one page in the owner map: 4 bits role, 28 bits slot
// of the table, 32 bits parent page.
type owner uint64

func newOwner(r role, slot, parent uint32) owner {
	return owner(r)<<60 | owner(slot&maxSlot)<<32 | owner(parent)
}

const maxSlot = 1<<28 - 1

func (o owner) role() role     { return role(o >> 60) }
func (o owner) slot() uint32   { return uint32(o>>32) & maxSlot }
func (o owner) parent() uint32 { return uint32(o) }

// ownerMap says for every page which table owns it and as what. A page
// without it is anonymous: nothing in a leaf tells its table.
type ownerMap []owner // by page number; entry 0 is not used

func (m ownerMap) of(pgno uint32) owner {
	if int64(pgno) < int64(len(m)) {
		return m[pgno]
	}
	return 0
}

// resize forgets pages above commit and adds pages without owner.
func (m ownerMap) resize(commit uint32) ownerMap {
	if n := int(commit) + 1; n <= len(m) {
		return m[:n]
	}
	n := int(commit) + 1
	if n > cap(m) {
		// With little to spare: of a large database the map is large, and so
		// is what doubling would leave unused.
		grown := make(ownerMap, n, n+n/16)
		copy(grown, m)
		return grown
	}
	old := len(m)
	m = m[:n]
	clear(m[old:])
	return m
}

// schemaSlot is the slot of sqlite_schema, whose root is page 1 always.
const schemaSlot = 0

const schemaTable = "sqlite_schema"

// tree is where the rows of a table are: a root page and the kind of pages
// below it. The zero value is no tree.
type tree struct {
	root  uint32
	index bool // index pages, as WITHOUT ROWID tables have
}

// slots gives every table tree of a state a small number that stays the same
// as long as a table of that name exists.
type slots struct {
	names  []string // by slot; an empty name is a name
	trees  []tree   // by slot; without root for a free one
	byName map[string]uint32
}

func newSlots() *slots {
	return &slots{
		names:  []string{schemaTable},
		trees:  []tree{{}},
		byName: make(map[string]uint32),
	}
}

func (s *slots) clone() *slots {
	c := &slots{
		names:  append([]string(nil), s.names...),
		trees:  append([]tree(nil), s.trees...),
		byName: make(map[string]uint32, len(s.byName)),
	}
	for name, slot := range s.byName {
		c.byName[name] = slot
	}
	return c
}

// set gives the table of this name a tree, and a slot if it has none.
func (s *slots) set(name string, t tree) uint32 {
	slot, ok := s.byName[name]
	if !ok {
		slot = s.free()
		s.byName[name], s.names[slot] = slot, name
	}
	s.trees[slot] = t
	return slot
}

func (s *slots) free() uint32 {
	for slot, t := range s.trees {
		if slot != schemaSlot && t.root == 0 {
			return uint32(slot)
		}
	}
	s.names = append(s.names, "")
	s.trees = append(s.trees, tree{})
	return uint32(len(s.names) - 1)
}

func (s *slots) drop(name string) {
	if slot, ok := s.byName[name]; ok {
		delete(s.byName, name)
		s.names[slot], s.trees[slot] = "", tree{}
	}
}
