package rowset

import (
	"io"

	"celldexport/envelope"
)

// store keeps the row bytes of all tables of a unit one after another, so that
// they share one memory budget and one temporary file. Tables are written one
// at a time and read back in any order.
type store struct {
	envelope.Spill
	size int64
}

// region starts the part of the next table.
func (s *store) region() *region { return &region{store: s, from: s.size} }

// reset forgets the parts of all tables.
func (s *store) reset() error {
	s.size = 0
	return s.Spill.Reset()
}

// rest is reset for the end of a unit: no file stays.
func (s *store) rest() error {
	s.size = 0
	return s.Spill.Rest()
}

// region is one table's part of a store. It grows only while it is the last.
type region struct {
	store *store
	from  int64
}

// Write appends p.
func (r *region) Write(p []byte) (int, error) {
	n, err := r.store.Spill.Write(p)
	r.store.size += int64(n)
	return n, err
}

// ReadAt reads the region from off on.
func (r *region) ReadAt(p []byte, off int64) (int, error) {
	return r.store.Spill.ReadAt(p, r.from+off)
}

// Reset forgets what the region holds. The bytes stay in the store until the
// unit is done.
func (r *region) Reset() error {
	r.from = r.store.size
	return nil
}

var (
	_ envelope.Buffer = (*region)(nil)
	_ io.ReaderAt     = (*region)(nil)
)
