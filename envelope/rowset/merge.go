package rowset

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// reader walks one run.
type reader struct {
	in    *bufio.Reader
	frame [frameSize]byte
	entry entry
	buf   []byte
}

// next reads the following entry; false at the end of the run.
func (r *reader) next() (bool, error) {
	if _, err := io.ReadFull(r.in, r.frame[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		return false, fmt.Errorf("read rows back from temporary file: %w", err)
	}
	key := int(binary.LittleEndian.Uint32(r.frame[0:]))
	tail := int(binary.LittleEndian.Uint32(r.frame[4:]))
	r.buf = slices.Grow(r.buf[:0], key+tail)[:key+tail]
	if _, err := io.ReadFull(r.in, r.buf); err != nil {
		return false, fmt.Errorf("read rows back from temporary file: %w", err)
	}
	r.entry = entry{key: r.buf[:key], op: r.frame[8], tail: r.buf[key:]}
	return true, nil
}

// readers is the heap of runs by their next entry.
type readers []*reader

func (h readers) Len() int           { return len(h) }
func (h readers) Less(i, j int) bool { return compareEntries(&h[i].entry, &h[j].entry) < 0 }
func (h readers) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *readers) Push(x any)        { *h = append(*h, x.(*reader)) }
func (h *readers) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	*h = (*h)[:last]
	return r
}

// merge visits the entries of several runs in order. The read buffers share
// the sorter's limit.
func (s *sorter) merge(runs []run, visit func(*entry) error) error {
	size := int(min(max(s.limit/int64(len(runs)), 4<<10), 256<<10))
	h := make(readers, 0, len(runs))
	for _, r := range runs {
		rd := &reader{in: bufio.NewReaderSize(io.NewSectionReader(&s.spill, r.off, r.size), size)}
		if ok, err := rd.next(); err != nil {
			return err
		} else if ok {
			h = append(h, rd)
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		if err := visit(&h[0].entry); err != nil {
			return err
		}
		ok, err := h[0].next()
		switch {
		case err != nil:
			return err
		case ok:
			heap.Fix(&h, 0)
		default:
			heap.Pop(&h)
		}
	}
	return nil
}

// netting turns sorted entries into net changes of exact keys. A database
// holds each exact key once per state, so a key has at most one entry of each
// side: a delete and an insert of one key are an update, or nothing when the
// rows are equal.
type netting struct {
	emit func(op byte, tail []byte) error
	// held is the last entry, done when it must not be emitted any more.
	held      entry
	any, done bool
}

// errDuplicate says that two rows of one state have the same key.
var errDuplicate = errors.New("two rows have the same key")

// take is given the entries in order.
func (n *netting) take(e *entry) error {
	if n.any && bytes.Equal(n.held.key, e.key) {
		if n.done || n.held.op != 'D' || e.op != 'I' {
			return errDuplicate
		}
		n.done = true
		if bytes.Equal(n.held.tail, e.tail) {
			return nil
		}
		return n.emit('U', e.tail)
	}
	if err := n.flush(); err != nil {
		return err
	}
	n.held.key = append(n.held.key[:0], e.key...)
	n.held.tail = append(n.held.tail[:0], e.tail...)
	n.held.op, n.any, n.done = e.op, true, false
	return nil
}

// flush emits what is held; it is called once more after the last entry.
func (n *netting) flush() error {
	if !n.any || n.done {
		return nil
	}
	n.done = true
	return n.emit(n.held.op, n.held.tail)
}
