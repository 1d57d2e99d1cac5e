package delivery

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// span is a stretch of entries, both ends included; empty when last < first.
type span struct{ first, last uint64 }

// hole is a stretch of entries that left the spool while older ones stay: a
// sink that takes none holds what it was handed, and nothing else. An empty
// file whose name tells the stretch is made before its segment is removed, so
// that a missing segment is never taken for one that left.
type hole struct{ span }

const holeSuffix = ".hole"

func (h hole) path(dir string) string {
	return filepath.Join(dir, fmt.Sprintf("%020d-%020d%s", h.first, h.last, holeSuffix))
}

// holeOf is the hole that a file name tells.
func holeOf(name string) (hole, bool) {
	digits, ok := strings.CutSuffix(name, holeSuffix)
	a, b, dash := strings.Cut(digits, "-")
	if !ok || !dash || len(a) != 20 || len(b) != 20 {
		return hole{}, false
	}
	first, err1 := strconv.ParseUint(a, 10, 64)
	last, err2 := strconv.ParseUint(b, 10, 64)
	return hole{span{first, last}}, errors.Join(err1, err2) == nil && first > 0 && last >= first
}

// dig removes a segment in the middle. Its place is known as a hole first.
func (s *segments) dig(seg *segment) error {
	h := hole{span{seg.first, seg.last}}
	f, err := s.fs.Create(h.path(s.dir))
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil {
		return s.fail(fmt.Errorf("note that entries %d to %d leave the spool: %w", h.first, h.last, err))
	}
	s.mu.Lock()
	s.holes = append(s.holes, h)
	s.mu.Unlock()
	return nil
}

// fill forgets holes before the first segment: nothing is missing there.
func (s *segments) fill() error {
	s.mu.Lock()
	first := s.list[0].first
	var stale, holes []hole
	for _, h := range s.holes {
		if h.last < first {
			stale = append(stale, h)
		} else {
			holes = append(holes, h)
		}
	}
	s.holes = holes
	s.mu.Unlock()
	for _, h := range stale {
		if err := s.fs.Remove(h.path(s.dir)); err != nil {
			return s.fail(fmt.Errorf("remove note of entries that left the spool: %w", err))
		}
	}
	return nil
}

// beyond is the number after the holes that begin at an entry.
func beyond(holes []hole, at uint64) uint64 {
	for moved := true; moved; {
		moved = false
		for _, h := range holes {
			if h.first == at {
				at, moved = h.last+1, true
			}
		}
	}
	return at
}

// dug reports whether an entry left by a hole.
func dug(holes []hole, seq uint64) bool {
	for _, h := range holes {
		if h.first <= seq && seq <= h.last {
			return true
		}
	}
	return false
}

// holds reports whether an entry is there, or is the next that will be.
func (s *segments) holds(seq uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !dug(s.holes, seq)
}
