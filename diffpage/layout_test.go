package diffpage

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"celldexport/diffpage/btree"
)

// layout is where the pages of a state are, to see whether a unit is what its
// case is about.
type layout struct {
	file   []byte
	owners ownerMap
	names  []string
	usable int
}

func (f *follower) layout() *layout {
	return &layout{file: f.src.last, owners: slices.Clone(f.base.owners), names: slices.Clone(f.base.slots.names), usable: f.base.usable}
}

func (l *layout) page(pgno uint32) []byte {
	size := pageSizeOf(l.file)
	at := (int(pgno) - 1) * size
	if at+size > len(l.file) {
		return nil
	}
	return l.file[at : at+size]
}

// name is the table that owns a page, in any role.
func (l *layout) name(pgno uint32) string {
	if o := l.owners.of(pgno); o.role() != roleNone {
		return l.names[o.slot()]
	}
	return ""
}

// depth is how many levels the tree of a table has; 0 when there is none.
func (l *layout) depth(name string) int {
	deepest := 0
	for pgno, o := range l.owners {
		if o.role() != roleTree || l.name(uint32(pgno)) != name {
			continue
		}
		n := 0
		for up := uint32(pgno); up != 0; up = l.owners.of(up).parent() {
			n++
		}
		deepest = max(deepest, n)
	}
	return deepest
}

// ghosts are the pages of a unit that look like leaves and are nobody's.
func (l *layout) ghosts(was *layout) (n int) {
	for pgno := uint32(2); int(pgno) < len(l.owners); pgno++ {
		if page := l.page(pgno); l.owners.of(pgno).role() == roleNone && page[0] == byte(btree.LeafTable) && !bytes.Equal(page, was.page(pgno)) {
			n++
		}
	}
	return n
}

// taken counts tree pages of one table that became those of another.
func (l *layout) taken(was *layout, from, to string) (n int) {
	for pgno, o := range l.owners {
		if o.role() == roleTree && l.name(uint32(pgno)) == to && was.owners.of(uint32(pgno)).role() == roleTree && was.name(uint32(pgno)) == from {
			n++
		}
	}
	return n
}

// unmovedAboveMoved counts overflow pages behind the first of their chain that
// are others than before, below a leaf whose bytes are as they were.
func (l *layout) unmovedAboveMoved(was *layout, name string) (n int) {
	for pgno, o := range l.owners {
		if o.role() != roleRest || l.name(uint32(pgno)) != name || was.owners.of(uint32(pgno)) == o {
			continue
		}
		if row := l.owners.of(o.parent()).parent(); bytes.Equal(l.page(row), was.page(row)) {
			n++
		}
	}
	return n
}

// inner are the first fields of the rows that interior pages of a table hold.
func (l *layout) inner(t *testing.T, name string) (keys []int64) {
	var p btree.Page
	var c btree.Cell
	for pgno, o := range l.owners {
		if o.role() != roleTree || l.name(uint32(pgno)) != name {
			continue
		}
		if err := p.Parse(uint32(pgno), l.page(uint32(pgno)), l.usable); err != nil {
			t.Fatal(err)
		}
		for i := 0; p.Type == btree.InteriorIndex && i < p.Len(); i++ {
			err := p.Cell(i, &c)
			fields, err2 := btree.Fields(c.Local, nil)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, fields[0].Int())
		}
	}
	return keys
}

// depths says that the depth of a table's tree was one number and is another.
func depths(name string, before, after int) func(*testing.T, *layout, *layout) {
	return func(t *testing.T, was, is *layout) {
		t.Helper()
		if b, a := was.depth(name), is.depth(name); b != before || a != after {
			t.Errorf("%s has %d levels and then %d, the case needs %d and %d", name, b, a, before, after)
		}
	}
}

func atLeastOne(what string, count func(t *testing.T, was, is *layout) int) func(*testing.T, *layout, *layout) {
	return func(t *testing.T, was, is *layout) {
		t.Helper()
		if n := count(t, was, is); n == 0 {
			t.Errorf("the case needs %s, there are none", what)
		}
	}
}
