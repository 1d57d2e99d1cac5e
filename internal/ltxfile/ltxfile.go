// Package ltxfile reads and writes LTX files: the pages that a span of
// transactions changed in a SQLite database, as Litestream and celld store
// them. It reads with distrust: a file may be torn, truncated or flipped, and
// every size in it is checked before anything is allocated or believed.
//
// A file is a header of 100 bytes, pages in ascending order each with its
// number and LZ4 data, six zero bytes, an index of the pages, and a trailer
// of 16 bytes. All numbers of the format are big-endian; those inside LZ4
// data are little-endian. The checksum in the trailer covers the header, the
// page headers, the uncompressed pages and the index, so it is both the proof
// that a file is whole and a name for its content.
package ltxfile

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt is wrapped by every error about a file that is torn, truncated,
// altered or inconsistent in itself.
var ErrCorrupt = errors.New("corrupt LTX file")

// Sizes of the fixed parts of a file, in bytes.
const (
	HeaderSize  = 100
	TrailerSize = 16
)

// Limits of SQLite's page size, in bytes (SQLite file format 1.3.2).
const (
	MinPageSize = 512
	MaxPageSize = 65536
)

// FlagNoChecksum in Header.Flags says that the database's rolling checksum is
// not tracked: PreApply and PostApply are zero. The checksum of the file
// itself is present all the same.
const FlagNoChecksum = 0x2

// ChecksumFlag is set in every checksum of the format, so that none is zero.
const ChecksumFlag = 1 << 63

const (
	magic          = "LTX1"
	pageHeaderSize = 6
	sizeFieldSize  = 4
	// pageFlagSized in a page header: a size field and a raw LZ4 block
	// follow. Without it an LZ4 frame follows.
	pageFlagSized = 0x1
	// indexLengthSize is the size of the field behind the page index.
	indexLengthSize = 8
	// minFileSize is the size of a file without pages.
	minFileSize = HeaderSize + pageHeaderSize + 1 + indexLengthSize + TrailerSize
	// minStoredPage is less than any page takes: its header, and the size
	// field of the shorter form.
	minStoredPage = pageHeaderSize + sizeFieldSize
	// pendingByte is the offset that SQLite locks and never stores data at
	// (SQLite file format 1.5).
	pendingByte = 0x40000000
)

// Header is the first part of a file.
type Header struct {
	Flags    uint32
	PageSize uint32 // bytes
	// Commit is the size of the database after the file, in pages.
	Commit uint32
	// MinTXID and MaxTXID are the transactions that the file covers.
	MinTXID, MaxTXID uint64
	Timestamp        int64 // unix milliseconds, by the clock of the writer
	// PreApply is the rolling checksum of the database before the file.
	PreApply uint64
	// WALOffset, WALSize, WALSalt1 and WALSalt2 say which bytes of which
	// write-ahead log were captured; zero in compacted files.
	WALOffset, WALSize int64
	WALSalt1, WALSalt2 uint32
	NodeID             uint64
}

// Info is what is known of a file once all of it has been read.
type Info struct {
	Header
	Pages     int    // pages in the file
	PostApply uint64 // rolling checksum of the database after the file
	Checksum  uint64 // checksum of the file
}

// NoChecksum reports whether the rolling checksum is left out.
func (h Header) NoChecksum() bool { return h.Flags&FlagNoChecksum != 0 }

// Full reports whether the file holds every page of the database, so that it
// needs no base. The page that SQLite locks is never stored and not missed.
func (i Info) Full() bool {
	want := int64(i.Commit)
	if i.Commit >= LockPage(i.PageSize) {
		want--
	}
	return int64(i.Pages) == want
}

// LockPage is the number of the page that holds the bytes SQLite locks. No
// file contains it. pageSize must be a legal page size.
func LockPage(pageSize uint32) uint32 { return pendingByte/pageSize + 1 }

// MaxPages is more pages than a file of size bytes can hold. Since a file holds
// every page by which the database grew, it bounds what a header may claim
// before the file has been read.
func MaxPages(size int64) int64 { return max(size, 0) / minStoredPage }

// ParseHeader reads the header from the first HeaderSize bytes of a file and
// checks every field that has a rule. Errors wrap ErrCorrupt.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("header of %d bytes, want %d: %w", len(b), HeaderSize, ErrCorrupt)
	}
	if string(b[:4]) != magic {
		return Header{}, fmt.Errorf("header does not start with %s: %w", magic, ErrCorrupt)
	}
	be := binary.BigEndian
	h := Header{
		Flags:     be.Uint32(b[4:]),
		PageSize:  be.Uint32(b[8:]),
		Commit:    be.Uint32(b[12:]),
		MinTXID:   be.Uint64(b[16:]),
		MaxTXID:   be.Uint64(b[24:]),
		Timestamp: int64(be.Uint64(b[32:])),
		PreApply:  be.Uint64(b[40:]),
		WALOffset: int64(be.Uint64(b[48:])),
		WALSize:   int64(be.Uint64(b[56:])),
		WALSalt1:  be.Uint32(b[64:]),
		WALSalt2:  be.Uint32(b[68:]),
		NodeID:    be.Uint64(b[72:]),
	}
	if err := h.check(); err != nil {
		return Header{}, fmt.Errorf("header: %w: %w", err, ErrCorrupt)
	}
	return h, nil
}

// check tells what is wrong with a header, for readers and writers alike.
func (h Header) check() error {
	switch {
	case h.Flags&^FlagNoChecksum != 0:
		return fmt.Errorf("unknown flags %#x", h.Flags)
	case h.PageSize < MinPageSize || h.PageSize > MaxPageSize || h.PageSize&(h.PageSize-1) != 0:
		return fmt.Errorf("page size %d", h.PageSize)
	case h.MinTXID == 0 || h.MaxTXID < h.MinTXID:
		return fmt.Errorf("transactions %d to %d", h.MinTXID, h.MaxTXID)
	case h.WALOffset < 0 || h.WALSize < 0:
		return fmt.Errorf("%d bytes at offset %d of a log", h.WALSize, h.WALOffset)
	case (h.NoChecksum() || h.MinTXID == 1) && h.PreApply != 0:
		return errors.New("a pre-apply checksum where none can be")
	case !h.NoChecksum() && h.MinTXID > 1 && h.PreApply&ChecksumFlag == 0:
		return errors.New("no pre-apply checksum")
	}
	return nil
}

// append writes the header as it is stored.
func (h Header) append(dst []byte) []byte {
	be := binary.BigEndian
	dst = append(dst, magic...)
	dst = be.AppendUint32(dst, h.Flags)
	dst = be.AppendUint32(dst, h.PageSize)
	dst = be.AppendUint32(dst, h.Commit)
	dst = be.AppendUint64(dst, h.MinTXID)
	dst = be.AppendUint64(dst, h.MaxTXID)
	dst = be.AppendUint64(dst, uint64(h.Timestamp))
	dst = be.AppendUint64(dst, h.PreApply)
	dst = be.AppendUint64(dst, uint64(h.WALOffset))
	dst = be.AppendUint64(dst, uint64(h.WALSize))
	dst = be.AppendUint32(dst, h.WALSalt1)
	dst = be.AppendUint32(dst, h.WALSalt2)
	dst = be.AppendUint64(dst, h.NodeID)
	return append(dst, make([]byte, HeaderSize-80)...) // reserved
}

// TrailerChecksum reads the checksum of a file from its last TrailerSize
// bytes: of two files with equal checksums one stands for the other. It says
// nothing about the rest of the file being whole. Errors wrap ErrCorrupt.
func TrailerChecksum(b []byte) (uint64, error) {
	if len(b) != TrailerSize {
		return 0, fmt.Errorf("trailer of %d bytes, want %d: %w", len(b), TrailerSize, ErrCorrupt)
	}
	sum := binary.BigEndian.Uint64(b[8:])
	if sum&ChecksumFlag == 0 {
		return 0, fmt.Errorf("trailer without a file checksum: %w", ErrCorrupt)
	}
	return sum, nil
}
