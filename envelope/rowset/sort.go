package rowset

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"celldexport/envelope"
)

// entry is one side of a row change on its way through the sorter: the sort
// key, the operation and the row as it will stand in the record behind the
// operation.
type entry struct {
	key  []byte
	op   byte
	tail []byte
}

// opRank puts a delete before an insert or update of the same key.
func opRank(op byte) int {
	if op == 'D' {
		return 0
	}
	return 1
}

func compareEntries(a, b *entry) int {
	if c := bytes.Compare(a.key, b.key); c != 0 {
		return c
	}
	return cmp.Compare(opRank(a.op), opRank(b.op))
}

// maxRuns bounds how many runs of one level there are, and with it the buffers
// that merging needs: so many runs become one of the next level, so that every
// entry is written once per level, of which there are few.
const maxRuns = 128

// sorter puts entries in key order in bounded memory: they are kept until
// they take more than limit bytes, then written to a temporary file as a
// sorted run, and the runs are merged in the end. One entry always fits.
type sorter struct {
	limit int64
	arena []byte
	index []place
	runs  []run
	// spill holds size bytes of runs.
	spill envelope.Spill
	size  int64
}

// place is an entry in the arena: the lengths of its key and tail, and the
// start of its key as a number, which tells most keys apart without a look
// into the arena.
type place struct {
	off, key, tail int
	prefix         uint64
}

// prefixOf is a number that compares as the keys do where it differs.
func prefixOf(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

// run is a sorted stretch of the temporary file. Its level is how often its
// entries were merged.
type run struct {
	off, size int64
	level     int
}

// frameSize is what precedes an entry in a run: the lengths of key and tail
// and the operation.
const frameSize = 4 + 4 + 1

func (s *sorter) at(p place) entry {
	b := s.arena[p.off:]
	return entry{key: b[:p.key], op: b[p.key], tail: b[p.key+1 : p.key+1+p.tail]}
}

// add takes a copy of the entry.
func (s *sorter) add(key []byte, op byte, tail []byte) error {
	const perEntry = 32 // of the index
	need := int64(len(s.arena)+len(key)+1+len(tail)) + int64(len(s.index)+1)*perEntry
	if need > s.limit && len(s.index) > 0 {
		if err := s.flush(); err != nil {
			return err
		}
	}
	p := place{off: len(s.arena), key: len(key), tail: len(tail), prefix: prefixOf(key)}
	s.arena = append(s.arena, key...)
	s.arena = append(s.arena, op)
	s.arena = append(s.arena, tail...)
	s.index = append(s.index, p)
	return nil
}

// order sorts what is in memory.
func (s *sorter) order() {
	slices.SortFunc(s.index, func(a, b place) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		x, y := s.at(a), s.at(b)
		return compareEntries(&x, &y)
	})
}

// walk visits what is in memory as it stands.
func (s *sorter) walk(visit func(*entry) error) error {
	var e entry
	for _, p := range s.index {
		e = s.at(p)
		if err := visit(&e); err != nil {
			return err
		}
	}
	return nil
}

// flush writes what is in memory as a run.
func (s *sorter) flush() error {
	s.order()
	err := s.write(0, s.walk)
	s.arena, s.index = s.arena[:0], s.index[:0]
	for level := 0; err == nil && s.full(level); level++ {
		last := len(s.runs) - maxRuns
		merged := slices.Clone(s.runs[last:])
		s.runs = s.runs[:last]
		err = s.write(level+1, func(put func(*entry) error) error { return s.merge(merged, put) })
	}
	return err
}

// full reports whether the last runs are as many of a level as there may be.
// Runs of a lower level always come after those of a higher one.
func (s *sorter) full(level int) bool {
	n := len(s.runs)
	return n >= maxRuns && s.runs[n-maxRuns].level == level
}

// write adds a run of the entries that fill puts, in order.
func (s *sorter) write(level int, fill func(put func(*entry) error) error) error {
	start := s.size
	w := bufio.NewWriterSize(s, 64<<10)
	frame := make([]byte, frameSize)
	err := fill(func(e *entry) error {
		binary.LittleEndian.PutUint32(frame[0:], uint32(len(e.key)))
		binary.LittleEndian.PutUint32(frame[4:], uint32(len(e.tail)))
		frame[8] = e.op
		for _, b := range [...][]byte{frame, e.key, e.tail} {
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return err
	}
	s.runs = append(s.runs, run{start, s.size - start, level})
	return nil
}

// Write appends to the temporary file and keeps count of its size.
func (s *sorter) Write(p []byte) (int, error) {
	n, err := s.spill.Write(p)
	s.size += int64(n)
	return n, err
}

// each visits all entries in order. What it hands out is valid during the
// call alone.
func (s *sorter) each(visit func(*entry) error) error {
	if len(s.runs) == 0 {
		s.order()
		return s.walk(visit)
	}
	if len(s.index) > 0 {
		if err := s.flush(); err != nil {
			return err
		}
	}
	return s.merge(s.runs, visit)
}

// reset empties the sorter and keeps its memory and file for the next table.
func (s *sorter) reset() error {
	s.arena, s.index, s.runs, s.size = s.arena[:0], s.index[:0], nil, 0
	return s.spill.Reset()
}

// rest is reset for the end of a unit: no file stays, nor memory beyond the
// limit.
func (s *sorter) rest() error {
	if int64(cap(s.arena)) > 2*s.limit {
		s.arena = nil
	}
	s.arena, s.index, s.runs, s.size = s.arena[:0], s.index[:0], nil, 0
	return s.spill.Close()
}
