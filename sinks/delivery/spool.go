package delivery

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"
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
type Spool struct {
	opts    Options
	memory  *memory
	files   *segments
	applied *marker

	// releasing keeps files leaving in order; floor is what every attached
	// sink has acknowledged.
	releasing sync.Mutex
	floor     atomic.Uint64
	keeps     []span // entries below that which a sink was handed
}

// OpenSpool opens the spool in dir, making it when there is none. What a
// crash left half written after the last Sync is discarded; anything else
// that is not as it was written is an error that wraps ErrCorrupt and names
// the file. A file of another format is an error that says which, and no
// damage.
func OpenSpool(dir string, opts Options) (*Spool, error) {
	s := &Spool{opts: opts.withDefaults(), memory: newMemory()}
	if err := s.opts.FS.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("make spool directory: %w", err)
	}
	s.files = newSegments(dir, s.opts)
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Spool) open() (err error) {
	if err = s.files.load(); err != nil {
		return err
	}
	if s.applied, err = openMarker(s.opts.FS, s.files.dir); err != nil {
		return err
	}
	if at := s.applied.get(); at > s.files.written {
		return fmt.Errorf("spool %s ends at entry %d but entry %d was applied: %w", s.files.dir, s.files.written, at, ErrCorrupt)
	}
	if err = s.files.start(); err != nil {
		return err
	}
	return s.skipWatermarks()
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

// Begin starts an entry.
func (s *Spool) Begin(u Unit) (*Writer, error) {
	if u.Form < FormUnit || u.Form > FormClose {
		return nil, fmt.Errorf("spool entry of unknown form %d", u.Form)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return &Writer{s: s, sum: summary{unit: u}, scratch: s.memory.scratch.Get().(*scratch)}, nil
}

// commit adds an entry.
func (s *Spool) commit(sum *summary, w *Writer) (uint64, error) {
	seq, err := s.files.append(sum, w)
	if err == nil && sum.unit.Form == FormWatermark {
		s.applied.follow(seq)
	}
	return seq, err
}

// Sync makes every committed entry durable and visible. Calls at the same
// time share one sync of the disk. An error is final: what the disk holds is
// known again only after the spool was opened anew.
func (s *Spool) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.files.sync()
}

// Entries yields the visible entries numbered above after, in order. It ends
// at the last one that is visible when it gets there, or after an error.
// Entries that left the spool are passed over.
func (s *Spool) Entries(after uint64) iter.Seq2[*Stored, error] {
	return func(yield func(*Stored, error) bool) {
		c := s.cursor(max(after, s.files.first()-1))
		c.leaps = true
		for {
			e, err := c.next()
			if e == nil && err == nil {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (s *Spool) cursor(after uint64) *cursor { return &cursor{s: s, seq: after} }

// Err is the error after which the spool takes no more entries, nil while it
// does.
func (s *Spool) Err() error { return s.files.err() }

// Last is the number of the newest visible entry, 0 before the first.
func (s *Spool) Last() uint64 { return s.files.last() }

// Usage is the disk space the spool takes and the number of entries that are
// not yet applied and acknowledged by every sink.
func (s *Spool) Usage() (bytes int64, entries int) {
	bytes, written := s.files.usage()
	return bytes, int(written - min(written, s.done()))
}

// Close closes the files. Entries that were not synced may be lost.
func (s *Spool) Close() error {
	err := s.files.close()
	if s.applied != nil {
		err = errors.Join(err, s.applied.close())
	}
	if err != nil {
		return fmt.Errorf("close spool %s: %w", s.files.dir, err)
	}
	return nil
}
