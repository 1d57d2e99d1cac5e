package shadow

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"
)

// ErrPageSize is wrapped by errors about a page whose length is not the page
// size, or a page size SQLite does not have.
var ErrPageSize = errors.New("wrong page size")

// Images holds the page images of one unit. Up to a budget they are kept in
// memory, the rest goes to a file that has no name any more, so it cannot be
// left behind. An Images is filled first and read afterwards; it is not safe
// for concurrent use.
type Images struct {
	pageSize uint32
	budget   int64
	tempDir  string

	runs    []run
	n       int // pages in the runs
	sorted  bool
	hint    int      // the run that was asked for last
	pages   [][]byte // the first pages added, in the order of adding
	slab    []byte   // room for the next ones, in pieces that double
	arena   []byte   // the largest piece, which Reset gives out again
	spill   *os.File
	spilled int
	pool    *Pool // where the memory goes in the end
}

// Pool gives new sets the memory of those that were closed. The zero value is
// ready; it is safe for concurrent use.
type Pool struct {
	memory sync.Pool // of *memory
}

// mostPooled is how many pages a set may have whose memory a pool takes.
const mostPooled = 1 << 13

// memory is that of a set.
type memory struct {
	arena []byte
	runs  []run
	pages [][]byte
}

// NewImages is the function of that name, with memory of the pool, to which
// it returns when the set is closed: no page that was read of it may be used
// afterwards.
func (p *Pool) NewImages(pageSize uint32, budget int64, tempDir string) *Images {
	m := NewImages(pageSize, budget, tempDir)
	m.pool = p
	if old, ok := p.memory.Get().(*memory); ok {
		m.arena, m.runs, m.pages = old.arena, old.runs, old.pages
		m.slab = m.arena[:min(int64(len(m.arena)), budget)]
	}
	return m
}

// run is pages of adjacent numbers that were added one after the other, as a
// unit that rewrites a database brings them: at is how many pages of the set
// come before it, slot the place of the first in the order of adding.
type run struct{ pgno, at, slot uint32 }

// NewImages makes an empty set. The budget is in bytes of page content; what
// is above it goes to an unlinked file in tempDir (the system's directory for
// such files when empty).
func NewImages(pageSize uint32, budget int64, tempDir string) *Images {
	return &Images{pageSize: pageSize, budget: budget, tempDir: tempDir, sorted: true}
}

// Reset empties the set for pages of another unit, all of which have to fit
// the budget, and sets memory aside for n of them. What memory it has is used
// again, so a set that is kept costs no more than one that is made once.
func (m *Images) Reset(pageSize uint32, budget int64, n int) {
	n = int(min(int64(n), budget/max(1, int64(pageSize))))
	m.pageSize, m.budget, m.n, m.sorted = pageSize, budget, 0, true
	m.runs, m.pages = slices.Grow(m.runs[:0], n), slices.Grow(m.pages[:0], n)
	if size := n * int(pageSize); len(m.arena) < size {
		m.arena = make([]byte, size)
	}
	m.slab = m.arena
}

// Slot is memory for the next page, to read it into and then Add it without
// copying; nil when the budget does not hold it.
func (m *Images) Slot() []byte {
	size := int(m.pageSize)
	if m.spill != nil || int64(len(m.pages)+1)*int64(size) > m.budget {
		return nil
	}
	if len(m.slab) < size {
		m.slab = make([]byte, max(1, min(len(m.pages), (1<<20)/size))*size)
		if len(m.slab) > len(m.arena) {
			m.arena = m.slab
		}
	}
	return m.slab[:size:size]
}

// PageSize is the length of every page in bytes.
func (m *Images) PageSize() uint32 { return m.pageSize }

// Add keeps a copy of the page. Order does not matter, ascending is fastest;
// of two images of one page the later one counts.
func (m *Images) Add(pgno uint32, data []byte) error {
	if uint32(len(data)) != m.pageSize || !ValidPageSize(m.pageSize) {
		return fmt.Errorf("keep page %d of %d bytes in a unit of %d-byte pages: %w", pgno, len(data), m.pageSize, ErrPageSize)
	}
	if pgno == 0 {
		return errors.New("keep page 0: pages are numbered from 1")
	}
	slot := len(m.pages) + m.spilled
	if page := m.Slot(); page != nil {
		if &page[0] != &data[0] {
			copy(page, data)
		}
		m.pages, m.slab = append(m.pages, page), m.slab[len(page):]
	} else if err := m.write(data); err != nil {
		return err
	}
	m.note(pgno, uint32(slot))
	return nil
}

// note puts a page behind the others.
func (m *Images) note(pgno, slot uint32) {
	if k := len(m.runs); k > 0 {
		last := m.runs[k-1]
		after := uint32(m.n) - last.at // pages of the run
		if last.pgno+after == pgno && last.slot+after == slot {
			m.n++
			return
		}
		m.sorted = m.sorted && last.pgno+after-1 < pgno
	}
	m.runs = append(m.runs, run{pgno, uint32(m.n), slot})
	m.n++
}

func (m *Images) write(data []byte) error {
	if m.spill == nil {
		f, err := os.CreateTemp(m.tempDir, "unit-pages-")
		if err != nil {
			return fmt.Errorf("open a file for a unit's pages above %d bytes: %w", m.budget, err)
		}
		if err := os.Remove(f.Name()); err != nil {
			return errors.Join(fmt.Errorf("unlink the file for a unit's pages: %w", err), f.Close())
		}
		m.spill = f
	}
	if _, err := m.spill.WriteAt(data, int64(m.spilled)*int64(m.pageSize)); err != nil {
		return fmt.Errorf("write a unit's page to its file: %w", err)
	}
	m.spilled++
	return nil
}

// Len is the number of different pages.
func (m *Images) Len() int {
	m.sort()
	return m.n
}

// Pgno is the number of the i-th page, ascending.
func (m *Images) Pgno(i int) uint32 {
	m.sort()
	r := m.runs[m.runOf(uint32(i))]
	return r.pgno + uint32(i) - r.at
}

// Page is the content of the i-th page in ascending order. It is read into
// buf, or is memory of the set when the page never left it; either way it
// must not be written to.
func (m *Images) Page(i int, buf []byte) ([]byte, error) {
	m.sort()
	r := m.runs[m.runOf(uint32(i))]
	return m.load(r, uint32(i)-r.at, buf)
}

// Find is like Page for a page number; false when the unit lacks the page.
func (m *Images) Find(pgno uint32, buf []byte) ([]byte, bool, error) {
	i, ok := m.search(pgno)
	if !ok {
		return nil, false, nil
	}
	r := m.runs[m.hint]
	data, err := m.load(r, uint32(i)-r.at, buf)
	return data, err == nil, err
}

// InMemory reports whether every page is in memory: then Page and Find need no
// buffer.
func (m *Images) InMemory() bool { return m.spill == nil }

// Has reports whether the unit holds the page.
func (m *Images) Has(pgno uint32) bool {
	_, ok := m.search(pgno)
	return ok
}

// After is the index of the first page above pgno; Len when there is none.
func (m *Images) After(pgno uint32) int {
	i, ok := m.search(pgno)
	if ok {
		i++
	}
	return i
}

// Keep drops every page the function refuses; their room is not reused.
func (m *Images) Keep(want func(pgno uint32) bool) {
	m.sort()
	was := *m
	kept := func(take func(pgno, slot uint32)) {
		for k, r := range was.runs {
			for i := range uint32(was.end(k)) - r.at {
				if want(r.pgno + i) {
					take(r.pgno+i, r.slot+i)
				}
			}
		}
	}
	// Counted first: a list that grows takes more than twice of what it holds.
	n, last, lastSlot := 0, uint32(0), uint32(0)
	kept(func(pgno, slot uint32) {
		if n == 0 || pgno != last+1 || slot != lastSlot+1 {
			n++
		}
		last, lastSlot = pgno, slot
	})
	m.runs, m.n, m.hint = make([]run, 0, n), 0, 0
	kept(m.note)
}

// Close gives the file and the memory back. It may be called again.
func (m *Images) Close() error {
	if m.pool != nil && m.arena != nil && cap(m.pages) <= mostPooled && cap(m.runs) <= mostPooled {
		clear(m.pages)
		m.pool.memory.Put(&memory{m.arena, m.runs[:0], m.pages[:0]})
	}
	m.runs, m.n, m.pages, m.slab, m.arena, m.sorted = nil, 0, nil, nil, nil, true
	if m.spill == nil {
		return nil
	}
	f := m.spill
	m.spill, m.spilled = nil, 0
	if err := f.Close(); err != nil {
		return fmt.Errorf("close the file of a unit's pages: %w", err)
	}
	return nil
}

// load is the content of the i-th page of a run.
func (m *Images) load(r run, i uint32, buf []byte) ([]byte, error) {
	slot := r.slot + i
	if int(slot) < len(m.pages) {
		return m.pages[slot], nil
	}
	size := int(m.pageSize)
	buf = slices.Grow(buf[:0], size)[:size]
	off := int64(int(slot)-len(m.pages)) * int64(size)
	if _, err := m.spill.ReadAt(buf, off); err != nil {
		return nil, fmt.Errorf("read page %d from the file of a unit's pages: %w", r.pgno+i, err)
	}
	return buf, nil
}

// end is how many pages of the set come up to the end of a run.
func (m *Images) end(k int) int {
	if k+1 < len(m.runs) {
		return int(m.runs[k+1].at)
	}
	return m.n
}

// runOf is the run that has the i-th page. Pages are mostly asked for one
// after the other.
func (m *Images) runOf(i uint32) int {
	for k := m.hint; k < len(m.runs) && k < m.hint+2 && m.runs[k].at <= i; k++ {
		if int(i) < m.end(k) {
			m.hint = k
			return k
		}
	}
	m.hint = sort.Search(len(m.runs), func(k int) bool { return m.runs[k].at > i }) - 1
	return m.hint
}

// search is the index of a page, with the hint at its run, or of the first
// one above it.
func (m *Images) search(pgno uint32) (int, bool) {
	m.sort()
	k := m.hint
	if k >= len(m.runs) || m.runs[k].pgno > pgno || k+1 < len(m.runs) && m.runs[k+1].pgno <= pgno {
		k = sort.Search(len(m.runs), func(k int) bool { return m.runs[k].pgno > pgno }) - 1
		if k < 0 {
			return 0, false
		}
		m.hint = k
	}
	r, end := m.runs[k], m.end(k)
	if i := int64(r.at) + int64(pgno-r.pgno); i < int64(end) {
		return int(i), true
	}
	return end, false
}

// sort brings the pages into order and lets the last image of a page win.
func (m *Images) sort() {
	if m.sorted {
		return
	}
	type image struct{ pgno, slot uint32 }
	all := make([]image, 0, m.n)
	for k, r := range m.runs {
		for i := range uint32(m.end(k)) - r.at {
			all = append(all, image{r.pgno + i, r.slot + i})
		}
	}
	slices.SortFunc(all, func(a, b image) int {
		return cmp.Or(cmp.Compare(a.pgno, b.pgno), cmp.Compare(b.slot, a.slot))
	})
	all = slices.CompactFunc(all, func(a, b image) bool { return a.pgno == b.pgno })
	m.runs, m.n, m.hint, m.sorted = m.runs[:0], 0, 0, true
	for _, e := range all {
		m.note(e.pgno, e.slot)
	}
}
