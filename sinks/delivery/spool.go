package delivery

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Options are the settings of a spool. Zero values take the defaults.
type Options struct {
	// SegmentBytes is the size at which a new file is begun, 64 MiB by
	// default. Disk is given back a file at a time, so it should be at most
	// an eighth of the disk the spool may take.
	SegmentBytes int64
	// MemoryBudget is what one entry may hold in memory before it is written
	// to a temporary file, 4 MiB by default.
	MemoryBudget int64
	// FS is the file system; nil is the operating system's.
	FS FS
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Salt makes the number that marks a new segment's entries; nil is
	// random. Entries do not depend on it.
	Salt func() uint32
}

// Spool is the durable queue between the diff and the sinks: numbered
// entries, each whole or absent, visible once synced. Its methods are safe
// for concurrent use.
//
// Locks are taken in the order releaseMu, appendMu, mu. releaseMu keeps files
// leaving in order; appendMu covers the end of the active segment; mu covers what is listed here and is never held over a
// write or a sync.
type Spool struct {
	dir  string
	opts Options
	zip  *zstd.Encoder
	unz  *zstd.Decoder
	// buffers are *buffers that readers share, scratch *scratch of writers.
	buffers, scratch sync.Pool

	appendMu  sync.Mutex
	releaseMu sync.Mutex

	mu       sync.Mutex
	segments []*segment
	written  uint64 // last committed entry
	synced   uint64 // last durable entry: what sinks see
	floor    uint64 // every attached sink has acknowledged up to here
	total    int64  // encoded size of all records that were in the spool since it was opened
	broken   error
	changed  chan struct{}
	applied  *marker
}

// OpenSpool opens the spool in dir, making it when there is none. What a
// crash left half written after the last Sync is discarded; anything else
// that is not as it was written is an error that wraps ErrCorrupt and names
// the file.
func OpenSpool(dir string, opts Options) (*Spool, error) {
	s := &Spool{dir: dir, opts: opts.withDefaults(), changed: make(chan struct{})}
	s.buffers.New = func() any { return new(buffers) }
	s.scratch.New = func() any { return new(scratch) }
	if err := s.codecs(); err != nil {
		return nil, err
	}
	if err := s.opts.FS.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("make spool directory: %w", err)
	}
	err := s.load()
	if err == nil {
		err = s.start()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (o Options) withDefaults() Options {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.MemoryBudget <= 0 {
		o.MemoryBudget = 4 << 20
	}
	if o.FS == nil {
		o.FS = osFS{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Salt == nil {
		o.Salt = randomSalt
	}
	return o
}

func (s *Spool) codecs() (err error) {
	s.zip, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(2), zstd.WithEncoderCRC(false), zstd.WithWindowSize(blockRaw))
	if err != nil {
		return fmt.Errorf("make zstd encoder: %w", err)
	}
	s.unz, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(4<<30))
	if err != nil {
		return fmt.Errorf("make zstd decoder: %w", err)
	}
	return nil
}

// load finds the segments and checks that nothing is missing between them.
func (s *Spool) load() error {
	names, err := s.opts.FS.List(s.dir)
	if err != nil {
		return fmt.Errorf("list spool directory: %w", err)
	}
	var numbers []uint64
	for _, name := range names {
		if n, ok := segmentNumber(name); ok {
			numbers = append(numbers, n)
		} else if strings.HasPrefix(name, spillPrefix) {
			if err := s.opts.FS.Remove(filepath.Join(s.dir, name)); err != nil {
				return fmt.Errorf("remove left-over temporary file: %w", err)
			}
		}
	}
	slices.Sort(numbers)
	for i, first := range numbers {
		last := i == len(numbers)-1
		seg, err := loadSegment(s.opts.FS, s.dir, first)
		if errors.Is(err, errTorn) && last && seg.size <= segmentHead {
			// Its creation was cut short: nothing was ever in it.
			if err := errors.Join(seg.close(), s.opts.FS.Remove(seg.path)); err != nil {
				return fmt.Errorf("remove unfinished spool segment: %w", err)
			}
			if len(s.segments) == 0 {
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
		if i > 0 && s.written+1 != first {
			return fmt.Errorf("%s follows entry %d, entries are missing between: %w", seg.path, s.written, ErrCorrupt)
		}
		s.segments = append(s.segments, seg)
		if err := seg.scan(last, func(h *head) { s.total += h.bytes }); err != nil {
			return err
		}
		s.written = seg.last
	}
	return nil
}

// start makes what was found durable, so that it may be shown, and makes the
// first segment when there is none.
func (s *Spool) start() error {
	var err error
	if s.applied, err = openMarker(s.opts.FS, s.dir); err != nil {
		return err
	}
	if at := s.applied.get(); at > s.written {
		return fmt.Errorf("spool %s ends at entry %d but entry %d was applied: %w", s.dir, s.written, at, ErrCorrupt)
	}
	if len(s.segments) == 0 {
		seg, err := createSegment(s.opts.FS, s.dir, s.written+1, s.opts.Salt())
		if err != nil {
			return err
		}
		s.segments = append(s.segments, seg)
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
	s.active().durable = s.active().size
	return s.skipWatermarks()
}

func (s *Spool) active() *segment { return s.segments[len(s.segments)-1] }

// Sync makes every committed entry durable and visible. Calls at the same
// time share one sync of the disk. An error is final: what the disk holds is
// known again only after the spool was opened anew.
func (s *Spool) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	target := s.written
	s.mu.Unlock()
	s.appendMu.Lock()
	defer s.appendMu.Unlock()
	return s.syncLocked(target)
}

// syncLocked is called with appendMu held.
func (s *Spool) syncLocked(target uint64) error {
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
func (s *Spool) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = err
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return err
}

// Err is the error after which the spool takes no more entries, nil while it
// does.
func (s *Spool) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// Last is the number of the newest visible entry, 0 before the first.
func (s *Spool) Last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// Usage is the disk space the spool takes and the number of entries that are
// not yet applied and acknowledged by every sink.
func (s *Spool) Usage() (bytes int64, entries int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range s.segments {
		bytes += seg.size
	}
	return bytes, int(s.written - min(s.written, s.done()))
}

// Close closes the files. Entries that were not synced may be lost.
func (s *Spool) Close() error {
	s.appendMu.Lock()
	defer s.appendMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, seg := range s.segments {
		errs = append(errs, seg.close())
	}
	if s.applied != nil {
		errs = append(errs, s.applied.close())
	}
	if s.broken == nil {
		s.broken = errors.New("spool is closed")
	}
	if s.unz != nil {
		s.unz.Close()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close spool %s: %w", s.dir, err)
	}
	return nil
}
