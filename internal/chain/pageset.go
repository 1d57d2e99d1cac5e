package chain

import "math/bits"

// chunkPages is how many pages one chunk of a pageSet covers.
const chunkPages = 1 << 16

// pageSet is a set of page numbers. Its memory follows the pages it holds,
// not the largest number, since a damaged file can name any.
type pageSet struct {
	chunks []*[chunkPages / 64]uint64 // nil where no page is
}

func (s *pageSet) add(pgno uint32) {
	c := int(pgno / chunkPages)
	for len(s.chunks) <= c {
		s.chunks = append(s.chunks, nil)
	}
	if s.chunks[c] == nil {
		s.chunks[c] = new([chunkPages / 64]uint64)
	}
	at := pgno % chunkPages
	s.chunks[c][at/64] |= 1 << (at % 64)
}

// truncate removes the pages above last.
func (s *pageSet) truncate(last uint32) {
	c := int(last / chunkPages)
	if c >= len(s.chunks) {
		return
	}
	s.chunks = s.chunks[:c+1]
	if s.chunks[c] == nil {
		return
	}
	at := last % chunkPages
	words := s.chunks[c][at/64:]
	words[0] &= ^uint64(0) >> (63 - at%64)
	clear(words[1:])
}

// missing is the lowest page from 1 to last that is not in the set, apart
// from the page skip.
func (s *pageSet) missing(last, skip uint32) (pgno uint32, ok bool) {
	for n := uint64(1); n <= uint64(last); n++ {
		n = s.firstGap(n)
		if n > uint64(last) {
			return 0, false
		}
		if n != uint64(skip) {
			return uint32(n), true
		}
	}
	return 0, false
}

// firstGap is the lowest number at or above n that is not in the set.
func (s *pageSet) firstGap(n uint64) uint64 {
	for {
		c := n / chunkPages
		if c >= uint64(len(s.chunks)) || s.chunks[c] == nil {
			return n
		}
		at := n % chunkPages
		free := ^s.chunks[c][at/64] >> (at % 64)
		if free != 0 {
			return n + uint64(bits.TrailingZeros64(free))
		}
		n += 64 - at%64
	}
}
