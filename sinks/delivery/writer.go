package delivery

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"celldexport/envelope"

	"github.com/klauspost/compress/s2"
)

const (
	// blockRaw is the size before compression at which a block is closed.
	blockRaw    = 256 << 10
	spillPrefix = "spill-"
	// keptScratch is the most memory that is kept for the next entry.
	keptScratch = 4 << 20
	// headRoom is kept free before the blocks of an entry, so that head and
	// blocks are one write; a longer head is written by itself.
	headRoom = 1 << 10
)

func randomSalt() uint32 { return rand.Uint32() }

// Writer collects one entry. It is used by one goroutine and ends with
// Commit or Abort; several writers may be open at once, entries are numbered
// in the order of their commits.
type Writer struct {
	s       *Spool
	sum     summary
	counter envelope.Counter

	*scratch
	spill     File
	spillName string
	spilled   int64
	err       error
	ended     bool
}

// scratch is the memory of a writer, which the next one uses again.
type scratch struct {
	pages, records []byte // open blocks
	head           []byte
	done           []byte // headRoom, and closed blocks until they are spilled
}

// Page adds a page image of the unit; data is copied.
func (w *Writer) Page(pgno uint32, data []byte) error {
	if w.err != nil {
		return w.err
	}
	if len(data) > math.MaxUint16+1 {
		return w.abandon(fmt.Errorf("page %d of %d bytes", pgno, len(data)))
	}
	w.pages = binary.LittleEndian.AppendUint32(w.pages, pgno)
	w.pages = binary.LittleEndian.AppendUint32(w.pages, uint32(len(data)))
	w.pages = append(w.pages, data...)
	w.sum.pages++
	if len(w.pages) >= blockRaw {
		return w.flush(sectionPages)
	}
	return nil
}

// Record adds a record; its body is copied. Its envelope must be the unit's.
func (w *Writer) Record(e *envelope.Encoded) error {
	if w.err != nil {
		return w.err
	}
	if err := w.belongs(e); err != nil {
		return w.abandon(err)
	}
	if len(e.Body) > math.MaxInt32 {
		return w.abandon(fmt.Errorf("record of %d bytes does not fit the spool", len(e.Body)))
	}
	kind, origin := kindCode(e.Kind), originCode(e.Origin)
	if kind == 0 || origin == 0 {
		return w.abandon(fmt.Errorf("record of unknown kind %q or origin %q", e.Kind, e.Origin))
	}
	w.records = append(w.records, kind, origin)
	w.records = binary.AppendUvarint(w.records, uint64(e.Fragment))
	w.records = binary.AppendUvarint(w.records, uint64(e.Fragments))
	w.records = binary.AppendUvarint(w.records, uint64(len(e.Body)))
	w.records = append(w.records, e.Body...)
	if err := w.counter.Add(&e.Envelope, e.Kind); err != nil {
		return w.abandon(err)
	}
	w.sum.records++
	w.sum.bytes += int64(len(e.Body)) + headBytes(&w.sum.unit)
	w.sum.link = w.sum.link || e.Kind == envelope.KindLink
	w.sum.gap = w.sum.gap || e.Kind == envelope.KindGap
	w.sum.snapshot = w.sum.snapshot || e.Kind == envelope.KindSnapshotEnd && bytes.Contains(e.Body, []byte(wholeStream))
	if len(w.records) >= blockRaw {
		return w.flush(sectionRecords)
	}
	return nil
}

// wholeStream is in the body of a snapshot's end that is one of the whole
// stream, and nowhere in another: quotes inside of names are escaped.
const wholeStream = `"scope":"stream"`

// headBytes is about what the envelope of a record takes as JSON.
func headBytes(u *Unit) int64 {
	n := 240 + len(u.Stream.Script) + len(u.Stream.Class) + len(u.Stream.Cell) + len(u.Stream.Facet) + len(u.Node)
	if u.CellName != nil {
		n += len(*u.CellName)
	}
	return int64(n)
}

// belongs reports a record whose envelope is not what the entry says: it
// would come out of the spool with another one.
func (w *Writer) belongs(e *envelope.Encoded) error {
	u := &w.sum.unit
	same := e.Stream == u.Stream && e.Position == u.Position && e.CommittedAt == u.CommittedAt && e.Node == u.Node &&
		(e.CellName == nil) == (u.CellName == nil) && (e.CellName == nil || *e.CellName == *u.CellName)
	if !same {
		return fmt.Errorf("%s record at %v of %v does not share the envelope of its entry at %v of %v",
			e.Kind, e.Position, e.Stream, u.Position, u.Stream)
	}
	return nil
}

// Records and Positions are what a watermark will count of the entry so far.
func (w *Writer) Records() uint64 { return w.counter.Records }

// Positions is 1 when a record so far counts, else 0.
func (w *Writer) Positions() uint64 { return w.counter.Positions }

// flush closes the open block of a section.
func (w *Writer) flush(which section) error {
	buf := &w.pages
	if which == sectionRecords {
		buf = &w.records
	}
	if len(*buf) == 0 {
		return nil
	}
	raw, at := *buf, len(w.done)+blockHead
	w.done = slices.Grow(w.done, blockHead+s2.MaxEncodedLen(len(raw)))
	packed := s2.Encode(w.done[at:cap(w.done)], raw)
	compressed := len(packed) < len(raw)-len(raw)/8
	if compressed {
		w.done = w.done[:at+len(packed)]
	} else {
		w.done = append(w.done[:at], raw...)
	}
	putBlock(w.done[at-blockHead:at], which, compressed, len(raw), w.done[at:])
	*buf = raw[:0]
	if int64(len(w.done)) >= w.s.opts.MemoryBudget {
		return w.spillOut()
	}
	return nil
}

// spillOut moves the closed blocks to a temporary file.
func (w *Writer) spillOut() error {
	if w.spill == nil {
		name := filepath.Join(w.s.files.dir, fmt.Sprintf("%s%016x", spillPrefix, rand.Uint64()))
		f, err := w.s.opts.FS.Create(name)
		if err != nil {
			return w.abandon(fmt.Errorf("create temporary file of the spool: %w", err))
		}
		w.spill, w.spillName = f, name
	}
	if _, err := w.spill.WriteAt(w.done[headRoom:], w.spilled); err != nil {
		return w.abandon(fmt.Errorf("write temporary file %s: %w", w.spillName, err))
	}
	w.spilled += int64(len(w.done) - headRoom)
	w.done = w.done[:headRoom]
	return nil
}

// abandon makes err the answer of every later call but Abort.
func (w *Writer) abandon(err error) error {
	w.err = err
	return err
}

// Abort drops the entry; after Commit it does nothing.
func (w *Writer) Abort() error {
	if w.ended {
		return nil
	}
	w.ended = true
	w.err = errors.New("spool entry was ended already")
	w.recycle()
	if w.spill == nil {
		return nil
	}
	err := errors.Join(w.spill.Close(), w.s.opts.FS.Remove(w.spillName))
	w.spill = nil
	if err != nil {
		return fmt.Errorf("remove temporary file %s: %w", w.spillName, err)
	}
	return nil
}

// recycle gives the memory back, unless an entry out of the ordinary made it
// large.
func (w *Writer) recycle() {
	m := w.scratch
	w.scratch = nil
	if cap(m.pages)+cap(m.records)+cap(m.done) <= keptScratch {
		m.pages, m.records, m.done = m.pages[:0], m.records[:0], m.done[:headRoom]
		w.s.memory.scratch.Put(m)
	}
}

// Commit adds the entry to the spool and returns its number. It is durable
// and visible after the next Sync. On an error nothing was added; the entry
// may be begun anew unless Spool.Err says otherwise.
func (w *Writer) Commit() (uint64, error) {
	if w.err != nil {
		err := w.err
		if !w.ended {
			err = errors.Join(err, w.Abort())
		}
		return 0, err
	}
	// Records come first: sinks read them, pages are read after a crash only.
	err := errors.Join(w.flush(sectionRecords), w.flush(sectionPages))
	var seq uint64
	if err == nil {
		w.sum.counted, w.sum.positions = w.counter.Records, w.counter.Positions
		w.sum.spooledAt = w.s.opts.Now().UnixMilli()
		seq, err = w.s.commit(&w.sum, w)
	}
	return seq, errors.Join(err, w.Abort())
}

// writeTo writes the head and the closed blocks, from the temporary file on,
// to f at off.
func (w *Writer) writeTo(f File, off int64) error {
	at := headRoom - len(w.head)
	if w.spill == nil && at >= 0 {
		copy(w.done[at:], w.head)
		_, err := f.WriteAt(w.done[at:], off)
		return err
	}
	parts := []io.Reader{bytes.NewReader(w.head)}
	if w.spill != nil {
		parts = append(parts, io.NewSectionReader(w.spill, 0, w.spilled))
	}
	parts = append(parts, bytes.NewReader(w.done[headRoom:]))
	_, err := io.Copy(io.NewOffsetWriter(f, off), io.MultiReader(parts...))
	return err
}
