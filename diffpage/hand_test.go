package diffpage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"celldexport/diffpage/btree"
	"celldexport/diffpage/shadow"
)

// pageSet is a unit as pages that can be edited.
type pages struct {
	t      testing.TB
	size   uint32
	commit uint32
	data   map[uint32][]byte
}

func pagesOf(t testing.TB, images *shadow.Images, commit uint32) *pages {
	p := &pages{t: t, size: images.PageSize(), commit: commit, data: make(map[uint32][]byte)}
	for i := range images.Len() {
		page, err := images.Page(i, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.data[images.Pgno(i)] = bytes.Clone(page)
	}
	return p
}

func (p *pages) images() *shadow.Images {
	images := shadow.NewImages(p.size, 1<<30, "")
	for pgno, data := range p.data {
		if err := images.Add(pgno, data); err != nil {
			p.t.Fatal(err)
		}
	}
	return images
}

// edit is a copy of a page of the base that is part of the unit.
func (p *pages) edit(b *Base, pgno uint32) []byte {
	if p.data[pgno] == nil {
		page, err := b.shadow.Page(pgno, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		p.data[pgno] = bytes.Clone(page)
	}
	return p.data[pgno]
}

// deepTable makes a table of four levels, one row on a leaf.
func deepTable(t *testing.T) *follower {
	src := newSource(t, "PRAGMA page_size=512")
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, b)", insert("t", 4500, "i, 'row '||i||hex(zeroblob(180))"))
	f.step()
	return f
}

// levels is the way from a row page up to the root.
func (f *follower) levels(pgno uint32) (path []uint32) {
	for ; pgno != 0; pgno = f.base.owners.of(pgno).parent() {
		path = append(path, pgno)
	}
	return path
}

// firstLeaf is the first leaf of the table on a way of four pages that does
// not pass a page to avoid.
func (f *follower) firstLeaf(name string, avoid uint32) []uint32 {
	for pgno := range f.base.owners {
		o := f.base.owners[pgno]
		if o.role() != roleTree || f.base.slots.names[o.slot()] != name {
			continue
		}
		if path := f.levels(uint32(pgno)); len(path) == 4 && path[2] != avoid {
			return path
		}
	}
	f.t.Fatal("no leaf on the fourth level")
	return nil
}

// changeRow alters the last byte of the first row of a leaf.
func changeRow(t *testing.T, page []byte) {
	var p btree.Page
	var c btree.Cell
	if err := errors.Join(p.Parse(2, page, len(page)), p.Cell(0, &c)); err != nil {
		t.Fatal(err)
	}
	c.Local[len(c.Local)-1] = '!'
}

// TestRootTakesGrandchildren is a balance that SQLite makes when the root has
// one child left: the root takes over its content. Here the child is never
// written, as for pages that are freed in bulk, and a leaf two levels below
// changes as well: it comes along with its parent, not with the child.
func TestRootTakesGrandchildren(t *testing.T) {
	f := deepTable(t)
	path := f.firstLeaf("t", 0) // leaf, b, a, root
	unit := &pages{t: t, size: 512, commit: f.sh.Commit(), data: map[uint32][]byte{}}
	copy(unit.edit(f.base, path[3]), unit.edit(f.base, path[2]))
	delete(unit.data, path[2])
	changeRow(t, unit.edit(f.base, path[0]))
	below := 0
	for pgno, o := range f.base.owners {
		if way := f.levels(uint32(pgno)); o.role() == roleTree && len(way) == 4 && way[2] == path[2] {
			below++
		}
	}
	c, err := f.base.Diff(unit.images(), unit.commit)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := count(rows(t, c, "t")), fmt.Sprintf("0I 1U %dD", 4500-below); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := c.Accept(); err != nil {
		t.Fatal(err)
	}
	f.dumps = nil
	f.check()
}

// TestRootMovesUp is a table whose new root has the old one as its child.
func TestRootMovesUp(t *testing.T) {
	f := deepTable(t)
	path := f.firstLeaf("t", 0)
	f.src.exec("PRAGMA writable_schema=ON", fmt.Sprintf("UPDATE sqlite_schema SET rootpage=%d WHERE name='t'", f.sh.Commit()+1))
	unit := pagesOf(t, first(f.src.unit()), f.sh.Commit()+1)
	root := make([]byte, 512)
	root[0] = byte(btree.InteriorTable)
	binary.BigEndian.PutUint32(root[8:], path[3])
	unit.data[unit.commit] = root
	changeRow(t, unit.edit(f.base, path[0]))
	c, err := f.base.Diff(unit.images(), unit.commit)
	if err != nil {
		t.Fatal(err)
	}
	if got := count(rows(t, c, "t")); got != "0I 1U 0D" {
		t.Errorf("%s, want one update", got)
	}
	if err := c.Accept(); err != nil {
		t.Fatal(err)
	}
	f.dumps = nil
	f.check()
}

func first[A, B any](a A, _ B) A { return a }

// hostile is a database with everything a broken page can be put into.
func hostile(t testing.TB) *follower {
	src := newSource(t, "PRAGMA page_size=512")
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, b)", "CREATE TABLE w(k INT PRIMARY KEY, x) WITHOUT ROWID", "CREATE TABLE u(id INTEGER PRIMARY KEY, b)",
		insert("t", 300, "i, 'row '||i||hex(zeroblob(40))"), insert("w", 300, "i, hex(zeroblob(40))"), insert("u", 60, "i, hex(zeroblob(i*30))"))
	f.step()
	return f
}

// owned lists the pages of a table in a role, of tree pages those of a type.
func (f *follower) owned(name string, r role, typ btree.PageType) (list []uint32) {
	var p btree.Page
	for pgno, o := range f.base.owners {
		if o.role() != r || f.base.slots.names[o.slot()] != name {
			continue
		}
		if r == roleTree {
			v := f.base.view()
			var buf []byte
			if err := v.parse(uint32(pgno), &p, &buf); err != nil {
				f.t.Fatal(err)
			}
			if p.Type != typ {
				continue
			}
		}
		list = append(list, uint32(pgno))
	}
	return list
}

// TestHostile gives broken units to a good base: each must be refused with
// the page and table at fault, and the base must go on with the next good one
// as if nothing had been there.
func TestHostile(t *testing.T) {
	f := hostile(t)
	leaf := f.owned("t", roleTree, btree.LeafTable)
	inner := f.owned("t", roleTree, btree.InteriorTable)[0]
	wleaf := f.owned("w", roleTree, btree.LeafIndex)[0]
	uleaf := f.owned("u", roleTree, btree.LeafTable)
	heads := f.owned("u", roleHead, 0)
	end := f.sh.Commit()
	put32 := binary.BigEndian.PutUint32
	put16 := binary.BigEndian.PutUint16
	pointer := func(page []byte, header, i int) int { return int(binary.BigEndian.Uint16(page[header+2*i:])) }
	cases := []struct {
		name string
		edit func(p *pages)
	}{
		{"a child is its parent", func(p *pages) { put32(p.edit(f.base, inner)[8:], inner) }},
		{"two cells have one child", func(p *pages) {
			page := p.edit(f.base, inner)
			put32(page[8:], binary.BigEndian.Uint32(page[pointer(page, 12, 0):]))
		}},
		{"a child of another table", func(p *pages) { put32(p.edit(f.base, inner)[8:], uleaf[0]) }},
		{"a child is page 0", func(p *pages) { put32(p.edit(f.base, inner)[8:], 0) }},
		{"a child is beyond the end", func(p *pages) { put32(p.edit(f.base, inner)[8:], end+1) }},
		{"an overflow page as child", func(p *pages) { put32(p.edit(f.base, inner)[8:], heads[0]) }},
		{"a chain runs in a circle", func(p *pages) { put32(p.edit(f.base, heads[len(heads)-1]), heads[len(heads)-1]) }},
		{"a chain ends early", func(p *pages) { put32(p.edit(f.base, heads[len(heads)-1]), 0) }},
		{"a chain enters a tree", func(p *pages) { put32(p.edit(f.base, heads[len(heads)-1]), leaf[0]) }},
		{"a cell starts in the header", func(p *pages) { put16(p.edit(f.base, leaf[0])[8:], 4) }},
		{"a cell starts at the last byte", func(p *pages) { put16(p.edit(f.base, leaf[0])[8:], 511) }},
		{"more cells than fit", func(p *pages) { put16(p.edit(f.base, leaf[0])[3:], 400) }},
		{"a row of 2^63 bytes", func(p *pages) {
			page := p.edit(f.base, leaf[0])
			copy(page[pointer(page, 8, 0):], bytes.Repeat([]byte{0xff}, 9))
		}},
		{"a row of 1 GiB", func(p *pages) {
			page := p.edit(f.base, leaf[0])
			copy(page[pointer(page, 8, 0):], []byte{0x84, 0x80, 0x80, 0x80, 0x00, 1, 0, 0})
		}},
		{"rowids fall", func(p *pages) {
			page := p.edit(f.base, leaf[0])
			a, b := pointer(page, 8, 0), pointer(page, 8, 1)
			put16(page[8:], uint16(b))
			put16(page[10:], uint16(a))
		}},
		{"cells overlap", func(p *pages) {
			page := p.edit(f.base, wleaf)
			for i := range int(binary.BigEndian.Uint16(page[3:])) {
				put16(page[8+2*i:], 40)
			}
			page[40] = 102 // bytes of row, all on the page
		}},
		{"a table page in an index tree", func(p *pages) { p.edit(f.base, wleaf)[0] = byte(btree.LeafTable) }},
		{"a page type that is none", func(p *pages) { p.edit(f.base, leaf[0])[0] = 7 }},
		{"no database header", func(p *pages) { p.edit(f.base, 1)[3] = 'x' }},
		{"another page size in the header", func(p *pages) { p.edit(f.base, 1)[16] = 8 }},
		{"too many reserved bytes", func(p *pages) { p.edit(f.base, 1)[20] = 100 }},
		{"an encoding that is none", func(p *pages) { p.edit(f.base, 1)[59] = 9 }},
		{"a page that was never sent", func(p *pages) {
			p.commit = end + 3
			p.data[end+1] = make([]byte, 512)
			p.data[end+3] = make([]byte, 512)
		}},
		{"a page beyond the end", func(p *pages) { p.data[end+1] = make([]byte, 512) }},
		{"a page beyond the end of a shrink", func(p *pages) { p.commit = end - 1; p.data[end] = make([]byte, 512) }},
		{"a shrink that cuts rows off", func(p *pages) { p.commit = leaf[len(leaf)-1] - 1 }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			unit := &pages{t: t, size: 512, commit: end, data: map[uint32][]byte{}}
			c.edit(unit)
			before := slices.Clone(f.base.owners)
			images := unit.images()
			defer images.Close()
			change, err := f.base.Diff(images, unit.commit)
			if err == nil {
				err = change.Rows("w", func(Op, Row, Row) error { return nil })
			}
			var where *CorruptError
			if !errors.Is(err, ErrCorrupt) || !errors.As(err, &where) || where.Page == 0 || where.Page > end+3 {
				t.Fatalf("error %v, want a corrupt page", err)
			}
			t.Log(err)
			if !slices.Equal(before, f.base.owners) {
				t.Error("the refused unit changed the owner map")
			}
		})
	}
	f.src.exec("UPDATE u SET b=b||'x'", "DELETE FROM t WHERE id%7=0", "UPDATE w SET x=1 WHERE k<40")
	f.step()
}
