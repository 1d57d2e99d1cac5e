package delivery

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
)

// File is what the spool needs of an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Truncate sets the length in bytes.
	Truncate(size int64) error
	// Sync makes everything written so far durable.
	Sync() error
	// Size is the length in bytes.
	Size() (int64, error)
}

// FS is the file system below a spool. Tests put a faulty one here; the
// operating system's is used when Options.FS is nil.
type FS interface {
	// Create makes a new file, readable and writable; an old one of the name
	// is emptied.
	Create(name string) (File, error)
	// Open opens a file that exists, readable and writable.
	Open(name string) (File, error)
	Remove(name string) error
	// List returns the base names of the files in dir, sorted.
	List(dir string) ([]string, error)
	MkdirAll(dir string) error
	// SyncDir makes creations and removals in dir durable.
	SyncDir(dir string) error
}

// DiskFS is the operating system's file system, for those that put something
// between it and a spool.
func DiskFS() FS { return osFS{} }

type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (osFS) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Open(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o700) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	sort.Strings(names)
	return names, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		d.Close()
		return fmt.Errorf("sync directory: %w", err)
	}
	return d.Close()
}
