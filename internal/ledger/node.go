package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"celldexport/internal/celld"
	"celldexport/internal/objstore"
)

// NodeDoc is a node's object: which state directory speaks for the node. It
// moves with every start, so that a directory that was lost, restored from a
// copy, or running twice sees that it is not the one.
type NodeDoc struct {
	Format int `json:"format"`
	// State is the id of the state directory.
	State string `json:"state"`
	// Boot counts the starts of all directories of the node.
	Boot uint64 `json:"boot"`
	// Token is random and saved in the directory before it is claimed.
	Token string `json:"token"`
	// Before is the key of an object that the export bucket held of the node
	// before its first start: another exporter's. It is "" when there was
	// none, and never changes.
	Before string `json:"before,omitempty"`
}

// NodeKey returns the key of a node's object in the fleet bucket.
func NodeKey(node string) string { return "exportd/nodes/" + celld.EscapeName(node) + ".json" }

// LoadNode reads a node's object and its ETag; nil when there is none. An
// object that is something else is an error that names its key.
func LoadNode(ctx context.Context, store objstore.Store, node string) (*NodeDoc, string, error) {
	key := NodeKey(node)
	data, etag, err := read(ctx, store, key, maxBytes)
	if err != nil || data == nil {
		return nil, "", err
	}
	var d NodeDoc
	if err := decodeJSON(data, &d); err != nil {
		return nil, "", fmt.Errorf("read node object %s: %w", key, err)
	}
	if d.State == "" || d.Token == "" || d.Boot == 0 {
		return nil, "", fmt.Errorf("read node object %s: %w: state, boot or token is missing", key, ErrCorrupt)
	}
	return &d, etag, nil
}

// ClaimNode writes a node's object in place of the one that was read with
// etag, "" for none. The caller has saved doc's token already, which must be
// new and random: a claim whose answer is lost is recognised by it, here or at
// the next start. ErrTaken says that another claim came in between; LoadNode
// shows whose.
func ClaimNode(ctx context.Context, store objstore.Store, node string, doc NodeDoc, etag string) error {
	key := NodeKey(node)
	if doc.State == "" || doc.Token == "" || doc.Boot == 0 {
		return fmt.Errorf("claim %s: state, boot and token must be set", key)
	}
	doc.Format = Format
	data, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("claim %s: %w", key, err)
	}
	for failures := 0; ; {
		writeErr := write(ctx, store, key, append(data, '\n'), etag)
		if writeErr == nil {
			return nil
		}
		lost := errors.Is(writeErr, objstore.ErrPrecondition)
		if !lost && (objstore.Permanent(writeErr) || ctx.Err() != nil) {
			return writeErr
		}
		have, now, err := LoadNode(ctx, store, node)
		switch {
		case err != nil:
			return errors.Join(writeErr, err)
		case have != nil && *have == doc:
			return nil // the answer was lost, not the write
		case lost || now != etag:
			return fmt.Errorf("claim %s: %w", key, ErrTaken)
		}
		if failures++; failures >= maxFailures {
			return fmt.Errorf("claim %s: given up after %d failures: %w", key, failures, writeErr)
		}
	}
}
