package celldsim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"celldexport/internal/celld"
	"celldexport/internal/objstore"
)

// ErrFenced is returned when own.json names another node or epoch than the
// operation needs: the cell belongs to someone else.
var ErrFenced = errors.New("cell is owned elsewhere")

// put stores b under key, replacing what is there, as celld's own PUTs do.
func (f *Fleet) put(ctx context.Context, key string, b []byte, opts objstore.PutOptions) error {
	_, err := objstore.PutBytes(ctx, f.cfg.Bucket, key, b, opts)
	return err
}

// putJSON stores v as JSON under key.
func (f *Fleet) putJSON(ctx context.Context, key string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	return f.put(ctx, key, b, objstore.PutOptions{ContentType: "application/json"})
}

// maxDocument bounds the JSON documents that the fleet reads, in bytes.
const maxDocument = 1 << 20

// readOwn reads a cell's own.json. The etag is "" when the cell has none.
func (f *Fleet) readOwn(ctx context.Context, cell string) (celld.Own, string, error) {
	b, obj, err := objstore.ReadAll(ctx, f.cfg.Bucket, celld.OwnKey(cell), maxDocument)
	if errors.Is(err, objstore.ErrNotFound) {
		return celld.Own{}, "", nil
	}
	if err != nil {
		return celld.Own{}, "", err
	}
	doc, err := celld.ParseOwn(b)
	if err != nil {
		return celld.Own{}, "", fmt.Errorf("cell %s: %w", cell, err)
	}
	return doc, obj.ETag, nil
}

// casOwn replaces a cell's own.json, which must still be the version etag
// ("" when it must be absent).
func (f *Fleet) casOwn(ctx context.Context, cell, etag string, doc celld.Own) error {
	opts := objstore.PutOptions{IfMatch: etag, IfAbsent: etag == "", ContentType: "application/json"}
	err := f.put(ctx, celld.OwnKey(cell), doc.Append(nil), opts)
	if errors.Is(err, objstore.ErrPrecondition) {
		return fmt.Errorf("write own.json of %s: %w", cell, ErrFenced)
	}
	return err
}

// claim takes a cell for node at the next epoch. Without force a cell that
// another node holds is refused with [ErrFenced]. It returns the new epoch
// and whether the cell was taken from another node.
func (f *Fleet) claim(ctx context.Context, cell, node string, force bool) (epoch uint64, takeover bool, err error) {
	doc, etag, err := f.readOwn(ctx, cell)
	if err != nil {
		return 0, false, err
	}
	takeover = doc.Node != "" && doc.Node != node
	if takeover && !force {
		return 0, false, fmt.Errorf("claim %s, which node %s holds at epoch %d: %w", cell, doc.Node, doc.Epoch, ErrFenced)
	}
	epoch = doc.Epoch + 1
	return epoch, takeover, f.casOwn(ctx, cell, etag, celld.Own{Node: node, Epoch: epoch})
}

// release gives up the ownership of a cell, keeping the epoch.
func (f *Fleet) release(ctx context.Context, cell, node string) error {
	doc, etag, err := f.readOwn(ctx, cell)
	if err != nil {
		return err
	}
	if doc.Node != node {
		return fmt.Errorf("node %q holds it at epoch %d: %w", doc.Node, doc.Epoch, ErrFenced)
	}
	return f.casOwn(ctx, cell, etag, celld.Own{Epoch: doc.Epoch})
}

// deletePrefix removes every object below prefix.
func (f *Fleet) deletePrefix(ctx context.Context, prefix string) error {
	var keys []string
	for obj, err := range f.cfg.Bucket.List(ctx, prefix, "") {
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		keys = append(keys, obj.Key)
	}
	for _, key := range keys {
		if err := f.cfg.Bucket.Delete(ctx, key); err != nil {
			return fmt.Errorf("delete %s: %w", key, err)
		}
	}
	return nil
}
