package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"celldexport/internal/celld"
	"celldexport/internal/objstore"
)

// Residents is which cells a node's directory held when the node was first
// exported from, by the newest epoch of each. It is stored once, for a node
// that another exporter had written for: what that one said of these epochs,
// or of older ones, is not known here.
type Residents struct {
	Format int `json:"format"`
	// Node is the node's name.
	Node string `json:"node"`
	// Epochs holds the newest epoch by the cell's scope, "Class:id".
	Epochs map[string]uint64 `json:"epochs"`
}

// maxResidents is the largest list that is written or read, in bytes: a
// million cells and more.
const maxResidents = 128 << 20

// ResidentsKey returns the key of a node's list in the fleet bucket.
func ResidentsKey(node string) string {
	return "exportd/residents/" + celld.EscapeName(node) + ".json"
}

// LoadResidents reads a node's list; nil when there is none. An object that is
// something else is an error that names its key.
func LoadResidents(ctx context.Context, store objstore.Store, node string) (*Residents, error) {
	key := ResidentsKey(node)
	data, _, err := read(ctx, store, key, maxResidents)
	if err != nil || data == nil {
		return nil, err
	}
	var r Residents
	if err := decodeJSON(data, &r); err != nil {
		return nil, fmt.Errorf("read residents %s: %w", key, err)
	}
	if r.Node != node || r.Epochs == nil {
		return nil, fmt.Errorf("read residents %s: %w: it is of node %q, or lists nothing", key, ErrCorrupt, r.Node)
	}
	return &r, nil
}

// SaveResidents stores the epochs as a node's list and returns what is stored
// then: a list that is there already, of an earlier start, stays as it is.
func SaveResidents(ctx context.Context, store objstore.Store, node string, epochs map[string]uint64) (*Residents, error) {
	key := ResidentsKey(node)
	r := &Residents{Format: Format, Node: node, Epochs: epochs}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write residents %s: %w", key, err)
	}
	if len(data) >= maxResidents {
		return nil, fmt.Errorf("write residents %s: it would have %d bytes, at most %d are read back", key, len(data), maxResidents)
	}
	writeErr := write(ctx, store, key, append(data, '\n'), "")
	if writeErr == nil {
		return r, nil
	}
	// Another start was faster, or only the answer was lost.
	have, err := LoadResidents(ctx, store, node)
	if err != nil || have == nil {
		return nil, errors.Join(writeErr, err)
	}
	return have, nil
}
