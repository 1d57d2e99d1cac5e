package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// ErrTooLarge is returned by ReadAll for an object larger than its limit.
var ErrTooLarge = errors.New("object larger than allowed")

// ErrBody is returned when the body given to a Put cannot be read, or ends
// before its size. Nothing was stored.
var ErrBody = errors.New("body not readable")

// bodyError describes a body that gave n of size bytes.
func bodyError(n, size int64, err error) error {
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %d of %d bytes: %w", ErrBody, n, size, noEOF(err))
}

// ReadAll reads a whole object of at most max bytes into memory. A larger one
// is refused with ErrTooLarge before any of it is read; a body that ends early
// is an error.
func ReadAll(ctx context.Context, s Store, key string, max int64) ([]byte, Object, error) {
	body, obj, err := s.Get(ctx, key, GetOptions{})
	if err != nil {
		return nil, Object{}, err
	}
	defer body.Close()
	if obj.Size > max {
		return nil, obj, fmt.Errorf("read %s: %d bytes, at most %d are read: %w", key, obj.Size, max, ErrTooLarge)
	}
	data := make([]byte, obj.Size)
	if n, err := io.ReadFull(body, data); err != nil {
		return nil, obj, fmt.Errorf("read %s: got %d of %d bytes: %w", key, n, obj.Size, noEOF(err))
	}
	return data, obj, nil
}

// PutBytes stores data under key.
func PutBytes(ctx context.Context, s Store, key string, data []byte, opts PutOptions) (Object, error) {
	return s.Put(ctx, key, bytes.NewReader(data), int64(len(data)), opts)
}

// noEOF turns an end of file in the middle of something into one that no loop
// takes for a regular end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// window returns the part [from, to) of an object of size bytes that opts asks
// for.
func window(opts GetOptions, size int64) (from, to int64) {
	from = opts.Offset
	if from < 0 {
		from = max(size+from, 0)
	}
	from = min(from, size)
	to = size
	if opts.Length > 0 {
		to = min(size, from+min(opts.Length, size))
	}
	return from, to
}
