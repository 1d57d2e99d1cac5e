package bucket

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"celldexport/internal/objstore"
)

// MaxObject is the largest object that is read into memory.
const MaxObject = 4 << 30

// Fetch reads an object from a store into memory and opens it.
func Fetch(ctx context.Context, store objstore.Store, key string) (*Reader, error) {
	b, _, err := objstore.ReadAll(ctx, store, key, MaxObject)
	if err != nil {
		return nil, fmt.Errorf("read export object: %w", err)
	}
	return NewReader(key, bytes.NewReader(b), int64(len(b)))
}

// tailBytes is what is read of an object first: its end, where Parquet keeps
// the footer and our writer the bloom filters, of an object of usual size.
const tailBytes = 64 << 10

// Remote is a stored object as an io.ReaderAt that reads only its end until
// more is asked for, then all of it: two requests at most, and one for an
// object whose bloom filter shows that it is not wanted.
type Remote struct {
	ctx   context.Context
	store objstore.Store
	obj   objstore.Object
	tail  []byte
	whole []byte
}

// OpenRemote reads the end of an object. ctx bounds all reads.
func OpenRemote(ctx context.Context, store objstore.Store, key string) (*Remote, error) {
	r := &Remote{ctx: ctx, store: store}
	body, obj, err := store.Get(ctx, key, objstore.GetOptions{Offset: -tailBytes})
	if err != nil {
		return nil, fmt.Errorf("read the end of an export object: %w", err)
	}
	r.obj = obj
	r.tail = make([]byte, min(obj.Size, tailBytes))
	return r, r.read(body, r.tail)
}

// Size is the object's size in bytes.
func (r *Remote) Size() int64 { return r.obj.Size }

// ReadAt reads from what is held, and first from the store when that is not
// enough. An object that was replaced meanwhile is an error.
func (r *Remote) ReadAt(p []byte, off int64) (int, error) {
	if from := r.obj.Size - int64(len(r.tail)); r.whole == nil && off >= from {
		return bytes.NewReader(r.tail).ReadAt(p, off-from)
	}
	if r.whole == nil {
		if err := r.fetch(); err != nil {
			return 0, err
		}
	}
	return bytes.NewReader(r.whole).ReadAt(p, off)
}

// fetch reads what lies before the end.
func (r *Remote) fetch() error {
	size := r.obj.Size
	if size > MaxObject {
		return fmt.Errorf("read %s: %d bytes, at most %d are read: %w", r.obj.Key, size, int64(MaxObject), objstore.ErrTooLarge)
	}
	rest := size - int64(len(r.tail))
	body, _, err := r.store.Get(r.ctx, r.obj.Key, objstore.GetOptions{Length: rest, IfMatch: r.obj.ETag})
	if err != nil {
		return fmt.Errorf("read export object: %w", err)
	}
	whole := make([]byte, size)
	if err := r.read(body, whole[:rest]); err != nil {
		return err
	}
	copy(whole[rest:], r.tail)
	r.whole = whole
	return nil
}

// read fills b from the body of a response and closes it.
func (r *Remote) read(body io.ReadCloser, b []byte) error {
	defer body.Close()
	if n, err := io.ReadFull(body, b); err != nil {
		return fmt.Errorf("read %s: got %d of %d bytes: %w", r.obj.Key, n, len(b), io.ErrUnexpectedEOF)
	}
	return nil
}
