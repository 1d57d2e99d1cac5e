package ltxfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/pierrec/lz4/v4"
)

// Form is how a writer stores pages.
type Form uint8

const (
	// Frame stores every page as an LZ4 frame, as celld's captures and its
	// handoff snapshots do.
	Frame Form = iota
	// Block stores every page as a raw LZ4 block behind its size, as
	// compacted files and merged uploads do.
	Block
)

// Writer writes one file. What it writes is a function of the header, the
// form and the pages alone.
type Writer struct {
	w     io.Writer
	h     Header
	form  Form
	err   error // the first failure: a file with a hole cannot be finished
	off   int64
	crc   crc
	last  uint32
	index []byte
	buf   []byte // the page as it is stored
	lz    lz4.Compressor
}

var errClosed = errors.New("write LTX file: already closed")

// NewWriter writes the header of a file to w. The header must obey the rules
// that a reader checks.
func NewWriter(w io.Writer, h Header, form Form) (*Writer, error) {
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("write LTX header: %w", err)
	}
	if form > Block {
		return nil, fmt.Errorf("write LTX header: unknown form %d", form)
	}
	lw := &Writer{w: w, h: h, form: form, crc: newCRC}
	header := h.append(nil)
	lw.crc = lw.crc.update(header)
	lw.write(header)
	return lw, lw.err
}

// WritePage adds a page. Pages come in ascending order, within Header.Commit,
// without the lock page, each of Header.PageSize bytes.
func (w *Writer) WritePage(pgno uint32, data []byte) error {
	if w.err != nil {
		return w.err
	}
	switch {
	case pgno <= w.last || pgno > w.h.Commit:
		return fmt.Errorf("write LTX page %d: after page %d in a database of %d pages", pgno, w.last, w.h.Commit)
	case pgno == LockPage(w.h.PageSize):
		return fmt.Errorf("write LTX page %d: it is the lock page", pgno)
	case len(data) != int(w.h.PageSize):
		return fmt.Errorf("write LTX page %d: %d bytes, want %d", pgno, len(data), w.h.PageSize)
	}
	var err error
	if w.form == Block {
		err = w.packBlock(pgno, data)
	} else {
		err = w.packFrame(pgno, data)
	}
	if err != nil {
		w.err = fmt.Errorf("compress LTX page %d: %w", pgno, err)
		return w.err
	}
	w.crc = w.crc.update(data)
	w.last = pgno
	w.index = binary.AppendUvarint(w.index, uint64(pgno))
	w.index = binary.AppendUvarint(w.index, uint64(w.off))
	w.index = binary.AppendUvarint(w.index, uint64(len(w.buf)))
	w.write(w.buf)
	return w.err
}

// packBlock lays out a page as a raw LZ4 block.
func (w *Writer) packBlock(pgno uint32, data []byte) error {
	const head = pageHeaderSize + sizeFieldSize
	w.grow(head + lz4.CompressBlockBound(len(data)))
	n, err := w.lz.CompressBlock(data, w.buf[head:cap(w.buf)])
	if err != nil {
		return err
	}
	w.buf = w.buf[:head+n]
	binary.BigEndian.PutUint32(w.buf, pgno)
	binary.BigEndian.PutUint16(w.buf[4:], pageFlagSized)
	binary.BigEndian.PutUint32(w.buf[pageHeaderSize:], uint32(n))
	w.crc = w.crc.update(w.buf[:head])
	return nil
}

// packFrame lays out a page as an LZ4 frame of one independent block with a
// content checksum.
func (w *Writer) packFrame(pgno uint32, data []byte) error {
	const blockAt = pageHeaderSize + 7 // behind the frame's descriptor
	const head = blockAt + sizeFieldSize
	w.grow(head + lz4.CompressBlockBound(len(data)) + 8)
	n, err := w.lz.CompressBlock(data, w.buf[head:cap(w.buf)])
	if err != nil {
		return err
	}
	size := uint32(n)
	if n >= len(data) {
		n = copy(w.buf[head:cap(w.buf)], data)
		size = uint32(n) | frameRawBlock
	}
	le := binary.LittleEndian
	w.buf = w.buf[:head+n]
	binary.BigEndian.PutUint32(w.buf, pgno)
	binary.BigEndian.PutUint16(w.buf[4:], 0)
	w.crc = w.crc.update(w.buf[:pageHeaderSize])
	le.PutUint32(w.buf[pageHeaderSize:], frameMagic)
	descriptor := []byte{frameVersion | frameIndependent | frameContentChecksum, frameBlock64K}
	copy(w.buf[pageHeaderSize+4:], descriptor)
	w.buf[blockAt-1] = byte(xxh32(descriptor) >> 8)
	le.PutUint32(w.buf[blockAt:], size)
	w.buf = le.AppendUint32(w.buf, 0) // end of the blocks
	w.buf = le.AppendUint32(w.buf, xxh32(data))
	return nil
}

// grow makes the page buffer at least n bytes long.
func (w *Writer) grow(n int) {
	if cap(w.buf) < n {
		w.buf = make([]byte, n)
	}
	w.buf = w.buf[:n]
}

// Close writes what follows the pages and returns the checksum of the file.
// postApply is the rolling checksum of the database after the file: zero when
// the header says that it is not tracked. The underlying writer stays open.
func (w *Writer) Close(postApply uint64) (fileChecksum uint64, err error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.h.NoChecksum() != (postApply == 0) || postApply != 0 && postApply&ChecksumFlag == 0 {
		return 0, fmt.Errorf("write LTX trailer: post-apply checksum %#x with the header flags %#x", postApply, w.h.Flags)
	}
	tail := make([]byte, pageHeaderSize) // the mark behind the last page
	tail = append(tail, w.index...)
	tail = append(tail, 0)
	tail = binary.BigEndian.AppendUint64(tail, uint64(len(w.index)+1))
	tail = binary.BigEndian.AppendUint64(tail, postApply)
	sum := w.crc.update(tail).sum()
	w.write(binary.BigEndian.AppendUint64(tail, sum))
	if w.err != nil {
		return 0, w.err
	}
	w.err = errClosed
	return sum, nil
}

// write passes bytes on and remembers a failure.
func (w *Writer) write(b []byte) {
	n, err := w.w.Write(b)
	w.off += int64(n)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = fmt.Errorf("write LTX file at offset %d: %w", w.off, err)
	}
}
