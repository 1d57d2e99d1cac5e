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
	c.least = max(a.pointers+2*a.n, b.pointers+2*b.n)
	c.most = maxLocal(a.Type, a.usable)
	most := min(a.n, b.n)
	for head < most {
		if c.clearly(head, head) {
			head++
			continue
		}
		if same, err := c.same(head, head); err != nil {
			return 0, 0, err
		} else if !same {
			break
		}
		head++
	}
	for tail < most-head {
		if c.clearly(a.n-1-tail, b.n-1-tail) {
			tail++
			continue
		}
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
	least       int // where cells can start on both pages
	most        int // the longest record that is all on its page
	intact      func(uint32) bool
	ca, cb      Cell
}

// clearly reports whether two cells are equal because they are at the same
// place outside of the bytes that differ, and sure to have no overflow that
// matters. It is a short cut: false says nothing.
func (c *common) clearly(i, k int) bool {
	data := c.a.data
	at := int(binary.BigEndian.Uint16(data[c.a.pointers+2*i:]))
	if at != int(binary.BigEndian.Uint16(c.b.data[c.b.pointers+2*k:])) || at < c.least || at >= len(data) {
		return false
	}
	switch {
	case at > c.last:
		return c.intact == nil || c.ends(at, len(data))
	case at < c.first:
		return c.ends(at, c.first)
	}
	return false
}

// ends reports whether the cell at a place ends before the limit and is all on
// the page.
func (c *common) ends(at, limit int) bool {
	data := c.a.data
	if c.a.Type == InteriorIndex {
		at += 4
	}
	if at >= limit {
		return false
	}
	payload := int(data[at])
	at++
	if payload >= 0x80 {
		long, n := varint(data[at-1:])
		if n == 0 || long > uint64(c.most) {
			return false
		}
		payload, at = int(long), at-1+n
	}
	if payload > c.most {
		return false
	}
	if c.a.Type == LeafTable {
		for i := 0; i < 9 && at < limit; i++ {
			at++
			if data[at-1] < 0x80 {
				break
			}
		}
	}
	return at+payload <= limit
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

// chunk is how many bytes are compared at once where most are equal.
const chunk = 128

// differing bounds the bytes in which two slices of one length differ. Slices
// that do not differ give bounds that hold nothing.
func differing(a, b []byte) (first, last int) {
	n := len(a)
	b = b[:n]
	for first+chunk <= n && bytes.Equal(a[first:first+chunk], b[first:first+chunk]) {
		first += chunk
	}
	first += firstDifference(a[first:], b[first:])
	last = n
	for last-chunk >= first && bytes.Equal(a[last-chunk:last], b[last-chunk:last]) {
		last -= chunk
	}
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
