package btree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// putVarint is the writing side of varint, by the definition of the format.
func putVarint(dst []byte, v uint64) []byte {
	if v >= 1<<56 {
		var b [9]byte
		b[8] = byte(v)
		v >>= 8
		for i := 7; i >= 0; i-- {
			b[i] = byte(v&0x7f) | 0x80
			v >>= 7
		}
		return append(dst, b[:]...)
	}
	var b [8]byte
	i := len(b) - 1
	b[i] = byte(v & 0x7f)
	for v >>= 7; v > 0; v >>= 7 {
		i--
		b[i] = byte(v&0x7f) | 0x80
	}
	return append(dst, b[i:]...)
}

func TestVarint(t *testing.T) {
	values := []uint64{0, 1, 127, 128, 240, 16383, 16384, math.MaxUint64}
	for shift := range 64 {
		values = append(values, 1<<shift-1, 1<<shift, 1<<shift+1)
	}
	for _, v := range values {
		b := putVarint(nil, v)
		got, n := varint(append(b, 0xff))
		if got != v || n != len(b) {
			t.Errorf("%x: %d of %d bytes, want %d of %d", b, got, n, v, len(b))
		}
		for cut := range len(b) {
			if _, n := varint(b[:cut]); n != 0 {
				t.Errorf("%x cut to %d bytes is a number", b, cut)
			}
		}
	}
}

// appendValue appends the serial type and body of an integer in the smallest
// form.
func intField(v int64) Field {
	for serial, size := range []int{0, 1, 2, 3, 4, 6, 8} {
		if size > 0 && (size == 8 || v >= -1<<(8*size-1) && v < 1<<(8*size-1)) {
			var b [8]byte
			binary.BigEndian.PutUint64(b[:], uint64(v))
			return Field{uint64(serial), b[8-size:]}
		}
	}
	return Field{}
}

func record(fields ...Field) []byte {
	var types, body []byte
	for _, f := range fields {
		types = putVarint(types, f.Serial)
		body = append(body, f.Body...)
	}
	size := len(types) + 1
	if size > 127 {
		size++
	}
	return append(append(putVarint(nil, uint64(size)), types...), body...)
}

func TestRecord(t *testing.T) {
	ints := []int64{0, 1, -1, 127, 128, -128, -129, 1<<23 - 1, -1 << 23, 1 << 23, 1<<31 - 1, -1 << 31, 1 << 31, 1<<47 - 1, -1 << 47, 1 << 47, math.MaxInt64, math.MinInt64}
	var in []Field
	for _, v := range ints {
		in = append(in, intField(v))
	}
	in = append(in, Field{Serial: 0}, Field{Serial: 8}, Field{Serial: 9}, Field{7, binary.BigEndian.AppendUint64(nil, math.Float64bits(-1.5))},
		Field{12, nil}, Field{13, nil}, Field{13 + 2*200, make([]byte, 200)}, Field{12 + 2*3, []byte("abc")})
	b := record(in...)
	out, err := Fields(append(b, "behind"...), nil)
	if err != nil || len(out) != len(in) {
		t.Fatalf("%d fields, %v", len(out), err)
	}
	for i, f := range out {
		if f.Serial != in[i].Serial || !bytes.Equal(f.Body, in[i].Body) {
			t.Errorf("field %d: %+v, want %+v", i, f, in[i])
		}
		if i < len(ints) && f.Int() != ints[i] {
			t.Errorf("field %d: %d, want %d", i, f.Int(), ints[i])
		}
	}
	if at := len(ints); out[at+1].Int() != 0 || out[at+2].Int() != 1 || out[at+3].Real() != -1.5 || out[at].Real() != 0 {
		t.Error("constants or reals are read wrong")
	}
	for _, bad := range [][]byte{nil, {0}, {5, 1}, {0x81}, {2, 10}, {2, 11}, {2, 1}, {3, 0x81, 0x81}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
		if _, err := Fields(bad, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%x: error %v", bad, err)
		}
	}
	if _, err := Fields(b[:len(b)-1], nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a record short of a byte: error %v", err)
	}
	dst := make([]Field, 0, 64)
	if n := testing.AllocsPerRun(100, func() { dst, _ = Fields(b, dst[:0]) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// build makes a page of cells; place tells where each starts from the end.
func build(typ PageType, usable int, cells [][]byte) []byte {
	page := make([]byte, usable)
	page[0] = byte(typ)
	binary.BigEndian.PutUint16(page[3:], uint16(len(cells)))
	header := 8
	if typ.Interior() {
		header = 12
		binary.BigEndian.PutUint32(page[8:], 99)
	}
	at := usable
	for i, c := range cells {
		at -= len(c)
		copy(page[at:], c)
		binary.BigEndian.PutUint16(page[header+2*i:], uint16(at))
	}
	binary.BigEndian.PutUint16(page[5:], uint16(at))
	return page
}

// cellOf writes a cell the way SQLite would.
func cellOf(typ PageType, usable int, rowid int64, payload []byte, overflow uint32) []byte {
	var c []byte
	if typ == InteriorIndex {
		c = append(c, 0, 0, 0, 7)
	}
	c = putVarint(c, uint64(len(payload)))
	if typ == LeafTable {
		c = putVarint(c, uint64(rowid))
	}
	local := localSize(typ, len(payload), usable)
	c = append(c, payload[:local]...)
	if local < len(payload) {
		c = binary.BigEndian.AppendUint32(c, overflow)
	}
	return c
}

// TestLocalSize pins the limits the format documents: the most that stays on
// the page, and the least that does when it does not fit.
func TestLocalSize(t *testing.T) {
	for _, c := range []struct {
		typ                    PageType
		payload, usable, local int
	}{
		{LeafTable, 4061, 4096, 4061}, {LeafTable, 4062, 4096, 489}, {LeafTable, 4581, 4096, 489}, {LeafTable, 8153, 4096, 4061}, {LeafTable, 8154, 4096, 489},
		{LeafTable, 477, 512, 477}, {LeafTable, 478, 512, 39}, {LeafTable, 65501, 65536, 65501}, {LeafTable, 65502, 65536, 8199},
		{LeafIndex, 1002, 4096, 1002}, {LeafIndex, 1003, 4096, 489}, {LeafIndex, 102, 512, 102}, {InteriorIndex, 103, 512, 39}, {LeafIndex, 445, 480, 35}, {LeafIndex, 570, 480, 94},
	} {
		if got := localSize(c.typ, c.payload, c.usable); got != c.local {
			t.Errorf("type %d, %d bytes in %d: %d local, want %d", c.typ, c.payload, c.usable, got, c.local)
		}
	}
	for _, c := range []struct{ rest, pages int }{{1, 1}, {508, 1}, {509, 2}, {1016, 2}, {1017, 3}} {
		if got := ChainLen(c.rest, 512); got != c.pages {
			t.Errorf("%d bytes: %d pages, want %d", c.rest, got, c.pages)
		}
	}
}

func TestCells(t *testing.T) {
	for _, typ := range []PageType{LeafTable, LeafIndex, InteriorIndex} {
		payloads := [][]byte{{}, []byte("a"), bytes.Repeat([]byte("b"), 90), bytes.Repeat([]byte("c"), 600)}
		var cells [][]byte
		for i, p := range payloads {
			cells = append(cells, cellOf(typ, 512, int64(i*1000)-1, p, 77))
		}
		var p Page
		if err := p.Parse(2, build(typ, 512, cells), 512); err != nil {
			t.Fatal(err)
		}
		for i, want := range payloads {
			var c Cell
			if err := p.Cell(i, &c); err != nil {
				t.Fatal(err)
			}
			if c.Payload != len(want) || !bytes.HasPrefix(want, c.Local) || (c.Overflow == 77) != (len(c.Local) < len(want)) {
				t.Errorf("type %d cell %d: %+v", typ, i, c)
			}
			if typ == LeafTable && c.Rowid != int64(i*1000)-1 {
				t.Errorf("rowid %d", c.Rowid)
			}
			if c.ChainLen(512) != ChainLen(len(want)-len(c.Local), 512) {
				t.Errorf("%d pages", c.ChainLen(512))
			}
		}
		for _, i := range []int{-1, len(payloads)} {
			if err := p.Cell(i, new(Cell)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("cell %d: error %v", i, err)
			}
		}
		if typ.Interior() {
			if p.Children() != len(payloads)+1 {
				t.Errorf("%d children", p.Children())
			}
			first, err1 := p.Child(0)
			last, err2 := p.Child(len(payloads))
			if first != 7 || last != 99 || errors.Join(err1, err2) != nil {
				t.Errorf("children %d, %d, %v, %v", first, last, err1, err2)
			}
		}
	}
}

func TestFileHeader(t *testing.T) {
	good := append([]byte(Magic), make([]byte, 84)...)
	good[16], good[59] = 2, 3
	if h, err := ParseFileHeader(good); err != nil || h != (FileHeader{512, 512, 3}) {
		t.Errorf("%+v, %v", h, err)
	}
	good[16], good[17], good[20] = 0, 1, 8
	if h, err := ParseFileHeader(good); err != nil || h != (FileHeader{65536, 65528, 3}) {
		t.Errorf("%+v, %v", h, err)
	}
	for _, edit := range []func(b []byte) []byte{
		func(b []byte) []byte { return b[:99] },
		func(b []byte) []byte { b[0] = 's'; return b },
		func(b []byte) []byte { b[16], b[17] = 3, 0; return b },
		func(b []byte) []byte { b[16], b[17] = 0, 2; return b },
		func(b []byte) []byte { b[16], b[17], b[20] = 2, 0, 33; return b },
		func(b []byte) []byte { b[59] = 4; return b },
	} {
		if _, err := ParseFileHeader(edit(slices.Clone(good))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("error %v", err)
		}
	}
}

// TestCommon compares with a plain comparison of all cells, over pages that
// got a few cells replaced, added, taken out or moved.
func TestCommon(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	longest := 0
	for range 3000 {
		typ := []PageType{LeafTable, LeafIndex, InteriorIndex}[rnd.IntN(3)]
		cell := func(i int) []byte {
			return cellOf(typ, 512, int64(i), bytes.Repeat([]byte{byte(rnd.IntN(3))}, rnd.IntN(110)), uint32(rnd.IntN(2)+5))
		}
		var a [][]byte
		for i := range 1 + rnd.IntN(6) {
			a = append(a, cell(i*10))
		}
		b := slices.Clone(a)
		for range rnd.IntN(3) {
			switch i := rnd.IntN(len(b)); rnd.IntN(3) {
			case 0:
				b[i] = cell(i * 10)
			case 1:
				b = slices.Insert(b, i, cell(i*10-5))
			case 2:
				if len(b) > 1 {
					b = slices.Delete(b, i, i+1)
				}
			}
		}
		if len(bytes.Join(a, nil)) > 450 || len(bytes.Join(b, nil)) > 450 {
			continue
		}
		pa, pb := build(typ, 512, a), build(typ, 512, b)
		var intact func(uint32) bool
		if rnd.IntN(2) == 0 {
			intact = func(head uint32) bool { return head != 5 }
		}
		var x, y Page
		if err := errors.Join(x.Parse(2, pa, 512), y.Parse(2, pb, 512)); err != nil {
			t.Fatal(err)
		}
		head, tail, err := Common(&x, &y, intact)
		if err != nil {
			t.Fatal(err)
		}
		same := func(i, k int) bool {
			var c, d Cell
			if err := errors.Join(x.Cell(i, &c), y.Cell(k, &d)); err != nil {
				t.Fatal(err)
			}
			return bytes.Equal(c.Raw, d.Raw) && (c.Overflow == 0 || intact == nil || intact(c.Overflow))
		}
		wantHead, wantTail := 0, 0
		for wantHead < min(len(a), len(b)) && same(wantHead, wantHead) {
			wantHead++
		}
		for wantTail < min(len(a), len(b))-wantHead && same(len(a)-1-wantTail, len(b)-1-wantTail) {
			wantTail++
		}
		if head != wantHead || tail != wantTail {
			t.Fatalf("type %d: %d and %d in common, want %d and %d\n%x\n%x", typ, head, tail, wantHead, wantTail, pa, pb)
		}
		longest = max(longest, head+tail)
	}
	if longest < 4 {
		t.Errorf("at most %d cells in common", longest)
	}
}

func BenchmarkCell(b *testing.B) {
	var cells [][]byte
	for i := range 60 {
		cells = append(cells, cellOf(LeafTable, 4096, int64(i+100000), make([]byte, 55), 0))
	}
	var p Page
	if err := p.Parse(2, build(LeafTable, 4096, cells), 4096); err != nil {
		b.Fatal(err)
	}
	var c Cell
	for b.Loop() {
		for i := range p.Len() {
			if err := p.Cell(i, &c); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// TestDiffer holds the short cut against the fields: what it calls different
// differs in a value, and it misses only what it may.
func TestDiffer(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	value := func() Field {
		switch rnd.IntN(5) {
		case 0:
			return intField(rnd.Int64N(300) - 150)
		case 1:
			return intField(rnd.Int64() - rnd.Int64())
		case 2:
			return Field{7, binary.BigEndian.AppendUint64(nil, math.Float64bits([]float64{1.5, -0.25, math.NaN()}[rnd.IntN(3)]))}
		case 3:
			return Field{Serial: uint64(8 + rnd.IntN(2))}
		}
		n := rnd.IntN(70)
		return Field{uint64(13 + 2*n), bytes.Repeat([]byte{byte('a' + rnd.IntN(2))}, n)}
	}
	found := 0
	for range 20_000 {
		var in []Field
		for range 1 + rnd.IntN(5) {
			in = append(in, value())
		}
		other := slices.Clone(in)
		for range rnd.IntN(2) {
			i := rnd.IntN(len(other))
			if other[i] = value(); rnd.IntN(2) == 0 && len(in[i].Body) > 0 {
				other[i] = Field{in[i].Serial, bytes.Clone(in[i].Body)}
				other[i].Body[rnd.IntN(len(other[i].Body))] ^= 1
			}
		}
		a, b := record(in...), record(other...)
		if rnd.IntN(8) == 0 { // bytes behind the last field do not count
			a, b = append(a, 1), append(b, 2)
		}
		wantSure, may := false, false
		for i := range in {
			if in[i].Serial == other[i].Serial && !bytes.Equal(in[i].Body, other[i].Body) {
				if !wantSure && !may {
					wantSure = in[i].Serial != 6 && in[i].Serial != 7
				}
				may = true
			}
			if in[i].Serial != other[i].Serial {
				wantSure, may = false, false
				break
			}
		}
		if got := Differ(a, b); got != wantSure {
			t.Fatalf("%x and %x: %v, want %v", a, b, got, wantSure)
		} else if got {
			found++
		}
	}
	if found < 1000 {
		t.Errorf("found %d", found)
	}
	for _, broken := range [][]byte{nil, {0}, {1}, {0x7f}, {0x80}, {9, 1}, {0, 1, 1}, {2, 0x81, 1}, {3, 0x81, 0x81, 1}, {2, 20, 1}} {
		other := bytes.Clone(broken)
		if n := len(other); n > 1 {
			other[n-1] ^= 7
		}
		if Differ(broken, other) || Differ(broken, broken) {
			t.Errorf("%x and %x differ", broken, other)
		}
	}
}

// TestExcerpt reads cells of an excerpt and of their page.
func TestExcerpt(t *testing.T) {
	for _, typ := range []PageType{LeafTable, LeafIndex} {
		var cells [][]byte
		for i := range 6 {
			cells = append(cells, cellOf(typ, 512, int64(i*70), bytes.Repeat([]byte{byte(i)}, 10+i*i*5), 9))
		}
		var p, few Page
		if err := p.Parse(2, build(typ, 512, cells), 512); err != nil {
			t.Fatal(err)
		}
		data, err := p.AppendExcerpt([]byte("before"), 2, 5)
		if err != nil {
			t.Fatal(err)
		}
		few.ParseExcerpt(Excerpt{Type: typ, Usable: 512, Cells: 3, Data: append(data, "behind"...)[6:]})
		if few.Len() != 3 || few.Children() != 0 {
			t.Fatalf("%d cells, %d children", few.Len(), few.Children())
		}
		for i := range 3 {
			var a, b Cell
			if err := errors.Join(p.Cell(i+2, &a), few.Cell(i, &b)); err != nil {
				t.Fatal(err)
			}
			if a.Rowid != b.Rowid || a.Payload != b.Payload || a.Overflow != b.Overflow || !bytes.Equal(a.Raw, b.Raw) || !bytes.Equal(a.Local, b.Local) {
				t.Errorf("type %d cell %d: %+v, want %+v", typ, i+2, b, a)
			}
		}
		if err := few.Cell(3, new(Cell)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cell 3 of 3: error %v", err)
		}
	}
}
