package shadow

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

func page(size uint32, fill byte) []byte { return bytes.Repeat([]byte{fill}, int(size)) }

// firstPage is a page that says it starts a database.
func firstPage(size uint32, fill byte) []byte {
	p := page(size, fill)
	copy(p, "SQLite format 3\x00")
	p[16], p[17] = byte(size>>8), byte(size)
	if size == 65536 {
		p[17] = 1
	}
	return p
}

func unit(t *testing.T, size uint32, pages map[uint32]byte) *Images {
	t.Helper()
	m := NewImages(size, 1<<20, t.TempDir())
	for pgno, fill := range pages {
		data := page(size, fill)
		if pgno == 1 {
			data = firstPage(size, fill)
		}
		if err := m.Add(pgno, data); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// want checks the last byte of every page, and that there are no more.
func want(t *testing.T, s *Shadow, fills ...byte) {
	t.Helper()
	if int(s.Commit()) != len(fills) {
		t.Fatalf("%d pages, want %d", s.Commit(), len(fills))
	}
	var buf []byte
	for i, fill := range fills {
		data, err := s.Page(uint32(i+1), buf)
		if err != nil {
			t.Fatal(err)
		}
		if uint32(len(data)) != s.PageSize() || data[len(data)-1] != fill {
			t.Errorf("page %d: %d bytes, last %d, want %d", i+1, len(data), data[len(data)-1], fill)
		}
	}
	for _, pgno := range []uint32{0, uint32(len(fills) + 1)} {
		if _, err := s.Page(pgno, nil); !errors.Is(err, ErrMissing) {
			t.Errorf("page %d: error %v", pgno, err)
		}
	}
}

func TestStageAndFlush(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	want(t, s)
	s.Stage(unit(t, 512, map[uint32]byte{1: 1, 2: 2, 3: 3}), 3)
	want(t, s, 1, 2, 3)
	if st, err := os.Stat(path); err != nil || st.Size() != 0 {
		t.Fatalf("staging wrote to the file: %v, %v", st.Size(), err)
	}
	s.Stage(unit(t, 512, map[uint32]byte{2: 20}), 2)
	want(t, s, 1, 20)
	s.Stage(unit(t, 512, map[uint32]byte{3: 30, 4: 40}), 4)
	want(t, s, 1, 20, 30, 40)
	if s.Staged() != 3 {
		t.Errorf("%d staged", s.Staged())
	}
	for _, err := range []error{s.Resize(512, 9), s.WritePage(1, firstPage(512, 0))} {
		if err == nil {
			t.Error("a write below staged units went through")
		}
	}
	if err := errors.Join(s.Flush(), s.Flush(), s.Sync()); err != nil {
		t.Fatal(err)
	}
	want(t, s, 1, 20, 30, 40)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want(t, s, 1, 20, 30, 40)
	s.Stage(unit(t, 1024, map[uint32]byte{1: 7, 2: 8}), 2)
	want(t, s, 7, 8)
	s.Stage(unit(t, 1024, nil), 0)
	want(t, s)
	s.Stage(unit(t, 512, map[uint32]byte{1: 9}), 1)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	want(t, s, 9)
}

// TestHole: a page that a shrink forgot and a later unit left out is missing,
// not the old one.
func TestHole(t *testing.T) {
	s, err := Create(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Stage(unit(t, 512, map[uint32]byte{1: 1, 2: 2, 3: 3}), 3)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	s.Stage(unit(t, 512, map[uint32]byte{1: 1}), 1)
	s.Stage(unit(t, 512, map[uint32]byte{3: 3}), 3)
	if _, err := s.Page(2, nil); !errors.Is(err, ErrMissing) {
		t.Errorf("staged: error %v", err)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	want(t, s, 1, 0, 3)
	s.Stage(unit(t, 1024, map[uint32]byte{1: 1}), 2)
	if _, err := s.Page(2, nil); !errors.Is(err, ErrMissing) {
		t.Errorf("another page size: error %v", err)
	}
}

func TestRestore(t *testing.T) {
	for _, size := range []uint32{512, 4096, 65536} {
		path := filepath.Join(t.TempDir(), "s")
		s, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(s.Resize(size, 3), s.WritePage(3, page(size, 3)), s.WritePage(1, firstPage(size, 1)), s.WritePage(2, page(size, 2)), s.Resize(size, 2))
		if err != nil {
			t.Fatal(err)
		}
		want(t, s, 1, 2)
		for _, err := range []error{s.WritePage(3, page(size, 3)), s.WritePage(0, page(size, 3))} {
			if !errors.Is(err, ErrMissing) {
				t.Errorf("error %v", err)
			}
		}
		for _, err := range []error{s.WritePage(2, page(size/2, 3)), s.Resize(size-1, 1), s.Resize(0, 4)} {
			if !errors.Is(err, ErrPageSize) {
				t.Errorf("error %v", err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(path); err != nil {
			t.Fatal(err)
		}
		want(t, s, 1, 2)
		if err := errors.Join(s.Resize(0, 0), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLockPage is the hole at 2^30, in a sparse file.
func TestLockPage(t *testing.T) {
	for _, size := range []uint32{512, 4096, 65536} {
		lock := LockPage(size)
		if int64(lock-1)*int64(size) != 1<<30 {
			t.Fatalf("lock page %d of %d-byte pages", lock, size)
		}
		s, err := Create(filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Resize(size, lock+1), s.WritePage(lock+1, page(size, 7)), s.WritePage(lock-1, page(size, 6))); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Page(lock, nil); !errors.Is(err, ErrMissing) {
			t.Errorf("lock page read: error %v", err)
		}
		if err := s.WritePage(lock, page(size, 1)); !errors.Is(err, ErrMissing) {
			t.Errorf("lock page written: error %v", err)
		}
		if data, err := s.Page(lock+1, nil); err != nil || data[0] != 7 {
			t.Errorf("page after the lock page: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenForeign(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string][]byte{"text": []byte("no database, but longer than a header"), "short": []byte("SQLite"), "zero": make([]byte, 2048),
		"torn": firstPage(512, 1)[:500], "odd": append([]byte("SQLite format 3\x00\x01\x07"), make([]byte, 500)...)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(path); err == nil {
			t.Errorf("%s opens as %d pages", name, s.Commit())
		} else if !errors.Is(err, ErrTorn) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// failing fails every call of one kind after some that succeed.
type failing struct {
	*os.File
	writes int
}

var errDisk = errors.New("disk")

func (f *failing) WriteAt(b []byte, off int64) (int, error) {
	if f.writes--; f.writes < 0 {
		return 0, errDisk
	}
	return f.File.WriteAt(b, off)
}

// TestFlushAgain: a flush that fails keeps everything staged, and the next one
// completes it.
func TestFlushAgain(t *testing.T) {
	for n := range 5 {
		file, err := os.Create(filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		disk := &failing{file, n}
		s, err := New(disk, "s", 0)
		if err != nil {
			t.Fatal(err)
		}
		s.Stage(unit(t, 512, map[uint32]byte{1: 1, 2: 2}), 2)
		s.Stage(unit(t, 512, map[uint32]byte{1: 10, 2: 20, 3: 30}), 3)
		if err := s.Flush(); !errors.Is(err, errDisk) {
			t.Fatalf("%d writes: error %v", n, err)
		}
		want(t, s, 10, 20, 30)
		disk.writes = 100
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		want(t, s, 10, 20, 30)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestImages compares a set with a map, whatever the order, the budget and
// the number of images of one page.
func TestImages(t *testing.T) {
	for _, budget := range []int64{0, 512, 512 * 7, 1 << 30} {
		t.Run(fmt.Sprint(budget), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(budget), 1))
			dir := t.TempDir()
			m := NewImages(512, budget, dir)
			ref := make(map[uint32]byte)
			for range 300 {
				pgno, fill := 1+rnd.Uint32N(90), byte(rnd.Uint32())
				ref[pgno] = fill
				if err := m.Add(pgno, page(512, fill)); err != nil {
					t.Fatal(err)
				}
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("files with names: %v, %v", left, err)
			}
			check := func() {
				t.Helper()
				if m.Len() != len(ref) {
					t.Fatalf("%d pages, want %d", m.Len(), len(ref))
				}
				for i := range m.Len() {
					pgno := m.Pgno(i)
					a, err := m.Page(i, nil)
					if err != nil {
						t.Fatal(err)
					}
					b, ok, err := m.Find(pgno, nil)
					if err != nil || !ok || !m.Has(pgno) || a[511] != ref[pgno] || !bytes.Equal(a, b) {
						t.Errorf("page %d: %v %v", pgno, ok, err)
					}
					if i > 0 && m.Pgno(i-1) >= pgno || m.After(pgno) != i+1 || m.After(pgno-1) != i {
						t.Errorf("page %d is out of order", pgno)
					}
				}
			}
			check()
			for pgno := range ref {
				if pgno%3 == 0 {
					delete(ref, pgno)
				}
			}
			m.Keep(func(pgno uint32) bool { return pgno%3 != 0 })
			check()
			if _, ok, err := m.Find(3, nil); ok || err != nil || m.Has(3) {
				t.Error("a dropped page is found")
			}
			if err := errors.Join(m.Close(), m.Close()); err != nil || m.Len() != 0 {
				t.Error(err)
			}
		})
	}
	m := NewImages(512, 1<<20, "")
	if err := m.Add(1, page(511, 1)); !errors.Is(err, ErrPageSize) {
		t.Errorf("error %v", err)
	}
	if err := m.Add(0, page(512, 1)); err == nil {
		t.Error("page 0 was taken")
	}
	if err := NewImages(512, 0, "/nowhere").Add(1, page(512, 1)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// TestReset uses a set again, with pages read into its own memory.
func TestReset(t *testing.T) {
	m := new(Images)
	for round, c := range []struct {
		size   uint32
		n, fit int
	}{{512, 4, 4}, {1024, 3, 2}, {512, 300, 300}, {4096, 1, 5}} {
		m.Reset(c.size, int64(c.fit)*int64(c.size), c.n)
		if m.Len() != 0 || m.PageSize() != c.size {
			t.Fatalf("round %d: %d pages of %d bytes", round, m.Len(), m.PageSize())
		}
		for i := range c.fit {
			slot := m.Slot()
			for k := range slot {
				slot[k] = byte(i + round)
			}
			if err := m.Add(uint32(i+1), slot); err != nil {
				t.Fatal(err)
			}
		}
		if m.Slot() != nil {
			t.Errorf("round %d: room beyond the budget", round)
		}
		for i := range c.fit {
			if data, ok, err := m.Find(uint32(i+1), nil); err != nil || !ok || len(data) != int(c.size) || data[0] != byte(i+round) || data[c.size-1] != byte(i+round) {
				t.Errorf("round %d, page %d: %v, %v", round, i+1, ok, err)
			}
		}
	}
	if n := testing.AllocsPerRun(10, func() { m.Reset(512, 1<<20, 8) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestPages reads runs of pages across what is in the file, what is staged
// over it, the lock page and both ends.
func TestPages(t *testing.T) {
	const size = 512
	s, err := Create(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Pages(1, make([]byte, size)); !errors.Is(err, ErrMissing) {
		t.Errorf("page 1 of nothing: error %v", err)
	}
	if err := s.Resize(size, 12); err != nil {
		t.Fatal(err)
	}
	for pgno := uint32(1); pgno <= 12; pgno++ {
		if err := s.WritePage(pgno, page(size, byte(pgno))); err != nil {
			t.Fatal(err)
		}
	}
	check := func(pgno uint32, want ...byte) {
		t.Helper()
		buf := make([]byte, len(want)*size)
		if err := s.Pages(pgno, buf); err != nil {
			t.Fatal(err)
		}
		for i, fill := range want {
			if !bytes.Equal(buf[i*size:(i+1)*size], page(size, fill)) {
				t.Errorf("page %d begins with %d, want %d", pgno+uint32(i), buf[i*size], fill)
			}
		}
	}
	check(1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	check(12, 12)
	for _, staged := range [][]uint32{{3, 4, 13, 14}, {4, 9}} {
		images := NewImages(size, 2*size, t.TempDir())
		for _, pgno := range staged {
			if err := images.Add(pgno, page(size, byte(100+10*len(staged)+int(pgno)))); err != nil {
				t.Fatal(err)
			}
		}
		s.Stage(images, 14)
	}
	check(2, 2, 143, 124, 5, 6, 7, 8, 129, 10, 11, 12, 153, 154)
	for _, at := range []uint32{0, 14, 15} {
		if err := s.Pages(at, make([]byte, 2*size)); !errors.Is(err, ErrMissing) {
			t.Errorf("two pages from %d: error %v", at, err)
		}
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	check(2, 2, 143, 124, 5, 6, 7, 8, 129, 10, 11, 12, 153, 154)
}

// TestPoolKeepsSetsApart has sets of all sizes come and go: a page of an open
// set is never given to another.
func TestPoolKeepsSetsApart(t *testing.T) {
	var pool Pool
	rnd := rand.New(rand.NewPCG(3, 3))
	type held struct {
		images *Images
		fill   byte
	}
	var open []held
	for round := range 400 {
		size := uint32(512) << rnd.IntN(3)
		m := pool.NewImages(size, int64(rnd.IntN(20_000)), t.TempDir())
		fill := byte(round)
		for pgno := range uint32(1 + rnd.IntN(40)) {
			data := page(size, fill)
			if slot := m.Slot(); slot != nil && rnd.IntN(2) == 0 {
				copy(slot, data)
				data = slot
			}
			if err := m.Add(pgno+1, data); err != nil {
				t.Fatal(err)
			}
		}
		open = append(open, held{m, fill})
		for _, h := range open {
			for i := range h.images.Len() {
				data, err := h.images.Page(i, nil)
				if err != nil || !bytes.Equal(data, page(h.images.PageSize(), h.fill)) {
					t.Fatalf("round %d: page %d is not what was added, %v", round, i+1, err)
				}
			}
		}
		if len(open) > 5 {
			i := rnd.IntN(len(open))
			if err := errors.Join(open[i].images.Close(), open[i].images.Close()); err != nil {
				t.Fatal(err)
			}
			open = append(open[:i], open[i+1:]...)
		}
	}
}
