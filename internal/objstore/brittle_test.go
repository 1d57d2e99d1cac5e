package objstore_test

import (
	"context"
	"iter"

	"celldexport/internal/objstore"
)

// brittleLists breaks every listing after two objects.
type brittleLists struct{ objstore.Store }

func (b *brittleLists) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Object, error] {
	return func(yield func(objstore.Object, error) bool) {
		n := 0
		for obj, err := range b.Store.List(ctx, prefix, after) {
			if n++; n > 2 {
				yield(objstore.Object{}, errReset)
				return
			}
			if !yield(obj, err) {
				return
			}
		}
	}
}
