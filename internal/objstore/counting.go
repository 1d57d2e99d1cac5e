package objstore

import (
	"context"
	"errors"
	"io"
	"iter"
)

// The operations of a Store, as wrappers name them.
const (
	OpList   = "list"
	OpGet    = "get"
	OpPut    = "put"
	OpDelete = "delete"
)

// The outcomes that Counting reports.
const (
	OutcomeOK           = "ok"
	OutcomeNotFound     = "not_found"
	OutcomePrecondition = "precondition"
	OutcomeDenied       = "denied"
	OutcomeCanceled     = "canceled"
	OutcomeError        = "error"
)

// Counting calls observe once per finished operation, with its name, its
// outcome and the body bytes read or written. A Get is finished when its body
// is closed, a List when its loop ends. Below WithRetry it sees every attempt,
// above it every call. observe runs on the caller's goroutine.
func Counting(s Store, observe func(op, outcome string, bytes int64)) Store {
	return &counting{store: s, observe: observe}
}

type counting struct {
	store   Store
	observe func(op, outcome string, bytes int64)
}

func outcome(err error) string {
	switch {
	case err == nil:
		return OutcomeOK
	case errors.Is(err, ErrNotFound):
		return OutcomeNotFound
	case errors.Is(err, ErrPrecondition):
		return OutcomePrecondition
	case errors.Is(err, ErrDenied):
		return OutcomeDenied
	case errors.Is(err, context.Canceled):
		return OutcomeCanceled
	}
	return OutcomeError
}

// List implements Store.
func (c *counting) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		var last error
		defer func() { c.observe(OpList, outcome(last), 0) }()
		for obj, err := range c.store.List(ctx, prefix, after) {
			last = err
			if !yield(obj, err) {
				return
			}
		}
	}
}

// Get implements Store.
func (c *counting) Get(ctx context.Context, key string, opts GetOptions) (io.ReadCloser, Object, error) {
	body, obj, err := c.store.Get(ctx, key, opts)
	if err != nil {
		c.observe(OpGet, outcome(err), 0)
		return nil, obj, err
	}
	return &countedBody{body: body, observe: c.observe}, obj, nil
}

// countedBody reports a Get when it is closed, once.
type countedBody struct {
	body    io.ReadCloser
	observe func(op, outcome string, bytes int64)
	read    int64
	err     error
	closed  bool
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.read += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

func (b *countedBody) Close() error {
	err := b.body.Close()
	if !b.closed {
		b.closed = true
		b.observe(OpGet, outcome(b.err), b.read)
	}
	return err
}

// Put implements Store.
func (c *counting) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts PutOptions) (Object, error) {
	obj, err := c.store.Put(ctx, key, body, size, opts)
	if err != nil {
		c.observe(OpPut, outcome(err), 0)
		return obj, err
	}
	c.observe(OpPut, OutcomeOK, size)
	return obj, nil
}

// Delete implements Store.
func (c *counting) Delete(ctx context.Context, key string) error {
	err := c.store.Delete(ctx, key)
	c.observe(OpDelete, outcome(err), 0)
	return err
}
