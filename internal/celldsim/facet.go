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

// Facet opens the facet of that name below a resident cell or facet, by the
// same rules as an activation, at the root's epoch. A facet has a database,
// a directory and a bucket prefix of its own and no own.json.
func (c *Cell) Facet(ctx context.Context, name string) (*Cell, error) {
	scope, err := celld.ParseScope(c.scope.Child(FacetHash(name)).String())
	if err != nil {
		return nil, fmt.Errorf("open facet %q of %s: %w", name, c.scope, err)
	}
	if open, err := c.node.Cell(scope.String()); err == nil {
		return open, nil
	}
	facet := c.node.newCell(scope, c.epoch, c.pragmas)
	facet.root = c
	if c.root != nil {
		facet.root = c.root
	}
	if err := facet.open(ctx, Activation{}, false); err != nil {
		return nil, fmt.Errorf("open facet %q of %s: %w", name, c.scope, err)
	}
	return facet, nil
}

// DeleteFacet deletes the facet of that name below a resident cell or facet,
// and all facets below it: their directories on the node and their objects in
// the bucket.
func (c *Cell) DeleteFacet(ctx context.Context, name string) error {
	scope := c.scope.Child(FacetHash(name))
	for _, below := range c.node.below(scope.String()) {
		c.node.remove(below)
		below.mu.Lock()
		err := below.closeClean()
		below.mu.Unlock()
		if err != nil {
			return fmt.Errorf("delete facet %q of %s: %w", name, c.scope, err)
		}
	}
	if err := os.RemoveAll(celld.ScopeDir(c.node.watch, scope)); err != nil {
		return fmt.Errorf("delete facet %q of %s: %w", name, c.scope, err)
	}
	if err := c.node.fleet.deletePrefix(ctx, celld.CellsPrefix+scope.String()+"/"); err != nil {
		return fmt.Errorf("delete facet %q of %s: %w", name, c.scope, err)
	}
	return nil
}
