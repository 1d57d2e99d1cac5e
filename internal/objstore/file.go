package objstore

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// File is a store in a directory, safe to share between processes of one
// machine. An object is written to a temporary file, synced, renamed over its
// place, and the directory synced: it is whole or absent, also after a power
// cut. The writes' last step runs under a lock file, so conditional writes have
// one winner. ETags are the MD5 of the content.
type File struct {
	dir   string
	etags etagCache
	mu    sync.RWMutex // the lock file's part within this process
}

// NewFile returns the store in dir and makes the directory when it is missing.
func NewFile(dir string) (*File, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open file store: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open file store: %w", err)
	}
	f := &File{dir: dir}
	return f, nil
}

// Get implements Store.
func (f *File) Get(ctx context.Context, key string, opts GetOptions) (io.ReadCloser, Object, error) {
	if err := begin(ctx, OpGet, key); err != nil {
		return nil, Object{}, err
	}
	file, obj, err := f.open(key)
	if err != nil {
		return nil, Object{}, fileError(OpGet, key, err)
	}
	if opts.IfMatch != "" && opts.IfMatch != obj.ETag {
		file.Close()
		return nil, Object{}, fmt.Errorf("get %s: %w", key, ErrPrecondition)
	}
	from, to := window(opts, obj.Size)
	return fileBody{io.NewSectionReader(file, from, to-from), file}, obj, nil
}

type fileBody struct {
	io.Reader
	io.Closer
}

// open opens the object of key and describes it. The open file keeps this
// version readable when it is replaced.
func (f *File) open(key string) (*os.File, Object, error) {
	path := filepath.Join(f.dir, keyPath(key))
	file, err := os.Open(path)
	if err != nil {
		return nil, Object{}, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	var etag string
	if err == nil {
		etag, err = f.etags.get(file, path, info)
	}
	if err != nil {
		file.Close()
		return nil, Object{}, err
	}
	return file, Object{Key: key, Size: info.Size(), ETag: etag, Modified: info.ModTime()}, nil
}

// fileError gives an error of the file system the store's words.
func fileError(op, key string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %s: %w", op, key, ErrNotFound)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s %s: %w: %w", op, key, ErrDenied, err)
	}
	return fmt.Errorf("%s %s: %w", op, key, err)
}

// Put implements Store.
func (f *File) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts PutOptions) (Object, error) {
	if err := begin(ctx, OpPut, key); err != nil {
		return Object{}, err
	}
	if err := checkConditions(key, opts); err != nil {
		return Object{}, err
	}
	obj, err := f.put(ctx, key, body, size, opts)
	if err != nil {
		if errors.Is(err, ErrPrecondition) {
			return Object{}, fmt.Errorf("put %s: %w", key, err)
		}
		if errors.Is(err, fs.ErrNotExist) { // the directory is gone, not the object
			return Object{}, fmt.Errorf("put %s: %w: %w", key, ErrDenied, err)
		}
		return Object{}, fileError(OpPut, key, err)
	}
	return obj, nil
}

func (f *File) put(ctx context.Context, key string, body io.ReaderAt, size int64, opts PutOptions) (Object, error) {
	temp, etag, err := f.stage(body, size)
	if err != nil {
		return Object{}, err
	}
	defer temp.Close()
	path := filepath.Join(f.dir, keyPath(key))
	err = f.locked(func() error {
		if err := f.check(key, opts); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := makeFolders(f.dir, filepath.Dir(path)); err != nil {
			return err
		}
		if err := os.Rename(temp.Name(), path); err != nil {
			return err
		}
		return syncFolder(filepath.Dir(path))
	})
	if err != nil {
		os.Remove(temp.Name()) // gone already when the rename was done
		return Object{}, err
	}
	info, err := temp.Stat()
	if err != nil {
		return Object{}, err
	}
	f.etags.set(path, info, etag)
	return Object{Key: key, Size: size, ETag: etag, Modified: info.ModTime()}, nil
}

// check holds a write's conditions against what is stored. It runs under the
// lock.
func (f *File) check(key string, opts PutOptions) error {
	if !opts.IfAbsent && opts.IfMatch == "" {
		return nil
	}
	file, obj, err := f.open(key)
	if err == nil {
		file.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if exists := err == nil; opts.IfAbsent && exists || opts.IfMatch != "" && opts.IfMatch != obj.ETag {
		return ErrPrecondition
	}
	return nil
}

// stage writes a body to a temporary file on stable storage. The file stays
// open, and locked, until its place is decided; an unlocked one belongs to a
// process that died.
func (f *File) stage(body io.ReaderAt, size int64) (*os.File, string, error) {
	temp, err := f.createTemp()
	if err != nil {
		return nil, "", err
	}
	sum := md5.New()
	n, err := io.Copy(io.MultiWriter(temp, sum), io.NewSectionReader(body, 0, size))
	if err == nil && n < size {
		err = bodyError(n, size, nil)
	}
	if err == nil {
		err = temp.Sync()
	}
	if err != nil {
		temp.Close()
		os.Remove(temp.Name())
		return nil, "", err
	}
	return temp, hex.EncodeToString(sum.Sum(nil)), nil
}

// Delete implements Store. Folders that become empty are removed too.
func (f *File) Delete(ctx context.Context, key string) error {
	if err := begin(ctx, OpDelete, key); err != nil {
		return err
	}
	path := filepath.Join(f.dir, keyPath(key))
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := f.locked(func() error {
		if err := os.Remove(path); err != nil {
			return err
		}
		dir := filepath.Dir(path)
		for ; dir != f.dir && os.Remove(dir) == nil; dir = filepath.Dir(dir) {
		}
		return syncFolder(dir)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileError(OpDelete, key, err)
	}
	return nil
}
