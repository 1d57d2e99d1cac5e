package diffpage

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// spillFile is a file without a name for the sorted runs of any number of
// sorters. It exists once one has too much, and until it is closed.
type spillFile struct {
	dir   string
	file  *os.File
	end   int64
	block []byte
}

// write stores a run of pairs behind the others.
func (s *spillFile) write(run []pair) (extent, error) {
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "join-")
		if err != nil {
			return extent{}, fmt.Errorf("open a file for the lists of a diff that do not fit memory: %w", err)
		}
		if err := os.Remove(f.Name()); err != nil {
			return extent{}, errors.Join(fmt.Errorf("unlink the file for the lists of a diff: %w", err), f.Close())
		}
		s.file = f
	}
	off := s.end
	const most = 4 << 10
	for part := range slices.Chunk(run, most) {
		s.block = s.block[:0]
		for _, p := range part {
			s.block = binary.LittleEndian.AppendUint64(s.block, p.a)
			s.block = binary.LittleEndian.AppendUint64(s.block, p.b)
		}
		if _, err := s.file.WriteAt(s.block, off); err != nil {
			return extent{}, fmt.Errorf("write to the file for the lists of a diff: %w", err)
		}
		off += int64(len(s.block))
	}
	x := extent{s.end, off}
	s.end = off
	return x, nil
}

// merge reads runs in the order of all their pairs. Buffers share limit bytes
// as far as that leaves each one of use.
func (s *spillFile) merge(runs []extent, limit int64) (pairReader, error) {
	size := min(max(int(limit)/len(runs), 1<<10), 64<<10)
	heap := make([]pairRun, 0, len(runs))
	for _, x := range runs {
		r := pairRun{in: bufio.NewReaderSize(io.NewSectionReader(s.file, x.from, x.to-x.from), size)}
		ok, err := r.advance()
		if err != nil {
			return pairReader{}, err
		}
		if ok {
			heap = append(heap, r)
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		sink(heap, i)
	}
	return pairReader{heap: heap}, nil
}

// close gives the file back, with all runs.
func (s *spillFile) close() error {
	f := s.file
	s.file, s.end = nil, 0
	if f == nil {
		return nil
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close the file for the lists of a diff: %w", err)
	}
	return nil
}
