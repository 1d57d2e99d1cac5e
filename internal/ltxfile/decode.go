package ltxfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"

	"github.com/pierrec/lz4/v4"
)

// Decode reads a whole file of size bytes from r and hands out its pages in
// ascending order; data is valid until the call returns. Both LZ4 forms are
// read, in one file too. Pages are handed out before the checksum behind them
// is known: nothing may be trusted until Decode has returned nil, so callers
// stage what they get and throw it away on an error.
//
// Checked are the header, the order and range of pages, the LZ4 data and its
// checksums, the page index against the pages, the checksum of the file, the
// rolling checksum where the file is a full image that tracks it, and that
// the file ends where it should. A failed check wraps ErrCorrupt. An error of
// page is returned as it is, and so is, with its offset, one of r other than
// io.EOF. Memory is bounded whatever the file says: a page and a window of
// 256 KiB.
func Decode(r io.Reader, size int64, page func(pgno uint32, data []byte) error) (Info, error) {
	return DecodeInto(r, size, func() []byte { return nil }, page)
}

// DecodeInto is Decode for callers who keep the pages: each is decoded into
// the memory that room gave for it, a page long, or into the decoder's own
// where that is nil. Memory that was given may be given again unless page was
// called with it.
func DecodeInto(r io.Reader, size int64, room func() []byte, page func(pgno uint32, data []byte) error) (Info, error) {
	if size < minFileSize {
		return Info{}, fmt.Errorf("file of %d bytes, at least %d: %w", size, minFileSize, ErrCorrupt)
	}
	b := pool.Get().(*buffers)
	defer b.giveBack()
	d := decoder{win: b.window(r, size), crc: newCRC, memory: b, room: room}
	if err := d.header(); err != nil {
		return Info{}, err
	}
	if err := d.pages(page); err != nil {
		return Info{}, err
	}
	if err := d.index(); err != nil {
		return Info{}, fmt.Errorf("page index: %w", err)
	}
	if err := d.trailer(); err != nil {
		return Info{}, err
	}
	return d.info, nil
}

// buffers are what a decoder needs of memory, to be used by the next.
type buffers struct {
	win  window
	page []byte
}

var pool = sync.Pool{New: func() any { return new(buffers) }}

// window is one over the reader, with the memory of the last.
func (b *buffers) window(r io.Reader, size int64) *window {
	n := int(min(size, windowSize))
	if cap(b.win.buf) < n {
		b.win.buf = make([]byte, n)
	}
	b.win = window{r: r, buf: b.win.buf[:n], left: size}
	return &b.win
}

func (b *buffers) giveBack() {
	b.win.r = nil
	pool.Put(b)
}

// own is memory for a page that the caller has none for.
func (b *buffers) own(size uint32) []byte {
	if cap(b.page) < int(size) {
		b.page = make([]byte, size)
	}
	return b.page[:size]
}

// decoder is the state of one Decode.
type decoder struct {
	memory *buffers
	win    *window
	room   func() []byte
	info   Info
	crc    crc
	page   []byte // the page that is being decoded
	bound  int    // the most bytes that a compressed page can take

	rolling uint64       // exclusive or of the page checksums, when tracked
	seen    maphash.Hash // number, offset and size of every page, in order
	listed  maphash.Hash // the same from the index
}

func (d *decoder) header() error {
	b, err := d.win.next(HeaderSize)
	if err != nil {
		return err
	}
	if d.info.Header, err = ParseHeader(b); err != nil {
		return err
	}
	d.crc = d.crc.update(b)
	d.bound = lz4.CompressBlockBound(int(d.info.PageSize))
	d.listed.SetSeed(d.seen.Seed())
	return nil
}

// pages reads up to and including the mark behind the last page.
func (d *decoder) pages(visit func(uint32, []byte) error) error {
	lock := LockPage(d.info.PageSize)
	last := uint32(0)
	for {
		start := d.win.off
		b, err := d.win.next(pageHeaderSize)
		if err != nil {
			return err
		}
		pgno, flags := binary.BigEndian.Uint32(b), binary.BigEndian.Uint16(b[4:])
		d.crc = d.crc.update(b)
		switch {
		case pgno == 0 && flags == 0:
			return nil
		case pgno <= last:
			return fmt.Errorf("offset %d: page %d behind page %d: %w", start, pgno, last, ErrCorrupt)
		case pgno > d.info.Commit:
			return fmt.Errorf("offset %d: page %d in a database of %d pages: %w", start, pgno, d.info.Commit, ErrCorrupt)
		case pgno == lock:
			return fmt.Errorf("offset %d: page %d is the lock page: %w", start, pgno, ErrCorrupt)
		}
		if d.page = d.room(); len(d.page) != int(d.info.PageSize) {
			d.page = d.memory.own(d.info.PageSize)
		}
		if err := d.unpack(flags); err != nil {
			return fmt.Errorf("page %d at offset %d: %w", pgno, start, err)
		}
		last = pgno
		d.took(pgno, start)
		if err := visit(pgno, d.page); err != nil {
			return err
		}
	}
}

// unpack decodes the next page in the form that its flags say.
func (d *decoder) unpack(flags uint16) error {
	switch flags {
	case 0:
		return d.unpackFrame()
	case pageFlagSized:
		return d.unpackBlock()
	}
	return fmt.Errorf("unknown flags %#x: %w", flags, ErrCorrupt)
}

// unpackBlock decodes a raw LZ4 block behind its size.
func (d *decoder) unpackBlock() error {
	b, err := d.win.next(sizeFieldSize)
	if err != nil {
		return err
	}
	d.crc = d.crc.update(b)
	size := binary.BigEndian.Uint32(b)
	if int64(size) > int64(d.bound) {
		return fmt.Errorf("LZ4 block of %d bytes for a page of %d: %w", size, len(d.page), ErrCorrupt)
	}
	if b, err = d.win.next(int(size)); err != nil {
		return err
	}
	n, err := lz4.UncompressBlock(b, d.page)
	if err != nil || n != len(d.page) {
		return fmt.Errorf("LZ4 block does not decode into a page: %w", ErrCorrupt)
	}
	return nil
}

// took accounts for a decoded page that began at offset start.
func (d *decoder) took(pgno uint32, start int64) {
	d.info.Pages++
	d.crc = d.crc.update(d.page)
	if !d.info.NoChecksum() {
		d.rolling ^= PageChecksum(pgno, d.page)
	}
	note(&d.seen, uint64(pgno), uint64(start), uint64(d.win.off-start))
}

// note adds one page's entry to a hash over all entries. Two such hashes with
// one random seed compare lists of any length in constant memory.
func note(h *maphash.Hash, pgno, offset, size uint64) {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], pgno)
	binary.LittleEndian.PutUint64(b[8:], offset)
	binary.LittleEndian.PutUint64(b[16:], size)
	_, _ = h.Write(b[:]) // never fails
}

// index reads the page index and compares it with the pages that were read.
func (d *decoder) index() error {
	start := d.win.off
	for {
		pgno, err := d.uvarint()
		if err != nil {
			return err
		}
		if pgno == 0 {
			break
		}
		offset, err := d.uvarint()
		if err != nil {
			return err
		}
		size, err := d.uvarint()
		if err != nil {
			return err
		}
		note(&d.listed, pgno, offset, size)
	}
	length := d.win.off - start
	b, err := d.win.next(indexLengthSize)
	if err != nil {
		return err
	}
	d.crc = d.crc.update(b)
	if got := binary.BigEndian.Uint64(b); got != uint64(length) {
		return fmt.Errorf("is %d bytes long and says %d: %w", length, got, ErrCorrupt)
	}
	if d.seen.Sum64() != d.listed.Sum64() {
		return fmt.Errorf("does not list the %d pages of the file: %w", d.info.Pages, ErrCorrupt)
	}
	return nil
}

func (d *decoder) uvarint() (uint64, error) {
	b, err := d.win.peek(binary.MaxVarintLen64)
	if err != nil {
		return 0, err
	}
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, fmt.Errorf("offset %d: malformed number: %w", d.win.off, ErrCorrupt)
	}
	if b, err = d.win.next(n); err != nil {
		return 0, err
	}
	d.crc = d.crc.update(b)
	return v, nil
}

// trailer reads the checksums and settles whether the file is whole.
func (d *decoder) trailer() error {
	b, err := d.win.next(TrailerSize)
	if err != nil {
		return err
	}
	d.info.PostApply = binary.BigEndian.Uint64(b)
	d.crc = d.crc.update(b[:8])
	if d.info.Checksum, err = TrailerChecksum(b); err != nil {
		return err
	}
	if d.info.Checksum != d.crc.sum() {
		return fmt.Errorf("file fails its checksum: %w", ErrCorrupt)
	}
	if err := d.info.checkPostApply(d.rolling | ChecksumFlag); err != nil {
		return fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	return d.win.finish()
}

// checkPostApply tells what is wrong with the rolling checksum after the
// file; rolling is that of the file's pages.
func (i Info) checkPostApply(rolling uint64) error {
	switch {
	case i.NoChecksum():
		return nil
	case i.PostApply&ChecksumFlag == 0:
		return errors.New("no post-apply checksum")
	case (i.MinTXID == 1 || i.Full()) && i.PostApply != rolling:
		return errors.New("pages do not add up to the post-apply checksum")
	}
	return nil
}
