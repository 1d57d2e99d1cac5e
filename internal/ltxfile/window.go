package ltxfile

import (
	"errors"
	"fmt"
	"io"
)

// windowSize is how much of a file is held at a time. It must hold the
// largest page as it is stored; the rest makes reads few and large.
const windowSize = 256 << 10

// maxEmptyReads is how often in a row a reader may return nothing.
const maxEmptyReads = 100

// window hands out consecutive pieces of a file of known size without copying
// them: a piece is a part of the buffer and valid until the next call.
type window struct {
	r    io.Reader
	buf  []byte
	at   int   // start of what has not been handed out
	end  int   // end of what has been read
	left int64 // bytes of the file that have not been read
	off  int64 // offset in the file of buf[at]
}

// remaining is how many bytes of the file have not been handed out.
func (w *window) remaining() int64 { return w.left + int64(w.end-w.at) }

// next hands out the next n bytes.
func (w *window) next(n int) ([]byte, error) {
	if w.end-w.at < n {
		if err := w.fill(n); err != nil {
			return nil, err
		}
	}
	piece := w.buf[w.at : w.at+n]
	w.at += n
	w.off += int64(n)
	return piece, nil
}

// peek shows up to n bytes without handing them out: fewer only at the end of
// the file.
func (w *window) peek(n int) ([]byte, error) {
	n = int(min(int64(n), w.remaining()))
	if w.end-w.at < n {
		if err := w.fill(n); err != nil {
			return nil, err
		}
	}
	return w.buf[w.at : w.at+n], nil
}

// fill makes at least n bytes available.
func (w *window) fill(n int) error {
	if short := int64(n) - w.remaining(); short > 0 {
		return fmt.Errorf("offset %d: file ends %d bytes early: %w", w.off, short, ErrCorrupt)
	}
	w.end = copy(w.buf, w.buf[w.at:w.end])
	w.at = 0
	empty := 0
	for w.end < n {
		limit := w.end + int(min(w.left, int64(len(w.buf)-w.end)))
		got, err := w.r.Read(w.buf[w.end:limit])
		w.end += got
		w.left -= int64(got)
		if w.end >= n {
			return nil // an error comes again with the next read
		}
		if got > 0 {
			empty = 0
		} else if empty++; err == nil && empty == maxEmptyReads {
			err = io.ErrNoProgress
		}
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("offset %d: input ends %d bytes before the size it was given: %w", w.off, w.left, ErrCorrupt)
		case err != nil:
			return fmt.Errorf("read at offset %d: %w", w.off, err)
		}
	}
	return nil
}

// finish checks that the file has been handed out whole and that the input
// holds nothing behind it.
func (w *window) finish() error {
	if n := w.remaining(); n > 0 {
		return fmt.Errorf("%d bytes behind the trailer: %w", n, ErrCorrupt)
	}
	var b [1]byte
	for range maxEmptyReads {
		switch n, err := w.r.Read(b[:]); {
		case n > 0:
			return fmt.Errorf("input goes on behind the size it was given: %w", ErrCorrupt)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read at offset %d: %w", w.off, err)
		}
	}
	return fmt.Errorf("read at offset %d: %w", w.off, io.ErrNoProgress)
}
