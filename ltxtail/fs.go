package ltxtail

import (
	"io"
	"io/fs"
	"os"
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
