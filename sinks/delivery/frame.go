package delivery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"celldexport/envelope"
)

// An entry on disk is a head and then blocks. All integers are little endian.
//
//	head    0  8  entryMagic
//	        8  4  length of the head
//	       12  4  crc32c of the head from byte 16, seeded with the segment's salt
//	       16  8  sequence number
//	       24  8  length of all blocks
//	       32  8  length of the segment that was durable when this was written
//	       40  .. the summary: counts and the unit's identity
//	block   0  1  section: pages or records
//	        1  1  1 when compressed with S2
//	        2  2  zero
//	        4  4  length before compression
//	        8  4  length as stored
//	       12  4  crc32c of bytes 0-12 and the stored bytes
//
// The salt is random per segment: bytes of another spool inside a page image
// are never taken for an entry of this one.
const (
	entryMagic   = "cxentry1"
	headFixed    = 40
	headUsual    = 512 // few are longer
	headMax      = 1 << 20
	blockHead    = 16
	segmentMagic = "cxspool2"
	segmentHead  = 32
)

type section byte

const (
	sectionPages section = iota + 1
	sectionRecords
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

var errTorn = errors.New("entry is not whole")

// summary is what the head of an entry says beside its place.
type summary struct {
	unit Unit
	// pages and records are how many the blocks hold (records: fragments
	// counted one by one); bytes is the encoded size of the records.
	pages, records, bytes int64
	// counted and positions are what a watermark counts of the entry.
	counted, positions uint64
	// link and snapshot are set when one of the records is a link, or the end
	// of a snapshot of the whole stream.
	link, snapshot bool
	// gap is set when one of the records is a gap.
	gap bool
	// spooledAt is when the entry was committed, unix milliseconds.
	spooledAt int64
}

const (
	flagCellName = 1 << iota
	flagUncertified
	flagLink
	flagSnapshot
	flagGap
)

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendStream(b []byte, s envelope.Stream) []byte {
	for _, part := range []string{s.Script, s.Class, s.Cell, s.Facet} {
		b = appendString(b, part)
	}
	return binary.AppendUvarint(b, s.Incarnation)
}

func (s *summary) append(b []byte) []byte {
	u := &s.unit
	var flags uint64
	if u.CellName != nil {
		flags |= flagCellName
	}
	if u.Uncertified {
		flags |= flagUncertified
	}
	if s.link {
		flags |= flagLink
	}
	if s.snapshot {
		flags |= flagSnapshot
	}
	if s.gap {
		flags |= flagGap
	}
	b = append(b, byte(u.Form))
	b = binary.AppendUvarint(b, flags)
	b = appendStream(b, u.Stream)
	if u.CellName != nil {
		b = appendString(b, *u.CellName)
	}
	for _, part := range []string{u.Node, u.Scope, u.Sink} {
		b = appendString(b, part)
	}
	for _, n := range []uint64{
		uint64(u.CommittedAt), u.Position.Epoch, u.Position.TXID, u.Position.Commit,
		u.MinTXID, u.MaxTXID, uint64(u.PageSize), uint64(u.Commit), u.Checksum,
		uint64(s.pages), uint64(s.records), uint64(s.bytes), s.counted, s.positions, uint64(s.spooledAt),
	} {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// fields reads what append wrote; the first failure sticks.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) uint() uint64 {
	n, size := binary.Uvarint(f.b)
	if size <= 0 {
		f.bad, f.b = true, nil
		return 0
	}
	f.b = f.b[size:]
	return n
}

func (f *fields) take(n uint64) []byte {
	if n > uint64(len(f.b)) {
		f.bad, f.b = true, nil
		return nil
	}
	part := f.b[:n]
	f.b = f.b[n:]
	return part
}

func (f *fields) string() string { return string(f.take(f.uint())) }

// same is string for one that is mostly like another: then it takes no memory
// of its own.
func (f *fields) same(like string) string {
	b := f.take(f.uint())
	if string(b) == like {
		return like
	}
	return string(b)
}

func (f *fields) name(like *string) *string {
	b := f.take(f.uint())
	if like == nil || string(b) != *like {
		own := string(b)
		return &own
	}
	return like
}

func (f *fields) byte() byte {
	if p := f.take(1); len(p) == 1 {
		return p[0]
	}
	return 0
}

func (f *fields) stream() envelope.Stream {
	return envelope.Stream{
		Script: f.string(), Class: f.string(), Cell: f.string(), Facet: f.string(),
		Incarnation: f.uint(),
	}
}

// decode reads what append wrote. like is the unit of an entry before, or
// zero.
func (s *summary) decode(b []byte, like *Unit) error {
	f := fields{b: b}
	u := &s.unit
	u.Form = Form(f.byte())
	flags := f.uint()
	u.Stream = envelope.Stream{
		Script: f.same(like.Stream.Script), Class: f.same(like.Stream.Class), Cell: f.same(like.Stream.Cell), Facet: f.same(like.Stream.Facet),
		Incarnation: f.uint(),
	}
	if flags&flagCellName != 0 {
		u.CellName = f.name(like.CellName)
	}
	u.Uncertified = flags&flagUncertified != 0
	s.link, s.snapshot, s.gap = flags&flagLink != 0, flags&flagSnapshot != 0, flags&flagGap != 0
	u.Node, u.Scope, u.Sink = f.same(like.Node), f.same(u.Stream.Cell), f.same(like.Sink)
	u.CommittedAt = int64(f.uint())
	u.Position = envelope.Position{Epoch: f.uint(), TXID: f.uint(), Commit: f.uint()}
	u.MinTXID, u.MaxTXID = f.uint(), f.uint()
	u.PageSize, u.Commit = uint32(f.uint()), uint32(f.uint())
	u.Checksum = f.uint()
	s.pages, s.records, s.bytes = int64(f.uint()), int64(f.uint()), int64(f.uint())
	s.counted, s.positions, s.spooledAt = f.uint(), f.uint(), int64(f.uint())
	if f.bad || len(f.b) != 0 {
		return fmt.Errorf("entry head is of a newer format: %w", ErrCorrupt)
	}
	return nil
}

// head is the place of an entry in its segment.
type head struct {
	summary
	seq     uint64
	length  int64 // of the head itself
	payload int64 // of all blocks
	durable int64 // of the segment, before this entry
}

// encode appends the head to an empty b.
func (h *head) encode(b []byte, salt uint32) []byte {
	b = append(b[:0], make([]byte, headFixed)...)
	copy(b, entryMagic)
	b = h.summary.append(b)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(b)))
	binary.LittleEndian.PutUint64(b[16:], h.seq)
	binary.LittleEndian.PutUint64(b[24:], uint64(h.payload))
	binary.LittleEndian.PutUint64(b[32:], uint64(h.durable))
	binary.LittleEndian.PutUint32(b[12:], crc32.Update(salt, crcTable, b[16:]))
	h.length = int64(len(b))
	return b
}

// headLength says how long the head starting with fixed is; errTorn when it
// is none.
func headLength(fixed []byte) (int, error) {
	if len(fixed) < headFixed || string(fixed[:8]) != entryMagic {
		return 0, errTorn
	}
	n := binary.LittleEndian.Uint32(fixed[8:])
	if n < headFixed || n > headMax {
		return 0, errTorn
	}
	return int(n), nil
}

func (h *head) decode(b []byte, salt uint32, like *Unit) error {
	if crc32.Update(salt, crcTable, b[16:]) != binary.LittleEndian.Uint32(b[12:]) {
		return errTorn
	}
	h.seq = binary.LittleEndian.Uint64(b[16:])
	h.payload = int64(binary.LittleEndian.Uint64(b[24:]))
	h.durable = int64(binary.LittleEndian.Uint64(b[32:]))
	h.length = int64(len(b))
	if h.payload < 0 || h.durable < 0 {
		return errTorn
	}
	return h.summary.decode(b[headFixed:], like)
}

// block is the head of one block.
type block struct {
	section    section
	compressed bool
	raw        uint32
	stored     uint32
	crc        uint32
}

// putBlock writes the head of a block to b.
func putBlock(b []byte, s section, compressed bool, raw int, stored []byte) {
	b[0], b[1], b[2], b[3] = byte(s), 0, 0, 0
	if compressed {
		b[1] = 1
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(raw))
	binary.LittleEndian.PutUint32(b[8:], uint32(len(stored)))
	crc := crc32.Update(crc32.Checksum(b[:12], crcTable), crcTable, stored)
	binary.LittleEndian.PutUint32(b[12:], crc)
}

func parseBlock(b []byte) (block, error) {
	k := block{
		section: section(b[0]), compressed: b[1] == 1,
		raw:    binary.LittleEndian.Uint32(b[4:]),
		stored: binary.LittleEndian.Uint32(b[8:]),
		crc:    binary.LittleEndian.Uint32(b[12:]),
	}
	if (k.section != sectionPages && k.section != sectionRecords) || b[1] > 1 || b[2]|b[3] != 0 {
		return k, fmt.Errorf("block head is broken: %w", errTorn)
	}
	if !k.compressed && k.raw != k.stored {
		return k, fmt.Errorf("block lengths disagree: %w", errTorn)
	}
	return k, nil
}
