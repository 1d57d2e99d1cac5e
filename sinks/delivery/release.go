package delivery

import "fmt"

// Applied is the number up to which every entry's pages are in the shadows.
func (s *Spool) Applied() uint64 { return s.applied.get() }

// SetApplied says that the pages of every entry up to seq are in the shadows.
// It is durable on return: after a crash only entries above Applied are to be
// applied again. A smaller number than before changes nothing.
func (s *Spool) SetApplied(seq uint64) error {
	if last := s.Last(); seq > last {
		return fmt.Errorf("entry %d cannot be applied: the last durable one is %d", seq, last)
	}
	if err := s.applied.set(seq); err != nil {
		return s.fail(err)
	}
	if err := s.skipWatermarks(); err != nil {
		return err
	}
	return s.release(0)
}

// skipWatermarks counts watermarks right behind the applied entries as
// applied: they have no pages.
func (s *Spool) skipWatermarks() error {
	at := s.applied.get()
	for e, err := range s.Entries(at) {
		if err != nil {
			return err
		}
		if e.head.unit.Form != FormWatermark {
			break
		}
		s.applied.advance(e.head.seq)
	}
	return nil
}

// done is the number up to which entries may leave; mu is held.
func (s *Spool) done() uint64 { return min(s.floor, s.applied.get()) }

// release raises the number up to which every attached sink has acknowledged,
// and removes the files that nobody needs any more.
func (s *Spool) release(floor uint64) error {
	s.releaseMu.Lock()
	defer s.releaseMu.Unlock()
	s.mu.Lock()
	s.floor = max(s.floor, floor)
	done := s.done()
	active := s.active()
	drained := active.last >= active.first && active.last <= done && active.size >= s.opts.SegmentBytes/4
	s.mu.Unlock()
	if drained && s.appendMu.TryLock() {
		// What is written next goes to a new file, so that this one can go.
		s.mu.Lock()
		next := s.written + 1
		drained = s.written == active.last && s.active() == active
		s.mu.Unlock()
		var err error
		if drained {
			err = s.beginSegment(next)
		}
		s.appendMu.Unlock()
		if err != nil {
			return err
		}
	}
	for {
		s.mu.Lock()
		seg := s.segments[0]
		if len(s.segments) == 1 || seg.last > done {
			s.mu.Unlock()
			return nil
		}
		s.segments = s.segments[1:]
		s.mu.Unlock()
		if err := s.discard(seg); err != nil {
			return err
		}
	}
}

// discard removes a segment. The removal is durable before the next one is
// removed, so that a crash never leaves a hole.
func (s *Spool) discard(seg *segment) error {
	if err := seg.close(); err != nil {
		return s.fail(fmt.Errorf("close spool segment %s: %w", seg.path, err))
	}
	if err := s.opts.FS.Remove(seg.path); err != nil {
		return s.fail(fmt.Errorf("remove spool segment: %w", err))
	}
	if err := s.opts.FS.SyncDir(s.dir); err != nil {
		return s.fail(fmt.Errorf("sync spool directory %s: %w", s.dir, err))
	}
	return nil
}
