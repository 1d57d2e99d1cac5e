package delivery

import "fmt"

// append writes an entry behind the last one.
func (s *segments) append(sum *summary, w *Writer) (uint64, error) {
	s.appending.Lock()
	defer s.appending.Unlock()
	if err := s.rotate(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	seg, seq := s.active(), s.written+1
	off, durable, err := seg.size, seg.durable, s.broken
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	h := head{summary: *sum, seq: seq, payload: w.spilled + int64(len(w.done)-headRoom), durable: durable}
	f, err := seg.handle()
	if err != nil {
		return 0, s.fail(err)
	}
	w.head = h.encode(w.head, seg.salt)
	if err = w.writeTo(f, off); err != nil {
		err = fmt.Errorf("write entry %d to %s: %w", seq, seg.path, err)
		if back := f.Truncate(off); back != nil {
			return 0, s.fail(fmt.Errorf("%w; and cutting it off again: %w", err, back))
		}
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.size = off + h.length + h.payload
	seg.last = seq
	s.written = seq
	s.total += sum.bytes
	return seq, nil
}

// rotate begins a new segment when the active one is full. All of the old
// one is durable before the new one exists. appending is held.
func (s *segments) rotate() error {
	s.mu.Lock()
	full := s.active().size >= s.size
	next := s.written + 1
	s.mu.Unlock()
	if !full {
		return nil
	}
	return s.begin(next)
}

func (s *segments) begin(next uint64) error {
	if err := s.syncTo(next - 1); err != nil {
		return err
	}
	seg, err := createSegment(s.fs, s.dir, next, s.salt())
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.list = append(s.list, seg)
	s.mu.Unlock()
	return nil
}
