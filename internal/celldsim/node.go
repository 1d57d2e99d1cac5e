package celldsim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"celldexport/internal/celld"
)

// ErrResident is returned when a cell that the node already holds is
// activated again, and its opposite when one is named that it does not hold.
var (
	ErrResident    = errors.New("cell is resident")
	ErrNotResident = errors.New("cell is not resident")
)

// Node is one celld process with its data directory. A node that crashed or
// was reloaded is the same Node with another generation.
type Node struct {
	fleet *Fleet
	name  string
	watch string

	mu         sync.Mutex
	generation string
	cells      map[string]*Cell
}

// Name returns the node's name, as own.json spells it.
func (n *Node) Name() string { return n.name }

// Watch returns the node's data directory.
func (n *Node) Watch() string { return n.watch }

// Generation returns the id of the node's present process life.
func (n *Node) Generation() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.generation
}

// Cell returns a resident cell or facet.
func (n *Node) Cell(scope string) (*Cell, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ok := n.cells[scope]
	if !ok {
		return nil, fmt.Errorf("node %s, cell %s: %w", n.name, scope, ErrNotResident)
	}
	return c, nil
}

// Cells returns the scopes of the resident cells and facets, in order.
func (n *Node) Cells() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.cells))
}

// add records a resident cell.
func (n *Node) add(c *Cell) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cells[c.Scope()] = c
}

// remove forgets a resident cell.
func (n *Node) remove(c *Cell) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cells, c.Scope())
}

// family returns a root cell's resident facets, deepest first, then the cell
// itself.
func (n *Node) family(root *Cell) []*Cell { return n.below(root.Scope()) }

// below returns the resident cells and facets at a scope and below it,
// deepest first.
func (n *Node) below(top string) []*Cell {
	n.mu.Lock()
	defer n.mu.Unlock()
	var family []*Cell
	for scope, c := range n.cells {
		if scope == top || strings.HasPrefix(scope, top+"/") {
			family = append(family, c)
		}
	}
	slices.SortFunc(family, func(a, b *Cell) int { return strings.Compare(b.Scope(), a.Scope()) })
	return family
}

// lease is the document nodes/<node>.json of a node without a log tier.
type lease struct {
	Node            string         `json:"node"`
	ExpiresMS       int64          `json:"expires_ms"`
	Addr            string         `json:"addr"`
	ProbePublicKey  string         `json:"probe_public_key"`
	PeerProtocol    int            `json:"peer_protocol"`
	IndexGeneration string         `json:"ownership_index_generation"`
	Load            map[string]int `json:"load"`
}

// leaseTTL is how long a lease lives, in milliseconds.
const leaseTTL = 10_000

// Renew writes the node's lease, as a node does each third of its life.
func (n *Node) Renew(ctx context.Context) error {
	generation := n.Generation()
	now := n.fleet.cfg.Now().UnixMilli()
	return n.fleet.putJSON(ctx, "nodes/"+n.name+".json", lease{
		Node: n.name, ExpiresMS: now + leaseTTL, Addr: "127.0.0.1:0", ProbePublicKey: generation,
		PeerProtocol: 1, IndexGeneration: generation,
		Load: map[string]int{"resident_cells": len(n.Cells())},
	})
}

// Crash ends the process as kill -9 does: nothing is captured, uploaded or
// deleted, the handles are gone. [Node.Restart] or [Node.Reload] brings the
// node back.
func (n *Node) Crash() error {
	n.mu.Lock()
	cells := slices.Collect(maps.Values(n.cells))
	clear(n.cells)
	n.mu.Unlock()
	var errs []error
	for _, c := range cells {
		c.mu.Lock()
		errs = append(errs, c.closeHard())
		c.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Restart boots the node after a crash: a new generation and no resident
// cell. The directories of the old epochs stay where they are.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Crash(); err != nil {
		return err
	}
	n.mu.Lock()
	n.generation = n.fleet.token(8)
	n.mu.Unlock()
	return n.Renew(ctx)
}

// Reload replaces the process in an orderly way: with the V06 layout a last
// barrier captures and uploads, the successor has a new generation and keeps
// every resident cell at its epoch, and the txids go on. The cells are the
// same Cell values with new handles.
func (n *Node) Reload(ctx context.Context) error {
	n.mu.Lock()
	cells := slices.Collect(maps.Values(n.cells))
	n.mu.Unlock()
	certificate := filepath.Join(n.watch, ".clean-reload.json")
	text := fmt.Sprintf(`{"node":%q,"generation":%q}`, n.name, n.Generation())
	if err := os.WriteFile(certificate, []byte(text), 0o644); err != nil {
		return fmt.Errorf("reload node %s: %w", n.name, err)
	}
	for _, c := range cells {
		if err := c.reload(ctx); err != nil {
			return fmt.Errorf("reload node %s: %w", n.name, err)
		}
	}
	n.mu.Lock()
	n.generation = n.fleet.token(8)
	n.mu.Unlock()
	if err := os.Remove(certificate); err != nil {
		return fmt.Errorf("reload node %s: %w", n.name, err)
	}
	return n.Renew(ctx)
}

// reload closes and reopens a cell with its files in place.
func (c *Cell) reload(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node.fleet.cfg.Layout == V06 {
		if err := c.barrier(ctx); err != nil {
			return err
		}
	}
	if err := c.closeHard(); err != nil {
		return err
	}
	var err error
	c.db, err = openDatabase(c.Path(), c.pragmas)
	return err
}

// barrier captures what is committed and uploads what is pending.
func (c *Cell) barrier(ctx context.Context) error {
	if _, err := c.capture(); err != nil {
		return err
	}
	return c.uploadPending(ctx)
}

// evictedImage finds the image that an eviction left in the epoch before.
func (n *Node) evictedImage(scope celld.Scope, epoch uint64) (string, bool) {
	if epoch < 2 {
		return "", false
	}
	for _, name := range []string{celld.EvictedName, celld.HibernatedName} {
		path := filepath.Join(celld.EpochDir(n.watch, scope, epoch-1), name)
		if _, err := os.Stat(path); err == nil {
			return path, true
		}
	}
	return "", false
}
