package objstore_test

import (
	"context"
	"io"
	"iter"
	"sync/atomic"

	"celldexport/internal/objstore"
)

// alternating sends each call to another of two stores.
type alternating struct {
	stores [2]objstore.Store
	calls  atomic.Uint32
}

func newAlternating(a, b objstore.Store) *alternating {
	return &alternating{stores: [2]objstore.Store{a, b}}
}

func (a *alternating) next() objstore.Store { return a.stores[a.calls.Add(1)%2] }

func (a *alternating) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Object, error] {
	return a.next().List(ctx, prefix, after)
}

func (a *alternating) Get(ctx context.Context, key string, opts objstore.GetOptions) (io.ReadCloser, objstore.Object, error) {
	return a.next().Get(ctx, key, opts)
}

func (a *alternating) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts objstore.PutOptions) (objstore.Object, error) {
	return a.next().Put(ctx, key, body, size, opts)
}

func (a *alternating) Delete(ctx context.Context, key string) error {
	return a.next().Delete(ctx, key)
}
