// Package btree reads the pages of a SQLite database as the file format
// describes them: headers, cells, overflow chains and records. It trusts no
// byte of them: every offset, size and count is checked before it is used,
// and what does not fit is an error that wraps ErrCorrupt.
package btree

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt is wrapped by every error about content that is not what the
// file format allows.
var ErrCorrupt = errors.New("corrupt database")

// Magic is how every database starts (SQLite file format 1.3.1).
const Magic = "SQLite format 3\x00"

// HeaderSize is the length of the database header on page 1; the b-tree
// header of that page comes after it.
const HeaderSize = 100

// MinUsable is the least of a page that SQLite lets be usable (SQLite file
// format 1.3.4). The limits of cells make no sense below it.
const MinUsable = 480

// MaxDepth is how deep a tree can be; SQLite refuses deeper ones.
const MaxDepth = 20

// FileHeader is what the diff needs of the header of a database (SQLite file
// format 1.3).
type FileHeader struct {
	// PageSize in bytes.
	PageSize uint32
	// Usable is the page size less the reserved bytes at the end of each page.
	Usable int
	// Encoding is 1 for UTF-8, 2 for UTF-16le, 3 for UTF-16be; 0 while the
	// database has never had a table.
	Encoding uint32
}

// ParseFileHeader reads the header at the start of page 1.
func ParseFileHeader(page []byte) (FileHeader, error) {
	var h FileHeader
	if len(page) < HeaderSize || string(page[:len(Magic)]) != Magic {
		return h, fmt.Errorf("page 1 does not start a SQLite database (encrypted, or none at all): %w", ErrCorrupt)
	}
	h.PageSize = uint32(binary.BigEndian.Uint16(page[16:]))
	if h.PageSize == 1 {
		h.PageSize = 65536
	}
	if h.PageSize < 512 || h.PageSize&(h.PageSize-1) != 0 {
		return h, fmt.Errorf("the header names a page size of %d: %w", h.PageSize, ErrCorrupt)
	}
	h.Usable = int(h.PageSize) - int(page[20])
	if h.Usable < MinUsable {
		return h, fmt.Errorf("the header leaves %d usable bytes of a page: %w", h.Usable, ErrCorrupt)
	}
	h.Encoding = binary.BigEndian.Uint32(page[56:])
	if h.Encoding > 3 {
		return h, fmt.Errorf("the header names text encoding %d: %w", h.Encoding, ErrCorrupt)
	}
	return h, nil
}
