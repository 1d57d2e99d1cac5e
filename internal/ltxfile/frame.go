package ltxfile

import (
	"encoding/binary"
	"fmt"

	"github.com/pierrec/lz4/v4"
)

// The LZ4 frame format 1.6.4, as far as it concerns frames of one page.
const (
	frameMagic = 0x184D2204

	frameVersion         = 0x40 // bits 6 and 7 of the flags
	frameVersionMask     = 0xC0
	frameIndependent     = 0x20
	frameBlockChecksum   = 0x10
	frameContentSize     = 0x08
	frameContentChecksum = 0x04
	frameReserved        = 0x03 // reserved, and the dictionary nobody writes

	frameBlock64K      = 0x40 // block size byte: blocks of 64 KiB
	frameBlockReserved = 0x8F
	frameRawBlock      = 1 << 31 // in a block's size: stored, not compressed
)

// unpackFrame decodes one LZ4 frame that holds exactly one page.
func (d *decoder) unpackFrame() error {
	flags, err := d.frameDescriptor()
	if err != nil {
		return err
	}
	filled := 0
	for {
		n, err := d.frameBlock(flags, filled)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		filled += n
	}
	if filled != len(d.page) {
		return fmt.Errorf("LZ4 frame of %d bytes, want %d: %w", filled, len(d.page), ErrCorrupt)
	}
	if flags&frameContentChecksum == 0 {
		return nil
	}
	return d.checkXXH32("LZ4 frame", d.page)
}

// frameDescriptor reads what precedes the blocks.
func (d *decoder) frameDescriptor() (flags byte, err error) {
	b, err := d.win.next(7)
	if err != nil {
		return 0, err
	}
	flags, block := b[4], b[5]
	switch {
	case binary.LittleEndian.Uint32(b) != frameMagic:
		return 0, fmt.Errorf("no LZ4 frame: %w", ErrCorrupt)
	case flags&frameVersionMask != frameVersion, flags&frameReserved != 0,
		block&frameBlockReserved != 0, block < frameBlock64K:
		return 0, fmt.Errorf("LZ4 frame with the flags %#x %#x: %w", flags, block, ErrCorrupt)
	}
	descriptor := [10]byte{flags, block}
	n, sum := 2, b[6]
	if flags&frameContentSize != 0 {
		descriptor[2] = sum
		if b, err = d.win.next(8); err != nil {
			return 0, err
		}
		copy(descriptor[3:], b[:7])
		n, sum = 10, b[7]
		if size := binary.LittleEndian.Uint64(descriptor[2:]); size != uint64(len(d.page)) {
			return 0, fmt.Errorf("LZ4 frame announces %d bytes, want %d: %w", size, len(d.page), ErrCorrupt)
		}
	}
	if byte(xxh32(descriptor[:n])>>8) != sum {
		return 0, fmt.Errorf("LZ4 frame descriptor fails its checksum: %w", ErrCorrupt)
	}
	return flags, nil
}

// frameBlock decodes the next block behind the filled part of the page and
// returns how much it added; 0 at the end of the frame.
func (d *decoder) frameBlock(flags byte, filled int) (int, error) {
	b, err := d.win.next(sizeFieldSize)
	if err != nil {
		return 0, err
	}
	field := binary.LittleEndian.Uint32(b)
	if field == 0 {
		return 0, nil
	}
	size := int64(field &^ frameRawBlock)
	if size == 0 || size > int64(d.bound) {
		return 0, fmt.Errorf("LZ4 block of %d bytes for a page of %d: %w", size, len(d.page), ErrCorrupt)
	}
	if b, err = d.win.next(int(size)); err != nil {
		return 0, err
	}
	var n int
	switch rest := d.page[filled:]; {
	case field&frameRawBlock != 0 && int(size) <= len(rest):
		n = copy(rest, b)
	case field&frameRawBlock != 0:
		return 0, fmt.Errorf("LZ4 frame is larger than a page: %w", ErrCorrupt)
	case flags&frameIndependent != 0:
		n, err = lz4.UncompressBlock(b, rest)
	default:
		n, err = lz4.UncompressBlockWithDict(b, rest, d.page[:filled])
	}
	if err != nil || n == 0 {
		return 0, fmt.Errorf("LZ4 block does not decode into a page: %w", ErrCorrupt)
	}
	if flags&frameBlockChecksum != 0 {
		return n, d.checkXXH32("LZ4 block", b)
	}
	return n, nil
}

// checkXXH32 reads the checksum that follows data and compares.
func (d *decoder) checkXXH32(what string, data []byte) error {
	want := xxh32(data) // before the window moves, data may be part of it
	b, err := d.win.next(4)
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(b) != want {
		return fmt.Errorf("%s fails its checksum: %w", what, ErrCorrupt)
	}
	return nil
}
