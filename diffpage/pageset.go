package diffpage

import "math/bits"

// pageSet is a set of page numbers as a bitmap in chunks that exist only
// where a page is in the set: a change of one page in a large database costs
// one chunk, a change of all of them one bit per page.
type pageSet struct {
	chunks []*pageChunk
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
	for _, c := range s.chunks {
		if c != nil {
			*c = pageChunk{}
		}
	}
	return *s
}

// each shows the pages of the set, ascending.
func (s *pageSet) each(visit func(pgno uint32)) {
	for i, chunk := range s.chunks {
		if chunk == nil {
			continue
		}
		for j, word := range chunk {
			for ; word != 0; word &= word - 1 {
				visit(uint32(i*chunkPages + j*64 + bits.TrailingZeros64(word)))
			}
		}
	}
}

// from is the first page of the set that is not below pgno; false when there
// is none.
func (s *pageSet) from(pgno uint32) (uint32, bool) {
	at := int(pgno / chunkPages)
	for i := at; i < len(s.chunks); i++ {
		if s.chunks[i] == nil {
			continue
		}
		first := uint32(0)
		if i == at {
			first = pgno % chunkPages
		}
		mask := ^uint64(0) << (first % 64)
		for j := int(first / 64); j < len(s.chunks[i]); j++ {
			if word := s.chunks[i][j] & mask; word != 0 {
				return uint32(i*chunkPages + j*64 + bits.TrailingZeros64(word)), true
			}
			mask = ^uint64(0)
		}
	}
	return 0, false
}
