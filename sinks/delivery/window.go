package delivery

import "fmt"

// window is a part of a segment that was read ahead, so that the heads of
// small entries take no read each.
type window struct {
	// upto is where what may be read ahead ends.
	upto int64

	seg *segment
	off int64
	buf []byte
	// last is the unit of the entry that was read last, small whether it was
	// a small one.
	last  Unit
	small bool
}

const (
	windowBytes = 16 << 10
	// smallEntry is the size up to which several heads lie in a window.
	smallEntry = windowBytes / 4
)

// read is n bytes of seg at off, valid until the next call.
func (w *window) read(seg *segment, off int64, n int) ([]byte, error) {
	if at := off - w.off; w.seg == seg && at >= 0 && at+int64(n) <= int64(len(w.buf)) {
		return w.buf[at : at+int64(n)], nil
	}
	f, err := seg.handle()
	if err != nil {
		return nil, err
	}
	size := n
	if w.small {
		size = max(n, int(min(windowBytes, w.upto-off)))
	}
	w.seg = nil
	if w.buf, err = readAt(f, w.buf, off, size); err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", seg.path, off, err)
	}
	// What was asked for may lie behind upto: it is read, and not kept.
	if off+int64(size) <= w.upto {
		w.seg, w.off = seg, off
	}
	return w.buf[:n], nil
}

// passed notes the entry that was read.
func (w *window) passed(h *head) {
	w.last, w.small = h.unit, h.length+h.payload <= smallEntry
}
