package state

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Identity is what this state directory says of itself. The node's object in
// the fleet bucket says the same as long as neither was lost or copied.
type Identity struct {
	// ID names the directory, "" before the first start.
	ID string `json:"id"`
	// Node is whose directory it is, "" when no start has said so.
	Node string `json:"node,omitempty"`
	// Boot counts starts; Token is random and belongs to Boot.
	Boot  uint64 `json:"boot"`
	Token string `json:"token"`
	// Next is the token saved for boot Boot+1 before it is claimed, so that
	// a claim whose answer was lost is known as ours.
	Next string `json:"next,omitempty"`
}

// Identity reads the directory's identity.
func (d *Dir) Identity(ctx context.Context) (Identity, error) {
	var id Identity
	text, err := d.meta(ctx, "identity")
	if err != nil || text == "" {
		return id, err
	}
	if err := json.Unmarshal([]byte(text), &id); err != nil {
		return id, fmt.Errorf("read identity of state directory %s: %w", d.path, err)
	}
	return id, nil
}

// SaveIdentity stores the directory's identity durably.
func (d *Dir) SaveIdentity(ctx context.Context, id Identity) error {
	text, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("encode identity: %w", err)
	}
	return d.setMeta(ctx, "identity", string(text))
}

// Reset forgets everything but the format: the directory is an old copy, and
// what it says of streams is no longer what their consumers hold. It must be
// called before anything below the directory is opened. The identity goes
// last: a reset that was cut short is found lost again and done again.
func (d *Dir) Reset(ctx context.Context) error {
	if _, err := d.db.ExecContext(ctx, `DELETE FROM streams`); err != nil {
		return fmt.Errorf("reset state database: %w", err)
	}
	for _, sub := range []string{d.Spool(), d.Delivery(), d.Shadows(), d.Temp()} {
		if err := emptyDir(sub); err != nil {
			return fmt.Errorf("reset state directory: %w", err)
		}
	}
	if _, err := d.db.ExecContext(ctx, `DELETE FROM meta WHERE key = 'identity'`); err != nil {
		return fmt.Errorf("reset state database: %w", err)
	}
	return nil
}

// emptyDir removes what is in a directory and keeps the directory.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("empty directory: %w", err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("empty directory: %w", err)
		}
	}
	return nil
}
