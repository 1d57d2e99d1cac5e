package celldsim

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Layout of a WAL (SQLite file format 4.1 and 4.2).
const (
	walHeaderSize   = 32
	frameHeaderSize = 24
	walMagic        = 0x377f0682 // checksums over little-endian words; +1: big-endian
)

// walMark is a place between two transactions of one WAL, with what is needed
// to go on verifying the frames that follow it.
type walMark struct {
	offset       int64 // of the next frame; 0 when no WAL has been read
	salt1, salt2 uint32
	sum1, sum2   uint32
}

// walScan is what a WAL holds after a mark.
type walScan struct {
	start, end walMark
	pageSize   uint32
	// commit is the database size in pages after the last commit, 0 when
	// there was no commit.
	commit uint32
	// pages maps a page number to the offset of its newest committed image.
	pages map[uint32]int64
	// restarted says that the WAL is another one than the mark was taken
	// in, so that frames between the two were seen by nobody.
	restarted bool
}

// scanWAL reads the committed frames that follow mark. A WAL that is absent
// (empty) or holds no further commit gives a scan with commit 0. Frames that
// are torn, of an earlier WAL, or not yet committed end the scan.
func scanWAL(r io.ReaderAt, size int64, mark walMark) (walScan, error) {
	scan := walScan{start: mark, end: mark, pages: map[uint32]int64{}}
	if size < walHeaderSize {
		return scan, nil
	}
	var head [walHeaderSize]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return scan, fmt.Errorf("read the WAL header: %w", err)
	}
	magic := binary.BigEndian.Uint32(head[0:])
	if magic&^1 != walMagic {
		return scan, fmt.Errorf("read the WAL header: unknown magic %#x", magic)
	}
	var order binary.ByteOrder = binary.LittleEndian
	if magic&1 == 1 {
		order = binary.BigEndian
	}
	scan.pageSize = binary.BigEndian.Uint32(head[8:])
	salt1, salt2 := binary.BigEndian.Uint32(head[16:]), binary.BigEndian.Uint32(head[20:])
	if mark.offset == 0 || mark.salt1 != salt1 || mark.salt2 != salt2 {
		scan.restarted = mark.offset != 0
		sum1, sum2 := walChecksum(order, 0, 0, head[:24])
		if sum1 != binary.BigEndian.Uint32(head[24:]) || sum2 != binary.BigEndian.Uint32(head[28:]) {
			return scan, nil // the header is still being written
		}
		scan.start = walMark{offset: walHeaderSize, salt1: salt1, salt2: salt2, sum1: sum1, sum2: sum2}
		scan.end = scan.start
	}
	return scan, scan.frames(r, order)
}

// frames advances the scan over every committed frame after its start.
func (s *walScan) frames(r io.ReaderAt, order binary.ByteOrder) error {
	frame := make([]byte, frameHeaderSize+int(s.pageSize))
	open := map[uint32]int64{} // frames of the transaction being read
	for at := s.start; ; {
		if _, err := r.ReadAt(frame, at.offset); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the WAL frame at offset %d: %w", at.offset, err)
		}
		if binary.BigEndian.Uint32(frame[8:]) != at.salt1 || binary.BigEndian.Uint32(frame[12:]) != at.salt2 {
			return nil
		}
		at.sum1, at.sum2 = walChecksum(order, at.sum1, at.sum2, frame[:8])
		at.sum1, at.sum2 = walChecksum(order, at.sum1, at.sum2, frame[frameHeaderSize:])
		if binary.BigEndian.Uint32(frame[16:]) != at.sum1 || binary.BigEndian.Uint32(frame[20:]) != at.sum2 {
			return nil
		}
		open[binary.BigEndian.Uint32(frame)] = at.offset + frameHeaderSize
		at.offset += int64(len(frame))
		if commit := binary.BigEndian.Uint32(frame[4:]); commit != 0 {
			for pgno, offset := range open {
				s.pages[pgno] = offset
			}
			clear(open)
			s.commit, s.end = commit, at
		}
	}
}

// walChecksum continues the running checksum of a WAL over b, whose length
// is a multiple of eight (SQLite file format 4.2).
func walChecksum(order binary.ByteOrder, sum1, sum2 uint32, b []byte) (uint32, uint32) {
	for i := 0; i+8 <= len(b); i += 8 {
		sum1 += order.Uint32(b[i:]) + sum2
		sum2 += order.Uint32(b[i+4:]) + sum1
	}
	return sum1, sum2
}
