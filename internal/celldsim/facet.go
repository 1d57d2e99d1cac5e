package celldsim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	"celldexport/internal/celld"
)

// FacetHash is the path segment of a facet: the first 16 bytes of the SHA-256
// of its name, in hex.
func FacetHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// OpenFacet opens the facet of that name below a resident cell or facet, by
// the same rules as an activation, at the root's epoch. A facet has a
// database, a directory and a bucket prefix of its own and no own.json.
func OpenFacet(ctx context.Context, below *Cell, name string) (*Cell, error) {
	scope, err := celld.ParseScope(below.scope.Child(FacetHash(name)).String())
	if err != nil {
		return nil, fmt.Errorf("open facet %q of %s: %w", name, below.scope, err)
	}
	if open, ok := below.node.held.get(scope.String()); ok {
		return open, nil
	}
	c := newCell(below.node, scope, below.epoch, below.db.pragmas)
	if err := openCell(ctx, c, Activation{}, false); err != nil {
		return nil, fmt.Errorf("open facet %q of %s: %w", name, below.scope, err)
	}
	return c, nil
}

// DeleteFacet deletes the facet of that name below a resident cell or facet,
// and all facets below it: their directories on the node and their objects in
// the bucket. The facet need not be resident.
func DeleteFacet(ctx context.Context, below *Cell, name string) error {
	n, scope := below.node, below.scope.Child(FacetHash(name))
	for _, c := range n.held.below(scope.String()) {
		n.held.remove(c)
		if err := closeCell(c, (*database).closeClean); err != nil {
			return fmt.Errorf("delete facet %q of %s: %w", name, below.scope, err)
		}
	}
	if err := os.RemoveAll(celld.ScopeDir(n.watch, scope)); err != nil {
		return fmt.Errorf("delete facet %q of %s: %w", name, below.scope, err)
	}
	if err := n.fleet.deletePrefix(ctx, celld.CellsPrefix+scope.String()+"/"); err != nil {
		return fmt.Errorf("delete facet %q of %s: %w", name, below.scope, err)
	}
	return nil
}
