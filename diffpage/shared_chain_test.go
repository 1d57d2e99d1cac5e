package diffpage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"celldexport/diffpage/btree"
)

// TestSharedChain: 300 cells refer to one overflow chain, each with a right to
// a chain of that length. Were it read for every one of them, a small file could
// hold any number of bytes.
func TestSharedChain(t *testing.T) {
	src := newSource(t, "PRAGMA page_size=512")
	f := newFollower(t, src)
	src.exec("CREATE TABLE s(id INTEGER PRIMARY KEY, b)", insert("s", 300, "i, zeroblob(8000)"))
	f.step()
	if err := f.sh.Flush(); err != nil {
		t.Fatal(err)
	}
	unit := &pages{t: t, size: 512, commit: f.sh.Commit(), data: map[uint32][]byte{}}
	var p btree.Page
	var c btree.Cell
	cells, first := 0, uint32(0)
	for _, leaf := range f.owned("s", roleTree, btree.LeafTable) {
		page := unit.edit(f.base, leaf)
		if err := p.Parse(leaf, page, 512); err != nil {
			t.Fatal(err)
		}
		for i := range p.Len() {
			if err := p.Cell(i, &c); err != nil {
				t.Fatal(err)
			}
			if first == 0 {
				first = c.Overflow
			}
			at := bytes.Index(page, c.Raw) + len(c.Raw) - 4
			binary.BigEndian.PutUint32(page[at:], first)
			cells++
		}
	}
	if cells != 300 {
		t.Fatalf("%d cells", cells)
	}
	images := unit.images()
	defer images.Close()
	before := slices.Clone(f.base.owners)
	var err error
	took := allocated(func() { _, err = f.base.Diff(images, unit.commit) })
	var where *CorruptError
	if !errors.As(err, &where) || !errors.Is(err, ErrCorrupt) || where.Table != "s" || where.Page != first || !strings.Contains(err.Error(), "referred to twice") {
		t.Errorf("error %v, want page %d of s", err, first)
	}
	// 2.4 MB of rows, of which none is put together.
	if took > 1<<20 || !slices.Equal(before, f.base.owners) || f.sh.Staged() != 0 {
		t.Errorf("%d bytes allocated, %d units staged", took, f.sh.Staged())
	}
	src.exec("DELETE FROM s WHERE id%2=0", "UPDATE s SET b=1 WHERE id=7")
	if got := count(f.step()["s"]); got != "0I 1U 150D" {
		t.Errorf("after the refused unit: %s", got)
	}
}
