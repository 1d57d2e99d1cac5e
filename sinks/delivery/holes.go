package delivery

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// span is a stretch of entries, both ends included; empty when last < first.
type span struct{ first, last uint64 }

// meets reports whether two spans share an entry.
func (s span) meets(t span) bool { return s.first <= t.last && t.first <= s.last }

// holes are stretches of entries that left the spool while older ones stay: a
// sink that takes none holds what it was handed, and nothing else. An empty
// file whose name tells the stretch is made before its segment is removed, so
// that a missing segment is never taken for one that left.
type holes struct {
	fs  FS
	dir string

	mu   sync.Mutex
	list []span
}

const holeSuffix = ".hole"

func (h *holes) path(s span) string {
	return filepath.Join(h.dir, fmt.Sprintf("%020d-%020d%s", s.first, s.last, holeSuffix))
}

// load takes up a hole that a file name tells; false when it is none.
func (h *holes) load(name string) bool {
	digits, ok := strings.CutSuffix(name, holeSuffix)
	a, b, dash := strings.Cut(digits, "-")
	if !ok || !dash || len(a) != 20 || len(b) != 20 {
		return false
	}
	first, err1 := strconv.ParseUint(a, 10, 64)
	last, err2 := strconv.ParseUint(b, 10, 64)
	if errors.Join(err1, err2) != nil || first == 0 || last < first {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, span{first, last})
	return true
}

// note makes a hole, durable on return.
func (h *holes) note(s span) error {
	f, err := h.fs.Create(h.path(s))
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err == nil {
		err = h.fs.SyncDir(h.dir)
	}
	if err != nil {
		return fmt.Errorf("note that entries %d to %d leave the spool: %w", s.first, s.last, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, s)
	return nil
}

// forget drops the holes before the first entry: nothing is missing there.
func (h *holes) forget(first uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := 0; i < len(h.list); {
		if h.list[i].last >= first {
			i++
			continue
		}
		if err := h.fs.Remove(h.path(h.list[i])); err != nil {
			return fmt.Errorf("remove the note of entries that left the spool: %w", err)
		}
		h.list = slices.Delete(h.list, i, i+1)
	}
	return nil
}

// beyond is the number after the holes that begin at an entry.
func (h *holes) beyond(at uint64) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	for moved := true; moved; {
		moved = false
		for _, s := range h.list {
			if s.first == at {
				at, moved = s.last+1, true
			}
		}
	}
	return at
}

// has reports whether an entry left by a hole.
func (h *holes) has(seq uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.list, span{seq, seq}.meets)
}
