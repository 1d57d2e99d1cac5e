package delivery

import (
	"fmt"
	"slices"
)

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
		return s.files.fail(err)
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

// done is the number up to which entries may leave.
func (s *Spool) done() uint64 { return min(s.floor.Load(), s.applied.get()) }

// release raises the number up to which every sink that is attached has
// acknowledged, and removes the files that nobody needs any more. Those that
// hold entries of keeps stay.
func (s *Spool) release(floor uint64, keeps ...span) error {
	s.releasing.Lock()
	defer s.releasing.Unlock()
	s.floor.Store(max(s.floor.Load(), floor))
	if floor > 0 || len(keeps) > 0 {
		s.keeps = keeps
	}
	done := s.done()
	if err := s.files.drain(done); err != nil {
		return err
	}
	if err := s.files.drop(done, s.keeps); err != nil {
		return err
	}
	if err := s.files.holes.forget(s.files.first()); err != nil {
		return s.files.fail(err)
	}
	return nil
}

// drain begins a new segment when all of the active one is done, so that this
// one can be dropped too.
func (s *segments) drain(done uint64) error {
	if !s.appending.TryLock() {
		return nil // something is being added
	}
	defer s.appending.Unlock()
	s.mu.Lock()
	active, next := s.active(), s.written+1
	drained := active.last >= active.first && active.last <= done && active.size >= s.size/4
	s.mu.Unlock()
	if !drained {
		return nil
	}
	return s.begin(next)
}

// drop removes the segments that hold nothing above done and nothing of
// keeps. Each removal is durable before the next, and one in the middle is
// noted before, so that a crash never leaves a hole that is not known as one.
func (s *segments) drop(done uint64, keeps []span) error {
	for i := 0; ; {
		s.mu.Lock()
		if i >= len(s.list)-1 || s.list[i].last > done {
			s.mu.Unlock()
			return nil
		}
		seg := s.list[i]
		s.mu.Unlock()
		if slices.ContainsFunc(keeps, span{seg.first, seg.last}.meets) {
			i++
			continue
		}
		if i > 0 {
			if err := s.holes.note(span{seg.first, seg.last}); err != nil {
				return s.fail(err)
			}
		}
		s.mu.Lock()
		s.list = slices.Delete(slices.Clone(s.list), i, i+1)
		s.mu.Unlock()
		if err := seg.close(); err != nil {
			return s.fail(fmt.Errorf("close spool segment %s: %w", seg.path, err))
		}
		if err := s.fs.Remove(seg.path); err != nil {
			return s.fail(fmt.Errorf("remove spool segment: %w", err))
		}
		if err := s.fs.SyncDir(s.dir); err != nil {
			return s.fail(fmt.Errorf("sync spool directory %s: %w", s.dir, err))
		}
	}
}
