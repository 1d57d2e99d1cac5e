package btree

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzVarint: a number reads as the plain definition has it, whatever follows
// it, and what is written from it reads the same.
func FuzzVarint(f *testing.F) {
	for _, b := range [][]byte{{}, {0}, {0x7f}, {0x81}, {0x81, 0}, {0x80, 0x80, 5}, bytes.Repeat([]byte{0xff}, 9), bytes.Repeat([]byte{0x80}, 12)} {
		f.Add(b)
	}
	seen := make(map[[3]int]bool) // one for each pair of lengths that a cell begins with
	realCells(f, func(_ *database, typ PageType, c *Cell, payload []byte) {
		_, n := varint(c.Raw)
		_, m := varint(c.Raw[n:])
		_, k := varint(payload)
		if !seen[[3]int{n, m, k}] {
			seen[[3]int{n, m, k}] = true
			f.Add(c.Raw[:min(len(c.Raw), 20)])
			f.Add(c.Raw[n:min(len(c.Raw), n+20)])
			f.Add(payload[:min(len(payload), 20)])
		}
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		want, size := uint64(0), 0
		for i, c := range b[:min(9, len(b))] {
			if i == 8 {
				want, size = want<<8|uint64(c), 9
				break
			}
			want = want<<7 | uint64(c&0x7f)
			if c < 0x80 {
				size = i + 1
				break
			}
		}
		v, n := varint(b)
		if n != size || n > 0 && v != want {
			t.Fatalf("%x: %d of %d bytes, want %d of %d", b, v, n, want, size)
		}
		if again, m := varint(putVarint(nil, v)); n > 0 && (again != v || m > n) {
			t.Errorf("%d is written in %d bytes that read as %d", v, m, again)
		}
	})
}

// FuzzCell: a cell that was written as the format says reads as what went in,
// on a page of any usable size, and one cut short does not read.
func FuzzCell(f *testing.F) {
	f.Add([]byte("row"), int64(5), uint16(512), uint8(0), uint32(0), uint8(0))
	f.Add(make([]byte, 3000), int64(-1), uint16(4096), uint8(1), uint32(9), uint8(3))
	f.Add(make([]byte, 5000), int64(1)<<62, uint16(480), uint8(2), uint32(1)<<31, uint8(255))
	realCells(f, func(d *database, typ PageType, c *Cell, payload []byte) {
		kind := bytes.IndexByte([]byte{byte(LeafTable), byte(LeafIndex), byte(InteriorIndex)}, byte(typ))
		f.Add(payload, c.Rowid, uint16(d.usable), uint8(kind), c.Overflow, uint8(len(payload)))
	})
	f.Fuzz(func(t *testing.T, payload []byte, rowid int64, usable uint16, kind uint8, overflow uint32, cut uint8) {
		size := max(480, int(usable))
		overflow = max(1, overflow)
		typ := []PageType{LeafTable, LeafIndex, InteriorIndex}[kind%3]
		if typ != LeafTable {
			rowid = 0
		}
		raw := cellOf(typ, size, rowid, payload, overflow)
		page := build(typ, size, [][]byte{raw})
		var p Page
		var c Cell
		if err := p.Parse(2, page, size); err != nil {
			t.Fatal(err)
		}
		if err := p.Cell(0, &c); err != nil {
			t.Fatalf("%d bytes on a page of %d: %v", len(payload), size, err)
		}
		whole := len(c.Local) == len(payload)
		if c.Rowid != rowid || c.Payload != len(payload) || !bytes.HasPrefix(payload, c.Local) || whole != (c.Overflow == 0) || !whole && c.Overflow != overflow {
			t.Errorf("%d bytes on a page of %d: %+v", len(payload), size, c)
		}
		if !whole && (c.ChainLen(size) < 1 || (len(payload)-len(c.Local)-1)/(size-4)+1 != c.ChainLen(size)) {
			t.Errorf("%d bytes besides the page's %d are said to need %d pages", len(payload)-len(c.Local), size, c.ChainLen(size))
		}
		short := min(int(cut)+1, len(raw)-1)
		at := int(page[pointerAt(typ)])<<8 | int(page[pointerAt(typ)+1])
		copy(page[size-len(raw)+short:], page[at:at+len(raw)-short])
		page[pointerAt(typ)], page[pointerAt(typ)+1] = byte((at+short)>>8), byte(at+short)
		if err := p.Parse(2, page, size); err == nil && p.Cell(0, &c) == nil && len(c.Raw) > size-at-short {
			t.Errorf("a cell of %d bytes where %d are left", len(c.Raw), size-at-short)
		}
	})
}

// pointerAt is where a page has its first cell pointer.
func pointerAt(typ PageType) int {
	if typ == InteriorIndex {
		return 12
	}
	return 8
}

// FuzzPage: whatever the bytes, a page is either refused or read within its
// bounds, with the same answers by every way.
func FuzzPage(f *testing.F) {
	f.Add(build(LeafTable, 512, [][]byte{cellOf(LeafTable, 512, 5, []byte("row"), 0)}), uint8(0))
	f.Add(build(InteriorIndex, 512, [][]byte{cellOf(InteriorIndex, 512, 5, make([]byte, 900), 4)}), uint8(0))
	f.Add(build(InteriorTable, 512, [][]byte{{0, 0, 0, 5, 1}}), uint8(0))
	f.Add(build(LeafIndex, 512, nil), uint8(32))
	f.Add(bytes.Repeat([]byte{2, 0, 0, 0, 1, 0, 0}, 28), uint8(96))
	for _, d := range realDatabases(f) {
		for pgno := range d.pages() {
			f.Add(d.page(pgno+1), uint8(d.size-d.usable))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, reserved uint8) {
		usable := len(data) - int(reserved)
		var p Page
		for _, pgno := range []uint32{1, 2} {
			if err := p.Parse(pgno, data, usable); err != nil {
				if !errors.Is(err, ErrCorrupt) {
					t.Fatal(err)
				}
				continue
			}
			var c Cell
			var fields []Field
			for i := range p.Len() {
				if err := p.Cell(i, &c); err != nil {
					continue
				}
				if len(c.Local) > c.Payload || (c.Overflow == 0) != (len(c.Local) == c.Payload) || len(c.Raw) > usable {
					t.Errorf("cell %+v", c)
				}
				fields, _ = Fields(c.Local, fields[:0])
				for i := range fields {
					if uint64(len(fields[i].Body)) != SerialLen(fields[i].Serial) {
						t.Errorf("field %+v", fields[i])
					}
					fields[i].Int()
					fields[i].Real()
				}
			}
			for i := range p.Children() {
				_, _ = p.Child(i)
			}
			if p.Type.Rows() {
				if head, tail, err := Common(&p, &p, nil); err == nil && head != p.Len() || tail != 0 {
					t.Errorf("%d and %d cells in common with itself, of %d", head, tail, p.Len())
				}
			}
		}
	})
}

// FuzzRecord: a record is refused or its fields cover it one after the other.
func FuzzRecord(f *testing.F) {
	f.Add(record(intField(5), Field{13 + 6, []byte("abc")}, Field{Serial: 0}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	realCells(f, func(_ *database, _ PageType, _ *Cell, payload []byte) { f.Add(payload) })
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, err := Fields(data, nil)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		size, _ := varint(data)
		body := data[size:]
		for _, f := range fields {
			if !bytes.HasPrefix(body, f.Body) {
				t.Fatalf("field %+v is not at %x", f, body)
			}
			body = body[len(f.Body):]
		}
	})
}

// FuzzDiffer holds the short cut against the fields of both records.
func FuzzDiffer(f *testing.F) {
	f.Add(record(intField(5), Field{13 + 6, []byte("abc")}), record(intField(6), Field{13 + 6, []byte("abc")}))
	f.Add([]byte{0, 1}, []byte{0, 2})
	f.Add([]byte{3, 0x81, 0x01, 1}, []byte{3, 0x81, 0x01, 2})
	var last []byte
	realCells(f, func(_ *database, _ PageType, _ *Cell, payload []byte) {
		f.Add(last, payload)
		last = payload
	})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if !Differ(a, b) {
			return
		}
		was, err1 := Fields(a, nil)
		is, err2 := Fields(b, nil)
		if err1 != nil || err2 != nil {
			return // the row is refused once it is shown
		}
		for i := range was {
			if was[i].Serial != is[i].Serial {
				t.Fatalf("%x and %x: headers differ", a, b)
			}
			if !bytes.Equal(was[i].Body, is[i].Body) {
				if s := was[i].Serial; s == 6 || s == 7 {
					t.Fatalf("%x and %x: the first difference is in a field of type %d", a, b, s)
				}
				return
			}
		}
		t.Fatalf("%x and %x: no field differs", a, b)
	})
}
