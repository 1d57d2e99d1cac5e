package delivery

import (
	"errors"
	"fmt"
	"sort"
)

// cursor walks the visible entries of a spool. It is used by one goroutine.
type cursor struct {
	s   *Spool
	seq uint64 // of the entry passed last
	seg *segment
	off int64 // where entry seq+1 begins in seg; 0 when it is to be looked for
	// ahead holds heads to come. What lies behind the last sync may still be
	// cut off and written anew: it is not kept.
	ahead window
	// leaps passes over entries that left; without it they are an error.
	leaps bool
}

// next is the entry after the last one, nil when there is none yet.
func (c *cursor) next() (*Stored, error) {
	seg, err := c.locate()
	if seg == nil || err != nil {
		return nil, err
	}
	size := c.extent(seg)
	h, err := seg.head(c.off, size, &c.ahead)
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

// extent is the size of seg, of which what is durable may be read ahead.
func (c *cursor) extent(seg *segment) int64 {
	c.s.files.mu.Lock()
	defer c.s.files.mu.Unlock()
	c.ahead.upto = seg.durable
	return seg.size
}

// locate finds the segment of entry seq+1; nil when it is not visible yet.
func (c *cursor) locate() (*segment, error) {
	c.s.files.mu.Lock()
	want := c.seq + 1
	if want > c.s.files.synced {
		err := c.s.files.broken
		c.s.files.mu.Unlock()
		return nil, err
	}
	segs := c.s.files.list
	i := sort.Search(len(segs), func(i int) bool { return segs[i].first > want }) - 1
	if i < 0 {
		first := segs[0].first
		c.s.files.mu.Unlock()
		return nil, fmt.Errorf("entry %d left the spool, the first is %d", want, first)
	}
	seg := segs[i]
	if i < len(segs)-1 && want > seg.last {
		next := segs[i+1].first
		c.s.files.mu.Unlock()
		if !c.leaps {
			return nil, fmt.Errorf("entry %d left the spool, the next is %d", want, next)
		}
		c.seq = next - 1
		return c.locate()
	}
	c.s.files.mu.Unlock()
	if c.seg == seg && c.off > 0 {
		return seg, nil
	}
	return seg, c.seek(seg, want)
}

// seek walks from the start of seg to entry want.
func (c *cursor) seek(seg *segment, want uint64) error {
	size := c.extent(seg)
	off := int64(segmentHead)
	for n := seg.first; n < want; n++ {
		h, err := seg.head(off, size, &c.ahead)
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
