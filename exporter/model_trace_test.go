package exporter_test

import (
	"context"
	"fmt"
	"io"
	"iter"

	"celldexport/internal/objstore"
)

// traced notes a node's calls of the bucket, in the order in which they end:
// what happens at the same time decides how some fleets end.
type traced struct {
	objstore.Store
	node string
	to   io.Writer
}

func (s traced) note(op, key, how string, err error) {
	if err != nil {
		how += ": " + err.Error()
	}
	fmt.Fprintf(s.to, "%s: %s %s %s\n", s.node, op, key, how)
}

func (s traced) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Object, error] {
	return func(yield func(objstore.Object, error) bool) {
		n, failure := 0, error(nil)
		defer func() { s.note(objstore.OpList, prefix, fmt.Sprintf("%q: %d objects", after, n), failure) }()
		for obj, err := range s.Store.List(ctx, prefix, after) {
			if failure = err; err == nil {
				n++
			}
			if !yield(obj, err) {
				return
			}
		}
	}
}

func (s traced) Get(ctx context.Context, key string, opts objstore.GetOptions) (io.ReadCloser, objstore.Object, error) {
	body, obj, err := s.Store.Get(ctx, key, opts)
	s.note(objstore.OpGet, key, obj.ETag, err)
	return body, obj, err
}

func (s traced) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts objstore.PutOptions) (objstore.Object, error) {
	obj, err := s.Store.Put(ctx, key, body, size, opts)
	s.note(objstore.OpPut, key, obj.ETag, err)
	return obj, err
}
