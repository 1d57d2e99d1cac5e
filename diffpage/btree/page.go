package btree

import (
	"encoding/binary"
	"fmt"
)

// PageType is the first byte of a b-tree page (SQLite file format 1.6).
type PageType byte

// The types of b-tree pages.
const (
	InteriorIndex PageType = 2
	InteriorTable PageType = 5
	LeafIndex     PageType = 10
	LeafTable     PageType = 13
)

// Index reports whether the page belongs to an index tree, the form WITHOUT
// ROWID tables have too.
func (t PageType) Index() bool { return t == InteriorIndex || t == LeafIndex }

// Interior reports whether the page has children.
func (t PageType) Interior() bool { return t == InteriorIndex || t == InteriorTable }

// Rows reports whether the cells of the page hold rows; only the interior
// cells of a rowid tree do not.
func (t PageType) Rows() bool { return t != InteriorTable }

// Page is a parsed b-tree page. It holds on to the bytes it was parsed from.
// Only the header and the extent of the cell pointers are checked beforehand;
// a cell is checked when it is asked for.
type Page struct {
	Type     PageType
	data     []byte // the usable bytes, or an excerpt of them
	pointers int    // where the cell pointer array starts
	n        int
	usable   int // usable bytes of a page, on which the local part of a row depends
}

// Parse looks at a page of which usable bytes count. Page 1 carries the
// database header first.
func (p *Page) Parse(pgno uint32, data []byte, usable int) error {
	at := 0
	if pgno == 1 {
		at = HeaderSize
	}
	if usable > len(data) || usable < MinUsable {
		return fmt.Errorf("%d usable bytes in a page of %d: %w", usable, len(data), ErrCorrupt)
	}
	p.data, p.usable = data[:usable], usable
	p.Type = PageType(data[at])
	size := 8
	switch p.Type {
	case InteriorIndex, InteriorTable:
		size = 12
	case LeafIndex, LeafTable:
	default:
		return fmt.Errorf("page type %d is none of a b-tree: %w", data[at], ErrCorrupt)
	}
	p.n = int(binary.BigEndian.Uint16(data[at+3:]))
	p.pointers = at + size
	if p.pointers+2*p.n > usable {
		return fmt.Errorf("%d cells do not fit into %d bytes: %w", p.n, usable, ErrCorrupt)
	}
	return nil
}

// Len is the number of cells.
func (p *Page) Len() int { return p.n }

// Room is how many bytes all cells together can have.
func (p *Page) Room() int { return len(p.data) - p.pointers - 2*p.n }

// Children is the number of child pages: one more than cells on an interior
// page, none on a leaf.
func (p *Page) Children() int {
	if p.Type.Interior() {
		return p.n + 1
	}
	return 0
}

// Child is the number of the i-th child page, the right-most one last.
func (p *Page) Child(i int) (uint32, error) {
	if i == p.n {
		return binary.BigEndian.Uint32(p.data[p.pointers-4:]), nil
	}
	at, err := p.pointer(i)
	if err != nil {
		return 0, err
	}
	if at+4 > len(p.data) {
		return 0, fmt.Errorf("cell %d of %d reaches beyond its page: %w", i, p.n, ErrCorrupt)
	}
	return binary.BigEndian.Uint32(p.data[at:]), nil
}

// pointer is where cell i starts.
func (p *Page) pointer(i int) (int, error) {
	if uint(i) >= uint(p.n) {
		return 0, fmt.Errorf("cell %d of %d asked for: %w", i, p.n, ErrCorrupt)
	}
	at := int(binary.BigEndian.Uint16(p.data[p.pointers+2*i:]))
	if at < p.pointers+2*p.n || at >= len(p.data) {
		return 0, fmt.Errorf("cell %d of %d starts at byte %d, outside of the cell area: %w", i, p.n, at, ErrCorrupt)
	}
	return at, nil
}
