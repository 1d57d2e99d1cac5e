package celldsim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// ErrResident is returned when a cell that the node already holds is
// activated again.
var ErrResident = errors.New("cell is resident")

// ErrNotResident is returned when a cell is named that the node does not hold.
var ErrNotResident = errors.New("cell is not resident")

// Node is one celld process with its data directory. A node that crashed or
// was reloaded is the same Node with another generation.
type Node struct {
	fleet *Fleet
	name  string
	watch string
	held  residents

	mu         sync.Mutex
	generation string
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
	c, ok := n.held.get(scope)
	if !ok {
		return nil, fmt.Errorf("node %s, cell %s: %w", n.name, scope, ErrNotResident)
	}
	return c, nil
}

// Cells returns the scopes of the resident cells and facets, in order.
func (n *Node) Cells() []string { return n.held.scopes() }

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
// deleted, the handles are gone. [Node.Restart] brings the node back.
func (n *Node) Crash() error {
	var errs []error
	for _, c := range n.held.below("") {
		n.held.remove(c)
		errs = append(errs, closeCell(c, (*database).closeHard))
	}
	return errors.Join(errs...)
}

// Restart boots the node after a crash: a new generation and no resident
// cell. The directories of the old epochs stay where they are.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Crash(); err != nil {
		return err
	}
	return beginLife(ctx, n)
}

// beginLife starts a process life: a new generation, and its lease.
func beginLife(ctx context.Context, n *Node) error {
	generation := n.fleet.token(8)
	n.mu.Lock()
	n.generation = generation
	n.mu.Unlock()
	return n.Renew(ctx)
}

// Reload replaces the process in an orderly way: with the V06 layout a last
// barrier captures and uploads, the successor has a new generation and keeps
// every resident cell at its epoch, and the txids go on. The cells are the
// same Cell values with new handles.
func (n *Node) Reload(ctx context.Context) error {
	certificate := filepath.Join(n.watch, ".clean-reload.json")
	text := fmt.Sprintf(`{"node":%q,"generation":%q}`, n.name, n.Generation())
	if err := os.WriteFile(certificate, []byte(text), 0o644); err != nil {
		return fmt.Errorf("reload node %s: %w", n.name, err)
	}
	for _, c := range n.held.below("") {
		if n.fleet.cfg.Layout == V06 {
			if err := c.barrier(ctx, false); err != nil {
				return fmt.Errorf("reload node %s: %w", n.name, err)
			}
		}
		if err := c.reopen(ctx, false); err != nil {
			return fmt.Errorf("reload node %s: %w", n.name, err)
		}
	}
	if err := os.Remove(certificate); err != nil {
		return fmt.Errorf("reload node %s: %w", n.name, err)
	}
	return beginLife(ctx, n)
}
