package diffpage

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// pair is a number with what it stands for. Pairs are in order of both.
type pair struct{ a, b uint64 }

const pairSize = 16

func comparePairs(x, y pair) int { return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b)) }

// pairs puts any number of pairs in order within a bound of memory: what is
// more goes in sorted runs to a file without a name, and the runs are merged
// when the pairs are read. They are added first and read afterwards, as often
// as wanted.
type pairs struct {
	limit int64 // bytes
	file  *spillFile
	held  []pair
	runs  []extent
}

// extent is a part of a file, in bytes.
type extent struct{ from, to int64 }

// minPairs are always held, however small the limit.
const minPairs = 1 << 10

func (s *pairs) add(a, b uint64) error { return s.addPair(pair{a, b}) }

func (s *pairs) addPair(p pair) error {
	if n := len(s.held); n == cap(s.held) {
		most := max(minPairs, int(s.limit/pairSize))
		if n >= most {
			if err := s.spill(); err != nil {
				return err
			}
		} else {
			s.held = slices.Grow(s.held, min(max(n, 8), most-n))
			s.held = s.held[:n:min(cap(s.held), most)]
		}
	}
	s.held = append(s.held, p)
	return nil
}

// any reports whether there are pairs.
func (s *pairs) any() bool { return len(s.held) > 0 || len(s.runs) > 0 }

// spill writes what is held as a run.
func (s *pairs) spill() error {
	if len(s.held) == 0 {
		return nil
	}
	s.order()
	run, err := s.file.write(s.held)
	if err != nil {
		return err
	}
	s.runs = append(s.runs, run)
	s.held = s.held[:0]
	return nil
}

// order sorts what is held; mostly it is in order already.
func (s *pairs) order() { slices.SortFunc(s.held, comparePairs) }

// read starts to read the pairs in order. While they are read none may be
// added.
func (s *pairs) read() (pairReader, error) {
	if len(s.runs) == 0 {
		s.order()
		return pairReader{held: s.held}, nil
	}
	if err := s.spill(); err != nil {
		return pairReader{}, err
	}
	s.held = nil
	return s.file.merge(s.runs, s.limit)
}

// each shows the pairs in order. An error of visit ends the walk and is
// returned.
func (s *pairs) each(visit func(pair) error) error {
	r, err := s.read()
	for err == nil {
		p, ok, nerr := r.next()
		if nerr != nil || !ok {
			return nerr
		}
		err = visit(p)
	}
	return err
}

// empty is a sorter without pairs and with the memory of this one.
func (s *pairs) empty() pairs { return pairs{held: s.held[:0], runs: s.runs[:0]} }

// pairReader shows pairs in order. The zero value has none.
type pairReader struct {
	held []pair
	heap []pairRun
}

// next is the following pair; false at the end.
func (r *pairReader) next() (pair, bool, error) {
	if len(r.held) > 0 {
		p := r.held[0]
		r.held = r.held[1:]
		return p, true, nil
	}
	if len(r.heap) == 0 {
		return pair{}, false, nil
	}
	p := r.heap[0].next
	ok, err := r.heap[0].advance()
	if err != nil {
		return pair{}, false, err
	}
	if !ok {
		r.heap[0] = r.heap[len(r.heap)-1]
		r.heap = r.heap[:len(r.heap)-1]
	}
	sink(r.heap, 0)
	return p, true, nil
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
