package ltxtail

import (
	"io"
	"io/fs"
	"os"
	"time"
)

// FS is the read-only view of the node's tree. Tests put faults behind it.
type FS interface {
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	Open(name string) (ReadFile, error)
}

// ReadFile is an open file of the node's tree.
type ReadFile interface {
	io.Reader
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
}

// OS is the operating system's file system.
type OS struct{}

// ReadDir lists a directory in name order.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Stat describes a file, following links.
func (OS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// Open opens a file for reading.
func (OS) Open(name string) (ReadFile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// stamp remembers the state in which a directory was last read, so that an
// unchanged one need not be read again.
type stamp struct {
	modified time.Time
	read     time.Time
}

// racy is how close a modification may be to the reading that saw it and
// still hide a later one in the same tick of the file system's clock.
const racy = 2 * time.Second

// fresh reports whether a directory modified at m is as it was read.
func (s stamp) fresh(m time.Time) bool {
	return !s.read.IsZero() && s.modified.Equal(m) && s.read.Sub(m) > racy
}
