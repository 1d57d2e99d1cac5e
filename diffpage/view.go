package diffpage

import (
	"encoding/binary"
	"errors"
	"fmt"

	"celldexport/diffpage/btree"
	"celldexport/diffpage/schema"
	"celldexport/diffpage/shadow"
)

// view is one state of the database: its shape and a way to its pages.
type view struct {
	pageSize uint32
	commit   uint32
	usable   int
	enc      schema.Encoding
	sh       *shadow.Shadow
	// images are looked at before the shadow. They are all pages of a unit
	// that differ, or copies of shadow pages that were read already.
	images *shadow.Images
}

// has reports whether the database can have content on the page.
func (v *view) has(pgno uint32) bool {
	return pgno != 0 && pgno <= v.commit && pgno != shadow.LockPage(v.pageSize)
}

// page reads a page into buf, which grows when it is needed, or returns memory
// that must not be written to.
func (v *view) page(pgno uint32, buf *[]byte) ([]byte, error) {
	if !v.has(pgno) {
		return nil, corrupt("", pgno, "it is referred to, but the database has no such page")
	}
	if v.images != nil {
		if !v.images.InMemory() {
			v.grow(buf)
		}
		data, ok, err := v.images.Find(pgno, *buf)
		if ok || err != nil {
			return data, err
		}
	}
	v.grow(buf)
	data, err := v.sh.Page(pgno, *buf)
	if errors.Is(err, shadow.ErrMissing) {
		return nil, corrupt("", pgno, "the unit that added it has no image of it")
	}
	return data, err
}

// grow makes a buffer long enough for a page.
func (v *view) grow(buf *[]byte) {
	if cap(*buf) < int(v.pageSize) {
		*buf = make([]byte, v.pageSize)
	}
}

// parse reads and parses a b-tree page.
func (v *view) parse(pgno uint32, p *btree.Page, buf *[]byte) error {
	data, err := v.page(pgno, buf)
	if err != nil {
		return err
	}
	return p.Parse(pgno, data, v.usable)
}

// header takes usable size and encoding from page 1. An empty database has
// neither.
func (v *view) header() error {
	v.usable, v.enc = int(v.pageSize), schema.UTF8
	if v.commit == 0 {
		return nil
	}
	var buf []byte
	data, err := v.page(1, &buf)
	if err != nil {
		return err
	}
	h, err := btree.ParseFileHeader(data)
	if err != nil {
		return blame("", 1, err)
	}
	if h.PageSize != v.pageSize {
		return corrupt("", 1, "its header names a page size of %d in a database of %d-byte pages", h.PageSize, v.pageSize)
	}
	v.usable = h.Usable
	if h.Encoding != 0 {
		v.enc = schema.Encoding(h.Encoding)
	}
	return nil
}

// chain shows the pages of an overflow chain in order. The number of pages
// follows from the length of the row alone, so a chain that runs in circles
// ends all the same.
func (v *view) chain(head uint32, pages int, buf *[]byte, visit func(pgno uint32) error) error {
	pgno := head
	for i := range pages {
		if !v.has(pgno) {
			return fmt.Errorf("a row's overflow chain of %d pages leads to page %d, which the database does not have: %w", pages, pgno, ErrCorrupt)
		}
		if err := visit(pgno); err != nil {
			return err
		}
		if i == pages-1 {
			break
		}
		data, err := v.page(pgno, buf)
		if err != nil {
			return err
		}
		pgno = binary.BigEndian.Uint32(data)
	}
	return nil
}

// payload is the whole record of a cell: the cell's own bytes where they are
// all of it, else put together in buf.
func (v *view) payload(c *btree.Cell, buf, pageBuf *[]byte) ([]byte, error) {
	if c.Overflow == 0 {
		return c.Local, nil
	}
	if pages := c.ChainLen(v.usable); uint32(pages) > v.commit {
		return nil, corrupt("", c.Overflow, "a row of %d bytes does not fit the database", c.Payload)
	}
	out := append((*buf)[:0], c.Local...)
	pgno := c.Overflow
	for len(out) < c.Payload {
		data, err := v.page(pgno, pageBuf)
		if err != nil {
			return nil, err
		}
		pgno = binary.BigEndian.Uint32(data)
		out = append(out, data[4:4+min(c.Payload-len(out), v.usable-4)]...)
	}
	*buf = out
	return out, nil
}
