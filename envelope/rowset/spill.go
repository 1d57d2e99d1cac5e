package rowset

import (
	"fmt"
	"io"
	"os"
)

// spill is an append-only temporary file, made at the first write. It has no
// name while it is open, so nothing is left behind by a crash.
type spill struct {
	dir  string
	file *os.File
	size int64
}

// Write appends p.
func (s *spill) Write(p []byte) (int, error) {
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "rows-*")
		if err != nil {
			return 0, fmt.Errorf("create temporary file for rows: %w", err)
		}
		s.file = f
		if err := os.Remove(f.Name()); err != nil {
			return 0, fmt.Errorf("unlink temporary file for rows: %w", err)
		}
	}
	n, err := s.file.WriteAt(p, s.size)
	s.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("write rows to temporary file: %w", err)
	}
	return n, nil
}

// section reads length bytes from offset on.
func (s *spill) section(offset, length int64) io.Reader {
	return io.NewSectionReader(s.file, offset, length)
}

// close gives the disk space back.
func (s *spill) close() error {
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file, s.size = nil, 0
	if err := f.Close(); err != nil {
		return fmt.Errorf("close temporary file for rows: %w", err)
	}
	return nil
}
