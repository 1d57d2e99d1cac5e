package delivery

import (
	"errors"
	"fmt"
	"iter"
	"sort"
)

// cursor walks the visible entries of a spool. It is used by one goroutine.
type cursor struct {
	s    *Spool
	seq  uint64 // of the entry passed last
	seg  *segment
	off  int64 // where entry seq+1 begins in seg; 0 when it is to be looked for
	head []byte
}

func (s *Spool) cursor(after uint64) *cursor { return &cursor{s: s, seq: after} }

// next is the entry after the last one, nil when there is none yet.
func (c *cursor) next() (*Stored, error) {
	seg, err := c.locate()
	if seg == nil || err != nil {
		return nil, err
	}
	c.s.mu.Lock()
	size := seg.size
	c.s.mu.Unlock()
	h, buf, err := seg.head(c.off, size, c.head)
	c.head = buf
	if err != nil || h.seq != c.seq+1 {
		if err == nil || errors.Is(err, errTorn) {
			err = fmt.Errorf("%s at %d: entry %d is broken: %w", seg.path, c.off, c.seq+1, ErrCorrupt)
		}
		return nil, err
	}
	e := &Stored{spool: c.s, seg: seg, off: c.off + h.length, head: h}
	c.seq = h.seq
	c.off += h.length + h.payload
	return e, nil
}

// locate finds the segment of entry seq+1; nil when it is not visible yet.
func (c *cursor) locate() (*segment, error) {
	c.s.mu.Lock()
	want := c.seq + 1
	if want > c.s.synced {
		err := c.s.broken
		c.s.mu.Unlock()
		return nil, err
	}
	segs := c.s.segments
	i := sort.Search(len(segs), func(i int) bool { return segs[i].first > want }) - 1
	if i < 0 {
		first := segs[0].first
		c.s.mu.Unlock()
		return nil, fmt.Errorf("entry %d left the spool, the first is %d", want, first)
	}
	seg := segs[i]
	c.s.mu.Unlock()
	if c.seg == seg && c.off > 0 {
		return seg, nil
	}
	return seg, c.seek(seg, want)
}

// seek walks from the start of seg to entry want.
func (c *cursor) seek(seg *segment, want uint64) error {
	c.s.mu.Lock()
	size := seg.size
	c.s.mu.Unlock()
	off := int64(segmentHead)
	for n := seg.first; n < want; n++ {
		h, buf, err := seg.head(off, size, c.head)
		c.head = buf
		if err != nil || h.seq != n {
			if err == nil || errors.Is(err, errTorn) {
				err = fmt.Errorf("%s at %d: entry %d is broken: %w", seg.path, off, n, ErrCorrupt)
			}
			return err
		}
		off += h.length + h.payload
	}
	c.seg, c.off = seg, off
	return nil
}

// Entries yields the visible entries numbered above after, in order. It ends
// at the last one that is visible when it gets there, or after an error.
// Entries that left the spool are passed over when after is 0.
func (s *Spool) Entries(after uint64) iter.Seq2[*Stored, error] {
	return func(yield func(*Stored, error) bool) {
		c := s.cursor(max(after, s.first()-1))
		for {
			e, err := c.next()
			if e == nil && err == nil {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// first is the number of the first entry that is still there, or will be.
func (s *Spool) first() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.segments[0].first
}

// changes is closed when more entries became visible.
func (s *Spool) changes() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}
