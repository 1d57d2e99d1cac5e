package objstore

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// locked runs fn while no other writer, of this process or another, changes
// names in the directory.
func (f *File) locked(fn func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	lock, err := os.OpenFile(filepath.Join(f.dir, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close() // closing releases
	if err := flock(lock, syscall.LOCK_EX); err != nil {
		return err
	}
	return fn()
}

// shared runs fn while no writer changes names. A directory that nobody wrote
// to yet, or that is mounted read-only before its first write, has no lock
// file and needs none.
func (f *File) shared(fn func() error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	lock, err := os.Open(filepath.Join(f.dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fn()
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock(lock, syscall.LOCK_SH); err != nil {
		return err
	}
	return fn()
}

func flock(file *os.File, how int) error {
	for {
		err := syscall.Flock(int(file.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return &os.PathError{Op: "lock", Path: file.Name(), Err: err}
		}
	}
}

// createTemp makes a temporary file and locks it, and clears away the ones
// that dead processes left. Both happen under the lock, so that no file is
// seen between its creation and its lock.
func (f *File) createTemp() (temp *os.File, err error) {
	folder := filepath.Join(f.dir, tempFolder)
	err = f.locked(func() error {
		if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		sweep(folder)
		temp, err = os.OpenFile(filepath.Join(folder, rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		return flock(temp, syscall.LOCK_EX|syscall.LOCK_NB)
	})
	if err != nil && temp != nil {
		temp.Close()
		os.Remove(temp.Name())
		return nil, err
	}
	return temp, err
}

// sweep removes temporary files that nobody holds. What cannot be removed now
// is left to the next writer.
func sweep(folder string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		if flock(file, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.Remove(path)
		}
		file.Close()
	}
}

// makeFolders makes the folders from root down to dir and makes each one's
// name durable in its parent.
func makeFolders(root, dir string) error {
	if dir == root {
		return nil
	}
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeFolders(root, filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o755)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return syncFolder(filepath.Dir(dir))
}

// syncFolder makes the names in dir durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
