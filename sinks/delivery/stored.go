package delivery

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"

	"celldexport/envelope"

	"github.com/klauspost/compress/s2"
)

// Stored is an entry that is durable in the spool. It may be read while it is
// there: until it is applied and every sink has acknowledged it.
type Stored struct {
	spool *Spool
	seg   *segment
	off   int64 // of the first block
	head  head
}

// Page is one page image of a unit.
type Page struct {
	// Number counts from 1.
	Number uint32
	// Data is valid until the next page is asked for.
	Data []byte
}

// Seq is the entry's number.
func (e *Stored) Seq() uint64 { return e.head.seq }

// Unit is what the entry was begun with.
func (e *Stored) Unit() Unit { return e.head.unit }

// Stream is the stream of all the entry's records.
func (e *Stored) Stream() envelope.Stream { return e.head.unit.Stream }

// Position is the position of all the entry's records.
func (e *Stored) Position() envelope.Position { return e.head.unit.Position }

// Bytes is the encoded size of the entry's records, about.
func (e *Stored) Bytes() int64 { return e.head.bytes }

// RecordCount is the number of records, fragments counted one by one.
func (e *Stored) RecordCount() int64 { return e.head.records }

// PageCount is the number of page images.
func (e *Stored) PageCount() int64 { return e.head.pages }

// Counted is what a watermark counts of the entry: whole records, and 1 when
// there are any.
func (e *Stored) Counted() (records, positions uint64) { return e.head.counted, e.head.positions }

// Records yields the records in the order they were added. Body is valid
// until the next record is asked for. The sequence ends after an error, which
// names the file.
func (e *Stored) Records() iter.Seq2[envelope.Encoded, error] {
	return func(yield func(envelope.Encoded, error) bool) {
		rec := e.template()
		n := int64(0)
		for raw, err := range e.blocks(sectionRecords) {
			f := fields{b: raw}
			for err == nil && len(f.b) > 0 {
				n++
				if err = decodeRecord(&f, &rec); err == nil && !yield(rec, nil) {
					return
				}
			}
			if err == nil && n == e.head.records {
				return // what follows is pages
			}
			if err != nil {
				yield(envelope.Encoded{}, e.broken(err))
				return
			}
		}
		if n != e.head.records {
			yield(envelope.Encoded{}, e.broken(fmt.Errorf("%d of %d records", n, e.head.records)))
		}
	}
}

// template is what all records of the entry share.
func (e *Stored) template() envelope.Encoded {
	u := &e.head.unit
	return envelope.Encoded{Envelope: envelope.Envelope{
		Stream: u.Stream, CellName: u.CellName, Position: u.Position,
		CommittedAt: u.CommittedAt, Node: u.Node,
	}}
}

func decodeRecord(f *fields, rec *envelope.Encoded) error {
	kind, origin := f.byte(), f.byte()
	fragment, fragments := f.uint(), f.uint()
	body := f.take(f.uint())
	if f.bad || int(kind) >= len(kinds) || int(origin) >= len(origins) {
		return errTorn
	}
	rec.Kind, rec.Origin = kinds[kind], origins[origin]
	rec.Fragment, rec.Fragments = uint32(fragment), uint32(fragments)
	rec.Body = body[:len(body):len(body)]
	return nil
}

// Pages yields the page images in the order they were added. The sequence
// ends after an error, which names the file.
func (e *Stored) Pages() iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		n := int64(0)
		for raw, err := range e.blocks(sectionPages) {
			for err == nil && len(raw) > 0 {
				var page Page
				if page, raw, err = decodePage(raw); err == nil {
					n++
					if !yield(page, nil) {
						return
					}
				}
			}
			if err == nil && n == e.head.pages {
				return
			}
			if err != nil {
				yield(Page{}, e.broken(err))
				return
			}
		}
		if n != e.head.pages {
			yield(Page{}, e.broken(fmt.Errorf("%d of %d pages", n, e.head.pages)))
		}
	}
}

func decodePage(raw []byte) (Page, []byte, error) {
	if len(raw) < 8 {
		return Page{}, nil, errTorn
	}
	n := int(binary.LittleEndian.Uint32(raw[4:]))
	if n > len(raw)-8 {
		return Page{}, nil, errTorn
	}
	return Page{Number: binary.LittleEndian.Uint32(raw), Data: raw[8 : 8+n : 8+n]}, raw[8+n:], nil
}

func (e *Stored) broken(err error) error {
	return fmt.Errorf("entry %d in %s at %d: %w (%w)", e.head.seq, e.seg.path, e.off-e.head.length, ErrCorrupt, err)
}

// blocks yields the blocks of one section, decompressed.
func (e *Stored) blocks(which section) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if (which == sectionPages && e.head.pages == 0) || (which == sectionRecords && e.head.records == 0) {
			return
		}
		buf := e.spool.memory.buffers.Get().(*buffers)
		defer e.spool.memory.buffers.Put(buf)
		for off, end := e.off, e.off+e.head.payload; off < end; {
			raw, next, err := e.block(off, end, which, buf)
			off = next
			if err == nil && raw == nil {
				continue
			}
			if !yield(raw, err) || err != nil {
				return
			}
		}
	}
}

// buffers are what reading blocks needs.
type buffers struct {
	stored, raw []byte
}

// block reads the block at off and returns where the next one is; a block of
// another section is passed over and comes out as nil.
func (e *Stored) block(off, end int64, which section, buf *buffers) ([]byte, int64, error) {
	f, err := e.seg.handle()
	if err != nil {
		return nil, end, err
	}
	if end-off < blockHead {
		return nil, end, errTorn
	}
	// Most blocks are small: one read brings both the head and the bytes, and
	// little of the pages behind records.
	first := int(min(end-off, blockHead+16<<10))
	if which == sectionRecords {
		first = int(min(int64(first), blockHead+e.head.bytes))
	}
	if buf.stored, err = readAt(f, buf.stored, off, first); err != nil {
		return nil, end, err
	}
	k, err := parseBlock(buf.stored)
	if err != nil {
		return nil, end, err
	}
	next := off + blockHead + int64(k.stored)
	if next > end {
		return nil, end, errTorn
	}
	if k.section != which {
		return nil, next, nil
	}
	if whole := blockHead + int(k.stored); whole > first {
		if buf.stored, err = readAt(f, buf.stored, off, whole); err != nil {
			return nil, end, err
		}
	}
	stored := buf.stored[blockHead : blockHead+int(k.stored)]
	if crc32.Update(crc32.Checksum(buf.stored[:12], crcTable), crcTable, stored) != k.crc {
		return nil, end, errTorn
	}
	if !k.compressed {
		return stored, next, nil
	}
	if n, err := s2.DecodedLen(stored); err != nil || n != int(k.raw) {
		return nil, end, errTorn
	}
	if buf.raw, err = s2.Decode(buf.raw[:cap(buf.raw)], stored); err != nil {
		return nil, end, errTorn
	}
	return buf.raw, next, nil
}
