package envelope

import (
	"fmt"
	"io"
	"os"
)

// Buffer holds the bytes of one record's rows until it is known into how many
// fragments they go. Offsets count from the last Reset.
type Buffer interface {
	io.Writer
	io.ReaderAt
	// Reset forgets what was written.
	Reset() error
}

// Spill is a [Buffer] that keeps up to Limit bytes in memory and what is more
// in a temporary file. The zero value keeps everything in memory.
type Spill struct {
	// Dir is where the file is made; "" is the system's place.
	Dir string
	// Limit is in bytes; 0 is no limit.
	Limit int64

	file    *os.File
	flushed int64  // bytes in the file
	tail    []byte // bytes after those
}

// Write appends p.
func (b *Spill) Write(p []byte) (int, error) {
	if b.Limit > 0 && len(b.tail) > 0 && int64(len(b.tail)+len(p)) > b.Limit {
		if err := b.flush(); err != nil {
			return 0, err
		}
	}
	b.tail = append(b.tail, p...)
	return len(p), nil
}

// flush moves the tail to the file.
func (b *Spill) flush() error {
	if b.file == nil {
		f, err := os.CreateTemp(b.Dir, "rows-*.tmp")
		if err != nil {
			return fmt.Errorf("spill rows: %w", err)
		}
		b.file = f
	}
	if _, err := b.file.WriteAt(b.tail, b.flushed); err != nil {
		return fmt.Errorf("spill rows to %s: %w", b.file.Name(), err)
	}
	b.flushed += int64(len(b.tail))
	b.tail = b.tail[:0]
	return nil
}

// ReadAt reads from what was written; see [io.ReaderAt].
func (b *Spill) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	if off < b.flushed {
		want := min(int64(len(p)), b.flushed-off)
		got, err := b.file.ReadAt(p[:want], off)
		n = got
		if int64(got) < want {
			return n, fmt.Errorf("read spilled rows from %s: %w", b.file.Name(), err)
		}
	}
	if at := off + int64(n) - b.flushed; n < len(p) && at >= 0 && at < int64(len(b.tail)) {
		n += copy(p[n:], b.tail[at:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Reset forgets what was written and keeps the room for the next record.
func (b *Spill) Reset() error {
	b.tail, b.flushed = b.tail[:0], 0
	if b.file == nil {
		return nil
	}
	if err := b.file.Truncate(0); err != nil {
		return fmt.Errorf("empty %s: %w", b.file.Name(), err)
	}
	return nil
}

// Close removes the file and gives the memory back. The buffer is empty and
// usable afterwards.
func (b *Spill) Close() error {
	b.tail = nil
	return b.Rest()
}

// Rest is Close for a buffer that will be used again: it keeps the memory, no
// more than about Limit, and no file.
func (b *Spill) Rest() error {
	if b.Limit > 0 && int64(cap(b.tail)) > 2*b.Limit {
		b.tail = nil // a row out of the ordinary made it large
	}
	b.tail, b.flushed = b.tail[:0], 0
	if b.file == nil {
		return nil
	}
	f := b.file
	b.file = nil
	closed := f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("remove spilled rows: %w", err)
	}
	return closed
}
