package envelope

import (
	"errors"
	"fmt"
	"math"
)

// RowsHead is what a rows or snapshot record says before its rows.
type RowsHead struct {
	// Kind is [KindRows] or [KindSnapshot].
	Kind Kind
	// SnapshotID is written for [KindSnapshot] only.
	SnapshotID          string
	Table               string
	Generation          uint64
	Columns, KeyColumns []string
}

// SplitOptions are the choices of a [Splitter].
type SplitOptions struct {
	// Oversize lets a row that fits no fragment ride alone in one over the
	// limit, as repair and re-base do. Otherwise such a row makes the record
	// bulk.
	Oversize bool
	// Buffer holds the rows; nil keeps them in memory.
	Buffer Buffer
}

// Split is what became of a record's rows.
type Split struct {
	// Fragments is how many records were emitted, 0 for Bulk.
	Fragments uint32
	Rows      int64
	// OversizedRows are those alone in a fragment over the limit.
	OversizedRows int64
	// Bulk says that nothing was emitted because a row fits no fragment: the
	// generation is to be named by a [Bulk] record at the same position.
	Bulk bool
}

// Splitter makes one rows or snapshot record, or the fragments of it, from
// rows that come one by one as JSON. It allocates nothing per row.
//
// A record within the limit goes out whole. Otherwise rows are gathered in
// order into fragments as long as they fit, each counted with the widest
// fragment numbers, so that the cuts depend on the rows alone.
type Splitter struct {
	env      Envelope
	kind     Kind
	opt      SplitOptions
	limit    int64
	prefix   []byte // the body up to the bracket that opens the rows
	whole    int64  // bytes of the record without rows, 1 of 1
	base     int64  // the same with the widest fragment numbers
	total    int64  // bytes of all rows and the commas between them
	chunks   []chunk
	size     int64 // bytes of the last chunk's fragment
	result   Split
	unfit    bool // a row fits no fragment
	finished bool
	body     []byte
}

// chunk is a range of the buffer: the rows of one fragment.
type chunk struct{ from, to int64 }

// widest is the difference in length between the widest fragment number and
// the number 1.
const widest = len("4294967295") - len("1")

// closing ends the rows and the body.
const closing = "]}"

// NewSplitter starts a record of at most limit bytes. The envelope's fragment
// numbers are not looked at.
func NewSplitter(env Envelope, head RowsHead, limit int64, opt SplitOptions) *Splitter {
	if opt.Buffer == nil {
		opt.Buffer = &Spill{}
	}
	// One piece of memory for what most envelopes and heads take.
	const prefix, body = 256, 768
	memory := make([]byte, prefix+body)
	s := &Splitter{opt: opt, limit: limit, prefix: memory[:0:prefix], body: memory[prefix:prefix]}
	s.start(env, head)
	return s
}

// Reset starts the next record with the same limit, options and buffer.
func (s *Splitter) Reset(env Envelope, head RowsHead) error {
	s.start(env, head)
	return s.opt.Buffer.Reset()
}

func (s *Splitter) start(env Envelope, head RowsHead) {
	env.Fragment, env.Fragments = 1, 1
	s.env, s.kind = env, head.Kind
	s.prefix = appendKind(s.prefix[:0], head.Kind)
	if head.Kind == KindSnapshot {
		s.prefix = AppendString(appendField(s.prefix, "snapshot_id"), head.SnapshotID)
	}
	rows := Rows{
		TableGeneration: TableGeneration{Table: head.Table, Generation: head.Generation},
		Columns:         head.Columns, KeyColumns: head.KeyColumns,
	}
	s.prefix = rows.appendHead(s.prefix)
	s.body = env.AppendHead(s.body[:0])
	s.whole = int64(len(s.body) + len(s.prefix) - len("{") + len(closing))
	s.base = s.whole + 2*int64(widest)
	s.total, s.size, s.chunks = 0, 0, s.chunks[:0]
	s.result, s.unfit, s.finished = Split{}, false, false
}

// errFinished is returned for rows that come after the end.
var errFinished = errors.New("the record is finished")

// Add takes the next row, a JSON array as [RowChange.Append] writes it. The
// bytes are copied.
func (s *Splitter) Add(row []byte) error {
	if s.finished {
		return errFinished
	}
	n := int64(len(row))
	if s.result.Rows++; s.result.Rows > 1 {
		s.total++
	}
	at := s.total
	s.total += n
	if s.base+n > s.limit {
		s.result.OversizedRows++
		s.unfit = s.unfit || !s.opt.Oversize
	}
	if s.bulk() {
		// Nothing of the record will be sent; it need not be held.
		s.chunks = s.chunks[:0]
		return s.opt.Buffer.Reset()
	}
	if len(s.chunks) == 0 || s.size+n+1 > s.limit {
		s.chunks = append(s.chunks, chunk{from: at})
		s.size = s.base + n
	} else {
		s.size += n + 1
	}
	s.chunks[len(s.chunks)-1].to = s.total
	if at > 0 {
		if err := s.write(","); err != nil {
			return err
		}
	}
	_, err := s.opt.Buffer.Write(row)
	return err
}

// write adds a little text to the buffer, without allocating for it.
func (s *Splitter) write(text string) error {
	s.body = append(s.body[:0], text...)
	_, err := s.opt.Buffer.Write(s.body)
	return err
}

// bulk reports whether the rows taken so far cannot be sent.
func (s *Splitter) bulk() bool { return s.unfit && s.whole+s.total > s.limit }

// Finish emits the record or its fragments in order. What emit gets is valid
// until it returns. A bulk record is not emitted, it is for the caller to say
// so; see [Split.Bulk].
func (s *Splitter) Finish(emit func(*Encoded) error) (Split, error) {
	if s.finished {
		return Split{}, errFinished
	}
	s.finished = true
	if s.kind != KindRows && s.kind != KindSnapshot {
		return Split{}, fmt.Errorf("write rows at %s: a %s record has none", s.env.Position, s.kind)
	}
	if s.bulk() {
		s.result.Bulk, s.result.OversizedRows = true, 0
		return s.result, nil
	}
	if s.result.Rows == 0 || s.whole+s.total <= s.limit {
		s.result.OversizedRows = 0
		s.chunks = append(s.chunks[:0], chunk{from: 0, to: s.total})
	}
	if len(s.chunks) > math.MaxUint32 {
		return Split{}, fmt.Errorf("split %s record at %s: %d fragments are too many", s.kind, s.env.Position, len(s.chunks))
	}
	s.result.Fragments = uint32(len(s.chunks))
	e := Encoded{Envelope: s.env, Kind: s.kind}
	e.Fragments = s.result.Fragments
	for i, c := range s.chunks {
		e.Fragment = uint32(i + 1)
		if err := s.fill(c); err != nil {
			return Split{}, err
		}
		e.Body = s.body
		if err := emit(&e); err != nil {
			return Split{}, err
		}
	}
	return s.result, nil
}

// fill writes the body of the fragment with the rows of c.
func (s *Splitter) fill(c chunk) error {
	n := len(s.prefix)
	need := n + int(c.to-c.from) + len(closing)
	if cap(s.body) < need {
		s.body = make([]byte, need)
	}
	s.body = s.body[:need]
	copy(s.body, s.prefix)
	rows := s.body[n : need-len(closing)]
	if len(rows) > 0 {
		if got, err := s.opt.Buffer.ReadAt(rows, c.from); got < len(rows) {
			return fmt.Errorf("read rows of %s record at %s: %w", s.kind, s.env.Position, err)
		}
	}
	copy(s.body[need-len(closing):], closing)
	return nil
}
