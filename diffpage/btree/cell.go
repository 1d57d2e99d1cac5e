package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// maxPayload is the largest row SQLite can hold (SQLite limits, 1).
const maxPayload = 1<<31 - 1

// Cell is one cell of a page that holds rows. The slices are the page's own.
type Cell struct {
	// Rowid is the key in a rowid tree, 0 in an index tree.
	Rowid int64
	// Payload is the length of the record in bytes, overflow included.
	Payload int
	// Local is the part of the record that is on the page.
	Local []byte
	// Overflow is the first page of the rest; 0 when there is none.
	Overflow uint32
	// Raw is the whole cell without the child pointer: two cells with equal
	// Raw hold the same row as long as their overflow pages are the same.
	Raw []byte
}

// Same reports whether both cells are equal byte for byte.
func (c *Cell) Same(o *Cell) bool { return bytes.Equal(c.Raw, o.Raw) }

// ChainLen is the number of overflow pages of the cell.
func (c *Cell) ChainLen(usable int) int { return ChainLen(c.Payload-len(c.Local), usable) }

// ChainLen is how many overflow pages hold rest bytes.
func ChainLen(rest, usable int) int { return (rest + usable - 5) / (usable - 4) }

// maxLocal is the longest record that is all on its page (SQLite file format
// 1.6).
func maxLocal(t PageType, usable int) int {
	if t.Index() {
		return (usable-12)*64/255 - 23
	}
	return usable - 35
}

// localSize is how many bytes of a payload stay on the page (SQLite file
// format 1.6, "cell payload overflow").
func localSize(t PageType, payload, usable int) int {
	most := maxLocal(t, usable)
	if payload <= most {
		return payload
	}
	least := (usable-12)*32/255 - 23
	if size := least + (payload-least)%(usable-4); size <= most {
		return size
	}
	return least
}

// Cell reads cell i into c; not for interior pages of rowid trees, whose
// cells are no rows.
func (p *Page) Cell(i int, c *Cell) error {
	at, err := p.pointer(i)
	if err != nil {
		return err
	}
	if p.Type == InteriorIndex {
		at += 4
	}
	if at >= len(p.data) || p.Type == InteriorTable {
		return p.broken(i)
	}
	start := at
	payload, n := varint(p.data[at:])
	if n == 0 || payload > maxPayload {
		return p.broken(i)
	}
	at += n
	c.Rowid = 0
	if p.Type == LeafTable {
		rowid, n := varint(p.data[at:])
		if n == 0 {
			return p.broken(i)
		}
		at += n
		c.Rowid = int64(rowid)
	}
	local := localSize(p.Type, int(payload), p.usable)
	end := at + local
	c.Payload, c.Overflow = int(payload), 0
	if local < int(payload) {
		end += 4
	}
	if end > len(p.data) {
		return p.broken(i)
	}
	c.Local = p.data[at : at+local]
	if local < int(payload) {
		if c.Overflow = binary.BigEndian.Uint32(p.data[end-4:]); c.Overflow == 0 {
			return fmt.Errorf("cell %d of %d has no overflow page for %d bytes: %w", i, p.n, int(payload)-local, ErrCorrupt)
		}
	}
	c.Raw = p.data[start:end]
	return nil
}

func (p *Page) broken(i int) error {
	return fmt.Errorf("cell %d of %d does not fit its page: %w", i, p.n, ErrCorrupt)
}
