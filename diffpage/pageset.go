package diffpage

import "math/bits"

// pageSet is a set of page numbers as a bitmap in chunks that exist only
// where a page is in the set: a change of one page in a large database costs
// one chunk, a change of all of them one bit per page.
type pageSet struct {
	chunks []*pageChunk
	// lo and end bound the pages that are in the set: lo is the first, end
	// comes after the last, 0 when there is none.
	lo, end uint32
}

const chunkPages = 4096

type pageChunk [chunkPages / 64]uint64

// add puts a page in and reports whether it was not there before.
func (s *pageSet) add(pgno uint32) bool {
	i := int(pgno / chunkPages)
	if i >= len(s.chunks) {
		s.chunks = append(s.chunks, make([]*pageChunk, i+1-len(s.chunks))...)
	}
	if s.chunks[i] == nil {
		s.chunks[i] = new(pageChunk)
	}
	word := &s.chunks[i][pgno%chunkPages/64]
	bit := uint64(1) << (pgno % 64)
	fresh := *word&bit == 0
	*word |= bit
	if s.end == 0 || pgno < s.lo {
		s.lo = pgno
	}
	s.end = max(s.end, pgno+1)
	return fresh
}

func (s *pageSet) has(pgno uint32) bool {
	i := int(pgno / chunkPages)
	if i >= len(s.chunks) || s.chunks[i] == nil {
		return false
	}
	return s.chunks[i][pgno%chunkPages/64]&(1<<(pgno%64)) != 0
}

// empty is an empty set with the memory of this one, which is not to be used
// any more.
func (s *pageSet) empty() pageSet {
	if len(s.chunks) > 64 {
		return pageSet{}
	}
	for lo := s.lo; lo < s.end; {
		i := lo / chunkPages
		end := min(s.end, (i+1)*chunkPages)
		if c := s.chunks[i]; c != nil {
			clear(c[lo%chunkPages/64 : (end-1)%chunkPages/64+1])
		}
		lo = end
	}
	return pageSet{chunks: s.chunks}
}

// each shows the pages of the set, ascending.
func (s *pageSet) each(visit func(pgno uint32)) {
	for pgno, ok := s.from(0); ok; pgno, ok = s.from(pgno + 1) {
		visit(pgno)
	}
}

// from is the first page of the set that is not below pgno; false when there
// is none.
func (s *pageSet) from(pgno uint32) (uint32, bool) {
	for pgno = max(pgno, s.lo); pgno < s.end; {
		c := s.chunks[pgno/chunkPages]
		if c == nil {
			pgno |= chunkPages - 1
		} else if word := c[pgno%chunkPages/64] >> (pgno % 64); word != 0 {
			return pgno + uint32(bits.TrailingZeros64(word)), true
		} else {
			pgno |= 63
		}
		if pgno >= s.end-1 {
			break
		}
		pgno++
	}
	return 0, false
}
