package ltxtail

import (
	"io/fs"
	"syscall"
	"time"
)

// mark tells one state of a directory from another: making, removing or
// renaming an entry changes the time, putting another directory in its place
// the number.
type mark struct {
	device, inode uint64
	modified      int64
}

func markOf(info fs.FileInfo) mark {
	m := mark{modified: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		m.device, m.inode = uint64(st.Dev), st.Ino
	}
	return m
}

// stamp remembers the state in which a directory was last read, so that an
// unchanged one need not be read again. Its times count from the start of the
// tree that it belongs to.
type stamp struct {
	mark mark
	// since is when this state was first seen.
	since time.Duration
	// settled says that the directory was read in this state so late that a
	// change which that reading missed would show as another state.
	settled bool
}

// racy is how long a change may hide behind one that was seen: the kernel's
// clock is coarse, and some file systems count in whole seconds or in two.
const racy = 2 * time.Second

// reread is after how long a directory is read whatever its state says: some
// file systems do not keep these times.
const reread = 10 * time.Minute

// holds reports whether a directory in state m need not be read: it is as it
// was when it was read.
func (s *stamp) holds(m mark) bool { return s.settled && s.mark == m }

// replaced reports whether m belongs to another directory than the one that
// was last seen.
func (s *stamp) replaced(m mark) bool {
	return *s != stamp{} && (s.mark.device != m.device || s.mark.inode != m.inode)
}

// see notes the state of a directory that is about to be read.
//
// Our own clock is compared with itself only, never with the times of files:
// those may come from another machine, or from before a step of the clock.
func (s *stamp) see(m mark, now time.Duration) {
	if s.mark != m || *s == (stamp{}) || now < s.since {
		s.mark, s.since = m, now
	}
	s.settled = false
}

// read notes that the directory was read, beginning at now.
func (s *stamp) read(now time.Duration) { s.settled = now-s.since > racy }
