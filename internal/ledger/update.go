package ledger

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"celldexport/internal/celld"
	"celldexport/internal/objstore"
)

// maxBytes is the largest ledger or node object that is read or written.
const maxBytes = 16 << 20

const (
	// maxRaces is how often a write that lost to another writer is tried.
	maxRaces = 64
	// maxFailures is how often a write whose outcome is unknown is tried.
	maxFailures = 4
)

// Key returns the key of a stream's ledger in the fleet bucket; facet is ""
// for a root.
func Key(cell, facet string) string {
	name := "root"
	if facet != "" {
		name = "f." + celld.EscapeName(facet)
	}
	return "exportd/ledger/" + celld.EscapeName(cell) + "/" + name + ".json"
}

// Load reads a ledger and the ETag it has; nil when there is none. An object
// that is no ledger, or a newer program's, is an error that wraps ErrCorrupt or
// ErrNewer and names the key.
func Load(ctx context.Context, store objstore.Store, key string) (*Document, string, error) {
	data, etag, err := read(ctx, store, key, maxBytes)
	if err != nil || data == nil {
		return nil, "", err
	}
	d, err := decode(key, data)
	if err != nil {
		return nil, "", fmt.Errorf("read ledger %s: %w", key, err)
	}
	return d, etag, nil
}

// read returns an object's content of at most so many bytes, nil when there is
// none.
func read(ctx context.Context, store objstore.Store, key string, most int64) ([]byte, string, error) {
	data, obj, err := objstore.ReadAll(ctx, store, key, most)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return nil, "", nil
	case errors.Is(err, objstore.ErrTooLarge):
		return nil, "", fmt.Errorf("%w: %w", ErrCorrupt, err)
	case err != nil:
		return nil, "", err
	}
	return data, obj.ETag, nil
}

// Update changes a ledger by compare-and-swap and returns it as stored. change
// gets the document that is there, or an empty one, and is called anew with
// what is found then whenever another writer was faster or the outcome of a
// write is unknown; so it must depend on its argument alone and may be applied
// twice. A change that leaves the document as it was writes nothing. An error
// of change ends the update and is wrapped.
//
// random gives the tokens that tell this writer's object from others'.
func Update(ctx context.Context, store objstore.Store, key string, random io.Reader, change func(*Document) error) (*Document, error) {
	d, etag, err := Load(ctx, store, key)
	if err != nil {
		return nil, err
	}
	for races, failures := 0, 0; ; {
		next, data, err := revise(d, random, change)
		if err != nil {
			return nil, fmt.Errorf("update ledger %s: %w", key, err)
		}
		if data == nil {
			return next, nil
		}
		writeErr := write(ctx, store, key, data, etag)
		if writeErr == nil {
			return next, nil
		}
		lost := errors.Is(writeErr, objstore.ErrPrecondition)
		if !lost && (objstore.Permanent(writeErr) || ctx.Err() != nil) {
			return nil, writeErr
		}
		if d, etag, err = Load(ctx, store, key); err != nil {
			return nil, errors.Join(writeErr, err)
		}
		if d != nil && d.Token == next.Token {
			return next, nil // the answer was lost, not the write
		}
		if lost {
			races++
		} else {
			failures++
		}
		if races >= maxRaces || failures >= maxFailures {
			return nil, fmt.Errorf("update ledger %s: given up after %d lost races and %d failures: %w", key, races, failures, writeErr)
		}
	}
}

// revise applies change to a copy of d. The bytes to write are nil when
// nothing changed.
func revise(d *Document, random io.Reader, change func(*Document) error) (*Document, []byte, error) {
	next := &Document{Format: Format, Streams: []Stream{}}
	if d != nil {
		next = d.clone()
	}
	before, err := next.encode()
	if err != nil {
		return nil, nil, err
	}
	if err := change(next); err != nil {
		return nil, nil, err
	}
	after, err := next.encode()
	if err != nil {
		return nil, nil, err
	}
	if bytes.Equal(before, after) {
		return next, nil, nil
	}
	if next.Token, err = newToken(random); err != nil {
		return nil, nil, err
	}
	if after, err = next.encode(); err != nil {
		return nil, nil, err
	}
	if len(after) > maxBytes {
		return nil, nil, fmt.Errorf("it would have %d bytes, at most %d are read back", len(after), maxBytes)
	}
	return next, after, nil
}

// write stores data when the object still has the ETag, "" for no object.
func write(ctx context.Context, store objstore.Store, key string, data []byte, etag string) error {
	_, err := objstore.PutBytes(ctx, store, key, data, objstore.PutOptions{
		IfMatch: etag, IfAbsent: etag == "", ContentType: "application/json",
	})
	return err
}

func newToken(random io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("draw a token: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}
