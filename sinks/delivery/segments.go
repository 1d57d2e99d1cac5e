package delivery

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// segments are the files of a spool.
//
// Locks are taken in the order appending, syncing, mu. appending covers the
// end of the active segment and which one that is, syncing what is durable of
// it; entries are appended while others are being synced. mu covers what is
// listed below it and is never held over a write or a sync.
type segments struct {
	fs   FS
	dir  string
	size int64 // at which a new segment is begun
	salt func() uint32
	// holes are between the first segment and the last.
	holes *holes

	appending, syncing sync.Mutex

	mu      sync.Mutex
	list    []*segment
	written uint64 // last committed entry
	synced  uint64 // last durable entry: what sinks see
	total   int64  // encoded size of all records that were there since the start
	broken  error
	changed chan struct{}
}

func newSegments(dir string, o Options) *segments {
	return &segments{fs: o.FS, dir: dir, holes: &holes{fs: o.FS, dir: dir}, size: o.SegmentBytes, salt: o.Salt, changed: make(chan struct{})}
}

// load finds the segments and checks that nothing is missing between them.
func (s *segments) load() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("list spool directory: %w", err)
	}
	var numbers []uint64
	for _, name := range names {
		if n, ok := segmentNumber(name); ok {
			numbers = append(numbers, n)
		} else if !s.holes.load(name) && strings.HasPrefix(name, spillPrefix) {
			if err := s.fs.Remove(filepath.Join(s.dir, name)); err != nil {
				return fmt.Errorf("remove left-over temporary file: %w", err)
			}
		}
	}
	slices.Sort(numbers)
	for i, first := range numbers {
		if s.holes.has(first) {
			// Its removal was cut short.
			if err := s.fs.Remove(segmentPath(s.dir, first)); err != nil {
				return fmt.Errorf("remove spool segment: %w", err)
			}
			continue
		}
		last := i == len(numbers)-1
		seg, err := loadSegment(s.fs, s.dir, first)
		if errors.Is(err, errTorn) && last && seg.size <= segmentHead {
			// Its creation was cut short: nothing was ever in it.
			if err := errors.Join(seg.close(), s.fs.Remove(seg.path)); err != nil {
				return fmt.Errorf("remove unfinished spool segment: %w", err)
			}
			if len(s.list) == 0 {
				s.written = first - 1
			}
			break
		}
		if errors.Is(err, errTorn) {
			return fmt.Errorf("%s has a broken head: %w", seg.path, ErrCorrupt)
		}
		if err != nil {
			return err
		}
		if len(s.list) > 0 && s.holes.beyond(s.written+1) != first {
			return fmt.Errorf("%s follows entry %d, entries are missing between: %w", seg.path, s.written, ErrCorrupt)
		}
		s.list = append(s.list, seg)
		if err := seg.scan(last, func(h *head) { s.total += h.bytes }); err != nil {
			return err
		}
		s.written = seg.last
	}
	return nil
}

// start makes what was found durable, so that it may be shown, and makes the
// first segment when there is none.
func (s *segments) start() error {
	if len(s.list) == 0 {
		seg, err := createSegment(s.fs, s.dir, s.written+1, s.salt())
		if err != nil {
			return err
		}
		s.list = append(s.list, seg)
	} else {
		f, err := s.active().handle()
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			return fmt.Errorf("sync spool segment %s: %w", s.active().path, err)
		}
	}
	s.synced = s.written
	for _, seg := range s.list {
		seg.durable = seg.size
	}
	return nil
}

func (s *segments) active() *segment { return s.list[len(s.list)-1] }

// sync makes what is committed durable and visible.
func (s *segments) sync() error {
	s.mu.Lock()
	target := s.written
	s.mu.Unlock()
	return s.syncTo(target)
}

// syncTo returns when everything up to target is durable. Only the active
// segment may hold entries that are not: a new one begins after they are.
func (s *segments) syncTo(target uint64) error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	seg, upto, err := s.active(), s.written, s.broken
	size := seg.size
	done := s.synced >= target
	s.mu.Unlock()
	if err != nil || done {
		return err
	}
	f, err := seg.handle()
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return s.fail(fmt.Errorf("sync spool segment %s: %w", seg.path, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced, seg.durable = upto, size
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// fail remembers the error that ends the use of this spool.
func (s *segments) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = err
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return err
}

func (s *segments) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

func (s *segments) last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// first is the number of the first entry that is still there, or will be.
func (s *segments) first() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list[0].first
}

// seen is the encoded size of all records that were in the spool since it was
// opened.
func (s *segments) seen() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// changes is closed when more entries became visible, or the spool broke.
func (s *segments) changes() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *segments) usage() (bytes int64, written uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range s.list {
		bytes += seg.size
	}
	return bytes, s.written
}

func (s *segments) close() error {
	s.appending.Lock()
	defer s.appending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, seg := range s.list {
		errs = append(errs, seg.close())
	}
	if s.broken == nil {
		s.broken = errors.New("spool is closed")
	}
	return errors.Join(errs...)
}
