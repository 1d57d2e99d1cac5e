package diffpage

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"celldexport/diffpage/schema"
	"celldexport/diffpage/shadow"
)

// memory is a file in memory.
type memory struct{ data []byte }

func (m *memory) ReadAt(b []byte, off int64) (int, error) {
	if off >= int64(len(m.data)) {
		return 0, io.EOF
	}
	n := copy(b, m.data[off:])
	if n < len(b) {
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

func (m *memory) WriteAt(b []byte, off int64) (int, error) { return copy(m.data[off:], b), nil }
func (m *memory) Sync() error                              { return nil }
func (m *memory) Close() error                             { return nil }
func (m *memory) Truncate(n int64) error {
	m.data = append(m.data, make([]byte, max(0, n-int64(len(m.data))))...)[:n]
	return nil
}

// copyOf is a base over a copy of the pages.
func copyOf(t testing.TB, f *follower) *Base {
	t.Helper()
	m := &memory{data: bytes.Clone(f.src.last)}
	sh, err := shadow.New(m, "copy", int64(len(m.data)))
	if err != nil {
		t.Fatal(err)
	}
	b := *f.base
	b.shadow, b.owners, b.slots = sh, slices.Clone(f.base.owners), f.base.slots.clone()
	return &b
}

// checkUnit gives a unit to a base. It must be refused as corrupt, or lead to
// a state that a map made from scratch agrees with.
func checkUnit(t testing.TB, b *Base, unit *pages) (refused bool) {
	t.Helper()
	images := unit.images()
	c, err := b.Diff(images, unit.commit)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("diff: %v", err)
		}
		return true
	}
	nothing := func(_ Op, before, after Row) error {
		for _, r := range []Row{before, after} {
			if r != nil {
				if _, err := r.Cell(0); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, s := range []*schema.Schema{c.Before(), c.After()} {
		for _, tab := range s.Tables {
			if err := c.Rows(tab.Name, nothing); err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnreadable) {
				t.Fatalf("rows of %s: %v", tab.Name, err)
			}
		}
	}
	if err := c.Accept(); err != nil {
		t.Fatal(err)
	}
	fresh, err := NewBase(b.shadow, WithShared(b.shared))
	if errors.Is(err, errOverlap) {
		return false // with cells that the unit did not change
	}
	if err != nil {
		t.Fatalf("the state after a unit that was taken: %v", err)
	}
	for pgno := range fresh.owners {
		w, g := fresh.owners[pgno], b.owners[pgno]
		if w.role() != g.role() || w.parent() != g.parent() || w.role() != roleNone && fresh.slots.names[w.slot()] != b.slots.names[g.slot()] {
			t.Errorf("page %d: role %d under %d, made from scratch %d under %d", pgno, g.role(), g.parent(), w.role(), w.parent())
		}
	}
	return false
}

// FuzzUnit breaks a good unit: each edit is a page, an offset and a byte.
func FuzzUnit(f *testing.F) {
	follow := hostile(f)
	follow.src.exec("UPDATE u SET b=b||'x' WHERE id%9=0", "DELETE FROM t WHERE id%7=0", "UPDATE w SET x=1 WHERE k<40", "CREATE TABLE later(a)")
	was := bytes.Clone(follow.src.last)
	images, commit := follow.src.unit()
	good := pagesOf(f, images, commit)
	follow.src.last = was
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0, 5, 0, 3, 200, 9, 1, 4, 4})
	f.Fuzz(func(t *testing.T, edits []byte) {
		b := copyOf(t, follow)
		unit := &pages{t: t, size: good.size, commit: commit, data: make(map[uint32][]byte)}
		for pgno, data := range good.data {
			unit.data[pgno] = bytes.Clone(data)
		}
		for ; len(edits) >= 4; edits = edits[4:] {
			pgno := uint32(edits[0])<<8 | uint32(edits[1])
			at := int(edits[2]) * 2
			if pgno == 0 || pgno > min(commit, b.shadow.Commit()) {
				continue
			}
			unit.edit(b, pgno)[at+int(edits[3]&1)] ^= edits[3] | 1
		}
		checkUnit(t, b, unit)
	})
}

// TestBrokenUnits is the same with random edits, aimed at the bytes that
// matter: headers, cell pointers, the start of cells and of overflow pages.
func TestBrokenUnits(t *testing.T) {
	f := hostile(t)
	seed := rand.Uint64N(1 << 32)
	rnd := rand.New(rand.NewPCG(seed, 2))
	refused, taken := 0, 0
	for range 1500 {
		b := copyOf(t, f)
		unit := &pages{t: t, size: 512, commit: b.shadow.Commit(), data: make(map[uint32][]byte)}
		for range 1 + rnd.IntN(3) {
			pgno := 1 + rnd.Uint32N(unit.commit)
			page := unit.edit(b, pgno)
			at := rnd.IntN(24)
			if rnd.IntN(3) == 0 {
				at = rnd.IntN(512)
			}
			switch rnd.IntN(4) {
			case 0:
				page[at] = byte(rnd.Uint32())
			case 1:
				page[at]++
			case 2: // a page in the place of another
				other, err := b.shadow.Page(1+rnd.Uint32N(unit.commit), nil)
				if err != nil {
					t.Fatal(err)
				}
				copy(page, other)
			case 3: // a number of a page that exists
				if at < 500 {
					page[at], page[at+1] = byte(rnd.Uint32N(unit.commit)>>8), byte(rnd.Uint32())
				}
			}
		}
		if checkUnit(t, b, unit) {
			refused++
		} else {
			taken++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if refused == 0 || taken == 0 {
		t.Errorf("%d units refused, %d taken", refused, taken)
	}
}

// TestScanOutOfOrder is image 56 of SQLite's fuzzdata3: leaves whose rowids
// are in order each, but not one after the other. A whole table is read by
// scan, which has to notice by itself.
func TestScanOutOfOrder(t *testing.T) {
	src := newSource(t, "PRAGMA page_size=512")
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, b)", insert("t", 100, "i, 'row '||i||hex(zeroblob(20))"))
	images, commit := src.unit()
	unit := pagesOf(t, images, commit)
	root := unit.data[2]
	first, second := pointerTo(root, 0), pointerTo(root, 1)
	child := bytes.Clone(root[first : first+4])
	copy(root[first:], root[second:second+4])
	copy(root[second:], child)
	c, err := f.base.Diff(unit.images(), commit)
	if err == nil {
		err = c.Rows("t", readRow)
	}
	var where *CorruptError
	if !errors.As(err, &where) || where.Table != "t" || where.Page < 3 {
		t.Errorf("error %v, want a page of table t", err)
	}
}

// pointerTo is where a cell of an interior page begins.
func pointerTo(page []byte, cell int) int { return int(page[12+2*cell])<<8 | int(page[13+2*cell]) }
