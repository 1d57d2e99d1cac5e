package diffpage

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// pair is a number with what it stands for. Pairs are in order of both.
type pair struct{ a, b uint64 }

const pairSize = 16

func comparePairs(x, y pair) int { return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b)) }

// pairs puts any number of pairs in order within a bound of memory: what is
// more goes in sorted runs to a file without a name, and the runs are merged
// when the pairs are read. They are added first and read once.
type pairs struct {
	limit int64 // bytes
	dir   string
	held  []pair
	file  *os.File
	runs  []int64 // where each run ends
	block []byte
}

// minPairs are always held, however small the limit.
const minPairs = 1 << 10

func (s *pairs) add(a, b uint64) error {
	most := max(minPairs, int(s.limit/pairSize))
	if len(s.held) == most {
		if err := s.spill(); err != nil {
			return err
		}
	}
	if n := len(s.held); n == cap(s.held) {
		s.held = slices.Grow(s.held, min(max(n, minPairs), most-n))
	}
	s.held = append(s.held, pair{a, b})
	return nil
}

// spill writes what is held as a run.
func (s *pairs) spill() error {
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "join-")
		if err != nil {
			return fmt.Errorf("open a file for the keys of a table above %d bytes: %w", s.limit, err)
		}
		s.file = f
		if err := os.Remove(f.Name()); err != nil {
			return fmt.Errorf("unlink the file for the keys of a table: %w", err)
		}
	}
	slices.SortFunc(s.held, comparePairs)
	off := s.end()
	const most = 4 << 10
	for part := range slices.Chunk(s.held, most) {
		s.block = s.block[:0]
		for _, p := range part {
			s.block = binary.LittleEndian.AppendUint64(s.block, p.a)
			s.block = binary.LittleEndian.AppendUint64(s.block, p.b)
		}
		if _, err := s.file.WriteAt(s.block, off); err != nil {
			return fmt.Errorf("write keys of a table to their file: %w", err)
		}
		off += int64(len(s.block))
	}
	s.runs = append(s.runs, off)
	s.held = s.held[:0]
	return nil
}

// end is where the last run ends.
func (s *pairs) end() int64 {
	if n := len(s.runs); n > 0 {
		return s.runs[n-1]
	}
	return 0
}

// each shows the pairs in order. An error of visit ends the walk and is
// returned.
func (s *pairs) each(visit func(pair) error) error {
	if len(s.runs) == 0 {
		slices.SortFunc(s.held, comparePairs)
		for _, p := range s.held {
			if err := visit(p); err != nil {
				return err
			}
		}
		return nil
	}
	if len(s.held) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
	}
	s.held, s.block = nil, nil
	return s.merge(visit)
}

// pairRun is a run while it is read.
type pairRun struct {
	in   *bufio.Reader
	next pair
}

// advance reads the following pair; false at the end of the run.
func (r *pairRun) advance() (bool, error) {
	b, err := r.in.Peek(pairSize)
	if errors.Is(err, io.EOF) && len(b) == 0 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read keys of a table from their file: %w", err)
	}
	r.next = pair{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
	_, err = r.in.Discard(pairSize)
	return true, err
}

// merge shows the pairs of all runs. Their buffers share the limit.
func (s *pairs) merge(visit func(pair) error) error {
	size := min(max(int(s.limit)/len(s.runs), 1<<10), 64<<10)
	heap := make([]pairRun, 0, len(s.runs))
	from := int64(0)
	for _, to := range s.runs {
		r := pairRun{in: bufio.NewReaderSize(io.NewSectionReader(s.file, from, to-from), size)}
		from = to
		ok, err := r.advance()
		if err != nil {
			return err
		}
		if ok {
			heap = append(heap, r)
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		sink(heap, i)
	}
	for len(heap) > 0 {
		if err := visit(heap[0].next); err != nil {
			return err
		}
		ok, err := heap[0].advance()
		if err != nil {
			return err
		}
		if !ok {
			heap[0] = heap[len(heap)-1]
			heap = heap[:len(heap)-1]
		}
		sink(heap, 0)
	}
	return nil
}

// sink moves a run down the heap to where no run below it comes first.
func sink(heap []pairRun, i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(heap); child++ {
			if comparePairs(heap[child].next, heap[first].next) < 0 {
				first = child
			}
		}
		if first == i {
			return
		}
		heap[i], heap[first] = heap[first], heap[i]
		i = first
	}
}

// close gives the file and the memory back.
func (s *pairs) close() error {
	s.held, s.block, s.runs = nil, nil, nil
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	if err := f.Close(); err != nil {
		return fmt.Errorf("close the file of a table's keys: %w", err)
	}
	return nil
}
