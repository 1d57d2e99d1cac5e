package btree

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Common compares two images of one page and counts the cells that are equal
// at the start and at the end of both, child pointers aside. Equal bytes are
// the same row only while its overflow pages are the same, so a cell with
// overflow counts only if intact, asked about its first overflow page, agrees;
// nil agrees to all.
//
// Most cells are not even looked at: what lies outside of the bytes that
// differ between the two images is equal.
func Common(a, b *Page, intact func(overflow uint32) bool) (head, tail int, err error) {
	if a.Type != b.Type || !a.Type.Rows() || len(a.data) != len(b.data) {
		return 0, 0, nil
	}
	c := common{a: a, b: b, intact: intact}
	c.first, c.last = differing(a.data, b.data)
	most := min(a.n, b.n)
	for head < most {
		if same, err := c.same(head, head); err != nil {
			return 0, 0, err
		} else if !same {
			break
		}
		head++
	}
	for tail < most-head {
		if same, err := c.same(a.n-1-tail, b.n-1-tail); err != nil {
			return 0, 0, err
		} else if !same {
			break
		}
		tail++
	}
	return head, tail, nil
}

type common struct {
	a, b        *Page
	first, last int // the bytes that differ are among first to last
	intact      func(uint32) bool
	ca, cb      Cell
}

func (c *common) same(i, k int) (bool, error) {
	at, err := c.a.pointer(i)
	if err != nil {
		return false, err
	}
	bt, err := c.b.pointer(k)
	if err != nil {
		return false, err
	}
	if at == bt && at > c.last && c.intact == nil {
		return true, nil
	}
	if err := c.a.Cell(i, &c.ca); err != nil {
		return false, err
	}
	end := at + len(c.ca.Raw)
	if c.a.Type == InteriorIndex {
		end += 4
	}
	if at != bt || at <= c.last && end > c.first {
		if err := c.b.Cell(k, &c.cb); err != nil {
			return false, err
		}
		if !bytes.Equal(c.ca.Raw, c.cb.Raw) {
			return false, nil
		}
	}
	return c.ca.Overflow == 0 || c.intact == nil || c.intact(c.ca.Overflow), nil
}

// differing bounds the bytes in which two slices of one length differ. Slices
// that do not differ give bounds that hold nothing.
func differing(a, b []byte) (first, last int) {
	n := len(a)
	b = b[:n]
	for first+8 <= n {
		if x := binary.LittleEndian.Uint64(a[first:]) ^ binary.LittleEndian.Uint64(b[first:]); x != 0 {
			first += bits.TrailingZeros64(x) / 8
			break
		}
		first += 8
	}
	for first < n && a[first] == b[first] {
		first++
	}
	last = n
	for last-8 >= first {
		if x := binary.LittleEndian.Uint64(a[last-8:]) ^ binary.LittleEndian.Uint64(b[last-8:]); x != 0 {
			last -= bits.LeadingZeros64(x) / 8
			return first, last - 1
		}
		last -= 8
	}
	for last > first && a[last-1] == b[last-1] {
		last--
	}
	return first, last - 1
}
