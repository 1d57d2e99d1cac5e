// Package chain tells from the objects below a cell's prefix what the fleet
// bucket restores to: which transactions follow from which, where the chain
// of epochs ends, and which objects rebuild a position. Everything but
// Restore works on names alone.
package chain

import (
	"context"
	"fmt"
	"io"

	"celldexport/internal/celld"
	"celldexport/internal/objstore"
)

// File is one LTX object of a scope. Files of different epochs may cover the
// same transaction numbers and mean different transactions by them.
type File struct {
	Scope    string
	Epoch    uint64
	Level    int
	Min, Max uint64 // the transactions it covers
	Object   objstore.Object
}

// List lists the LTX objects of all epochs of a scope, in byte order of keys,
// without those of the facets below it. A key that claims to be an LTX object
// and cannot be read is an error that names it; other objects are left out.
func List(ctx context.Context, store objstore.Store, scope string) ([]File, error) {
	return list(ctx, store, scope, celld.LTXPrefix(scope), "")
}

// ListEpoch is List for one epoch.
func ListEpoch(ctx context.Context, store objstore.Store, scope string, epoch uint64) ([]File, error) {
	return list(ctx, store, scope, celld.LTXEpochPrefix(scope, epoch), "")
}

// ListRest is ListEpoch without the level-0 objects that start more than
// mergeReach transactions before txid: what continues from there is almost
// always among the rest, and a long residency costs one page instead of all.
func ListRest(ctx context.Context, store objstore.Store, scope string, epoch, txid uint64) ([]File, error) {
	after := ""
	if txid > mergeReach {
		after = celld.LTXKey(scope, epoch, 0, txid-mergeReach, 0)
	}
	return list(ctx, store, scope, celld.LTXEpochPrefix(scope, epoch), after)
}

// mergeReach is more than the files that one compaction or merged upload
// takes (256 in the releases seen).
const mergeReach = 1024

func list(ctx context.Context, store objstore.Store, scope, prefix, after string) ([]File, error) {
	if _, err := celld.ParseScope(scope); err != nil {
		return nil, fmt.Errorf("list LTX objects: %w", err)
	}
	var files []File
	for o, err := range store.List(ctx, prefix, after) {
		if err != nil {
			return nil, fmt.Errorf("list LTX objects of %s: %w", scope, err)
		}
		f, ok, err := FromObject(o)
		if err != nil {
			return nil, fmt.Errorf("list LTX objects of %s: %w", scope, err)
		}
		if !ok {
			continue
		}
		if f.Scope != scope {
			return nil, fmt.Errorf("list LTX objects of %s: key %q is of another scope: %w", scope, o.Key, celld.ErrName)
		}
		files = append(files, f)
	}
	return files, nil
}

// FromObject reads what the key of an object says. ok is false for objects
// that are no LTX objects; see celld.ParseLTXKey for the difference to an
// error.
func FromObject(o objstore.Object) (f File, ok bool, err error) {
	name, ok, err := celld.ParseLTXKey(o.Key)
	if !ok || err != nil {
		return File{}, false, err
	}
	return File{
		Scope:  name.Scope.String(),
		Epoch:  name.Epoch,
		Level:  name.Level,
		Min:    name.Min,
		Max:    name.Max,
		Object: o,
	}, true, nil
}

// Open opens the version of the object that was listed: an object replaced
// since is an error that wraps objstore.ErrPrecondition, one that is gone an
// error that wraps objstore.ErrNotFound.
func Open(ctx context.Context, store objstore.Store, f File) (io.ReadCloser, error) {
	body, o, err := store.Get(ctx, f.Object.Key, objstore.GetOptions{IfMatch: f.Object.ETag})
	if err != nil {
		return nil, fmt.Errorf("open LTX object %s: %w", f.Object.Key, err)
	}
	if o.Size != f.Object.Size {
		_ = body.Close() // nothing was read from it
		return nil, fmt.Errorf("open LTX object %s: %d bytes, listed with %d: %w", f.Object.Key, o.Size, f.Object.Size, objstore.ErrPrecondition)
	}
	return body, nil
}
