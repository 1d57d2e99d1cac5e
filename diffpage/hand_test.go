package diffpage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"celldexport/diffpage/btree"
	"celldexport/diffpage/shadow"
)

// pages is a unit as pages that can be edited.
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

// readRow reads the first value on either side.
func readRow(_ Op, before, after Row) error {
	for _, r := range []Row{before, after} {
		if r != nil {
			if _, err := r.Cell(0); err != nil {
				return err
			}
		}
	}
	return nil
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
	if err := f.sh.Flush(); err != nil {
		t.Fatal(err)
	}
	end := f.sh.Commit()
	put32 := binary.BigEndian.PutUint32
	put16 := binary.BigEndian.PutUint16
	pointer := func(page []byte, header, i int) int { return int(binary.BigEndian.Uint16(page[header+2*i:])) }
	cases := []struct {
		name  string
		table string // that is blamed, empty when none is known
		page  uint32
		says  string
		edit  func(p *pages)
	}{
		{"a child is its parent", "t", inner, "referred to twice", func(p *pages) { put32(p.edit(f.base, inner)[8:], inner) }},
		{"two cells have one child", "t", leaf[0], "two parents", func(p *pages) {
			page := p.edit(f.base, inner)
			put32(page[8:], binary.BigEndian.Uint32(page[pointer(page, 12, 0):]))
		}},
		{"a child of another table", "t", uleaf[0], "in use by table \"u\"", func(p *pages) { put32(p.edit(f.base, inner)[8:], uleaf[0]) }},
		{"a child is page 0", "t", inner, "its child is page 0", func(p *pages) { put32(p.edit(f.base, inner)[8:], 0) }},
		{"a child is beyond the end", "t", inner, "its child is page", func(p *pages) { put32(p.edit(f.base, inner)[8:], end+1) }},
		{"an overflow page as child", "t", heads[0], "none of a b-tree", func(p *pages) { put32(p.edit(f.base, inner)[8:], heads[0]) }},
		{"a chain runs in a circle", "u", heads[len(heads)-1], "referred to twice", func(p *pages) { put32(p.edit(f.base, heads[len(heads)-1]), heads[len(heads)-1]) }},
		{"a chain ends early", "u", uleaf[len(uleaf)-1], "leads to page 0", func(p *pages) { put32(p.edit(f.base, heads[len(heads)-1]), 0) }},
		{"a chain enters a tree", "u", uleaf[len(uleaf)-1], "overflow chain", func(p *pages) { put32(p.edit(f.base, heads[len(heads)-1]), leaf[0]) }},
		{"a cell starts in the header", "t", leaf[0], "outside of the cell area", func(p *pages) { put16(p.edit(f.base, leaf[0])[8:], 4) }},
		{"a cell starts at the last byte", "t", leaf[0], "does not fit", func(p *pages) { put16(p.edit(f.base, leaf[0])[8:], 511) }},
		{"more cells than fit", "t", leaf[0], "400 cells", func(p *pages) { put16(p.edit(f.base, leaf[0])[3:], 400) }},
		{"a row of 2^63 bytes", "t", leaf[0], "does not fit", func(p *pages) {
			page := p.edit(f.base, leaf[0])
			copy(page[pointer(page, 8, 0):], bytes.Repeat([]byte{0xff}, 9))
		}},
		{"a row of 1 GiB", "t", leaf[0], "overflow chain of 2113665 pages", func(p *pages) {
			page := p.edit(f.base, leaf[0])
			copy(page[pointer(page, 8, 0):], []byte{0x84, 0x80, 0x80, 0x80, 0x00, 1, 0, 0})
		}},
		{"rowids fall", "t", leaf[0], "comes after", func(p *pages) {
			page := p.edit(f.base, leaf[0])
			a, b := pointer(page, 8, 0), pointer(page, 8, 1)
			put16(page[8:], uint16(b))
			put16(page[10:], uint16(a))
		}},
		{"cells overlap", "w", wleaf, "overlap", func(p *pages) {
			page := p.edit(f.base, wleaf)
			for i := range int(binary.BigEndian.Uint16(page[3:])) {
				put16(page[8+2*i:], 40)
			}
			page[40] = 102 // bytes of row, all on the page
		}},
		{"a table page in an index tree", "w", wleaf, "not one of its tree", func(p *pages) { p.edit(f.base, wleaf)[0] = byte(btree.LeafTable) }},
		{"a page type that is none", "t", leaf[0], "none of a b-tree", func(p *pages) { p.edit(f.base, leaf[0])[0] = 7 }},
		{"no database header", "", 1, "does not start", func(p *pages) { p.edit(f.base, 1)[3] = 'x' }},
		{"another page size in the header", "", 1, "page size of 2048", func(p *pages) { p.edit(f.base, 1)[16] = 8 }},
		{"too many reserved bytes", "", 1, "usable bytes", func(p *pages) { p.edit(f.base, 1)[20] = 100 }},
		{"an encoding that is none", "", 1, "encoding 9", func(p *pages) { p.edit(f.base, 1)[59] = 9 }},
		{"a page that was never sent", "", end + 2, "no image of it", func(p *pages) {
			p.commit = end + 3
			p.data[end+1] = make([]byte, 512)
			p.data[end+3] = make([]byte, 512)
		}},
		{"a page that was never sent and is referred to", "t", end + 2, "no image of it", func(p *pages) {
			p.commit = end + 2
			p.data[end+1] = make([]byte, 512)
			put32(p.edit(f.base, inner)[8:], end+2)
		}},
		{"a page beyond the end", "", end + 1, "ends at page", func(p *pages) { p.data[end+1] = make([]byte, 512) }},
		{"a page beyond the end of a shrink", "", end, "ends at page", func(p *pages) { p.commit = end - 1; p.data[end] = make([]byte, 512) }},
		{"a row longer than its chain", "u", uleaf[len(uleaf)-1], "leads to page 0", func(p *pages) {
			last := uleaf[len(uleaf)-1] // rows of two-byte lengths
			page := p.edit(f.base, last)
			at := pointer(page, 8, int(binary.BigEndian.Uint16(page[3:]))-1)
			long := (int(page[at])&0x7f<<7 | int(page[at+1])) + 508 // an overflow page more
			page[at], page[at+1] = byte(long>>7)|0x80, byte(long)&0x7f
		}},
		{"one rowid on two pages", "t", leaf[1], "on a page before it", func(p *pages) {
			a, b := p.edit(f.base, leaf[0]), p.edit(f.base, leaf[1])
			a[pointer(a, 8, 1)+5] ^= 1
			b[pointer(b, 8, 0)+1] = a[pointer(a, 8, 1)+1]
		}},
		{"a record that ends early", "w", wleaf, "larger than what is left", func(p *pages) {
			page := p.edit(f.base, wleaf)
			page[pointer(page, 8, 0)+3] = 0x83
		}},
		{"a shrink that cuts rows off", "t", leaf[len(leaf)-1], "no such page", func(p *pages) { p.commit = leaf[len(leaf)-1] - 1 }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			unit := &pages{t: t, size: 512, commit: end, data: map[uint32][]byte{}}
			c.edit(unit)
			before, commit := slices.Clone(f.base.owners), f.sh.Commit()
			images := unit.images()
			defer images.Close()
			var err error
			took := allocated(func() {
				var change *Change
				change, err = f.base.Diff(images, unit.commit)
				for _, name := range []string{"t", "w", "u"} {
					if err == nil {
						err = change.Rows(name, readRow)
					}
				}
			})
			var where *CorruptError
			if !errors.Is(err, ErrCorrupt) || !errors.As(err, &where) {
				t.Fatalf("error %v, want a corrupt page", err)
			}
			if where.Table != c.table || where.Page != c.page || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want table %q, page %d, %q", err, c.table, c.page, c.says)
			}
			if took > 2<<20 {
				t.Errorf("%d bytes were allocated for a database of %d", took, end*512)
			}
			if f.sh.Staged() != 0 || f.sh.Commit() != commit {
				t.Errorf("the refused unit moved the shadow: %d units staged, %d pages", f.sh.Staged(), f.sh.Commit())
			}
			if !slices.Equal(before, f.base.owners) {
				t.Error("the refused unit changed the owner map")
			}
		})
	}
	f.src.exec("UPDATE u SET b=b||'x'", "DELETE FROM t WHERE id%7=0", "UPDATE w SET x=1 WHERE k<40")
	f.step()
}

// TestOtherKindBelow: a table becomes WITHOUT ROWID at the same root, whose new
// page refers to a leaf of the old kind that did not change.
func TestOtherKindBelow(t *testing.T) {
	f := hostile(t)
	root := f.base.Schema().ByName("t").Root
	leaf := f.owned("t", roleTree, btree.LeafTable)[0]
	f.src.exec("PRAGMA writable_schema=ON", "UPDATE sqlite_schema SET sql='CREATE TABLE t(id PRIMARY KEY, b) WITHOUT ROWID' WHERE name='t'")
	unit := pagesOf(t, first(f.src.unit()), f.sh.Commit())
	page := unit.edit(f.base, root)
	clear(page)
	page[0] = byte(btree.InteriorIndex)
	binary.BigEndian.PutUint32(page[8:], leaf)
	images := unit.images()
	defer images.Close()
	_, err := f.base.Diff(images, unit.commit)
	var where *CorruptError
	if !errors.As(err, &where) || where.Page != leaf || where.Table != "t" || !errors.Is(err, ErrCorrupt) {
		t.Errorf("error %v", err)
	}
}

// TestLockPage is LTX-03: a database grows past byte 2^30, whose page nobody
// sends, reads or refers to.
func TestLockPage(t *testing.T) {
	const size = 65536
	src := newSource(t, "PRAGMA page_size=65536")
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, b)", insert("t", 50, "i, 'row '||i"))
	f := newFollower(t, src)
	small, _ := src.unit()
	lock := shadow.LockPage(size)
	if err := f.sh.Resize(size, lock-1); err != nil {
		t.Fatal(err)
	}
	for i := range small.Len() {
		page, err := small.Page(i, nil)
		if err := errors.Join(err, f.sh.WritePage(small.Pgno(i), page)); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if f.base, err = NewBase(f.sh); err != nil {
		t.Fatal(err)
	}
	grow := func(child uint32, sent ...uint32) (*Change, error) {
		unit := &pages{t: t, size: size, commit: lock + 1, data: map[uint32][]byte{}}
		leaf := bytes.Clone(unit.edit(f.base, 2))
		root := unit.data[2]
		clear(root)
		root[0] = byte(btree.InteriorTable)
		binary.BigEndian.PutUint32(root[8:], child)
		for _, pgno := range sent {
			unit.data[pgno] = leaf
		}
		changeRow(t, leaf)
		return f.base.Diff(unit.images(), unit.commit)
	}
	for name, c := range map[string]struct {
		child uint32
		sent  []uint32
	}{"sent": {lock + 1, []uint32{lock, lock + 1}}, "referred to": {lock, []uint32{lock + 1}}, "the page after it missing": {lock + 1, nil}} {
		var where *CorruptError
		if _, err := grow(c.child, c.sent...); !errors.As(err, &where) || where.Page == 0 {
			t.Errorf("%s: error %v", name, err)
		}
	}
	change, err := grow(lock+1, lock+1)
	if err != nil {
		t.Fatal(err)
	}
	if got := count(rows(t, change, "t")); got != "0I 1U 0D" {
		t.Errorf("%s, want one update", got)
	}
	if err := errors.Join(change.Accept(), f.sh.Flush()); err != nil {
		t.Fatal(err)
	}
	if f.base, err = NewBase(f.sh); err != nil {
		t.Fatal(err)
	}
	if o := f.base.owners.of(lock + 1); o.role() != roleTree || f.base.owners.of(lock) != 0 {
		t.Errorf("owners %x and %x", o, f.base.owners.of(lock))
	}
	beyond := &pages{t: t, size: size, commit: lock + 1, data: map[uint32][]byte{lock: make([]byte, size)}}
	if _, err := f.base.Diff(beyond.images(), beyond.commit); !errors.Is(err, ErrCorrupt) {
		t.Errorf("the lock page of a database that has one: error %v", err)
	}
}
