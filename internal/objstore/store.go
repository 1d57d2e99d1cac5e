// Package objstore is the object store that celld's fleet bucket and the
// export bucket live in: one small interface, with s3, file and memory
// stores behind it and retry, prefix, counting and fault wrappers around it.
//
// Every store gives the same guarantees, and one test suite holds them all to
// it: a Put is whole or absent, conditional writes have exactly one winner,
// List is in byte order of keys and sees every Put that returned before it
// began, and a key may be both an object and a prefix of other keys.
package objstore

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

var (
	// ErrNotFound is returned when no object has the key.
	ErrNotFound = errors.New("object not found")
	// ErrPrecondition is returned when a conditional read or write met
	// another version of the object than it asked for.
	ErrPrecondition = errors.New("object changed since it was read")
	// ErrDenied is returned when the store refuses the credentials or the
	// bucket does not exist: trying again does not help.
	ErrDenied = errors.New("access to the bucket refused")
)

// Object describes one stored object.
type Object struct {
	// Key is the object's whole key below the store's prefix.
	Key string
	// Size in bytes.
	Size int64
	// ETag names this version of the content. It is opaque.
	ETag string
	// Modified is when the store took the object, by the store's clock.
	Modified time.Time
}

// GetOptions narrows a read.
type GetOptions struct {
	// Offset is the first byte to read. A negative Offset reads the last
	// -Offset bytes (all of a shorter object). At or past the end there is
	// nothing to read, which is no error.
	Offset int64
	// Length limits the bytes read; 0 reads to the end.
	Length int64
	// IfMatch makes the read fail with ErrPrecondition unless the object's
	// ETag is this one.
	IfMatch string
}

// PutOptions makes a write conditional.
type PutOptions struct {
	// IfMatch writes only when the object's ETag is this one; a key that
	// holds no object does not match.
	IfMatch string
	// IfAbsent writes only when the key holds no object.
	IfAbsent bool
	// ContentType is the media type, "application/octet-stream" when empty.
	ContentType string
}

// Store is a bucket, or a bucket below a prefix. Methods are safe for
// concurrent use. Errors wrap ErrNotFound, ErrPrecondition, ErrDenied or
// ErrKey where these apply and name the operation and the key; any other error
// may pass when the call is repeated. No error text holds a credential or the
// query string of a request.
type Store interface {
	// List yields the objects whose keys start with prefix and sort after
	// the key after ("" lists from the start), in byte order of keys. The
	// sequence ends after its first error.
	List(ctx context.Context, prefix, after string) iter.Seq2[Object, error]
	// Get opens an object, or the part of it that opts asks for. Object.Size
	// is the size of the whole object, whatever part is read.
	Get(ctx context.Context, key string, opts GetOptions) (io.ReadCloser, Object, error)
	// Put stores size bytes of body under key. The body is read from its
	// start at each attempt. With a condition an ambiguous outcome (a lost
	// answer) is an error that is neither ErrPrecondition nor nil: the
	// caller reads the object back to learn who won.
	Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts PutOptions) (Object, error)
	// Delete removes an object. A key that holds none is no error.
	Delete(ctx context.Context, key string) error
}
