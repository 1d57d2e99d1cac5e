package celldsim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"celldexport/internal/celld"
)

// Evict ends a residency in the orderly way: the tail is captured and
// uploaded in the manner of the layout, ownership is read back, and the local
// WAL and LTX files vanish. With keepImage the database stays as db.evicted
// for the next activation here. Facets go with their root. own.json keeps
// naming the node. A node that lost the cell gets [ErrFenced], and all files
// stay.
func (n *Node) Evict(ctx context.Context, cell string, keepImage bool) error {
	how := (*database).remove
	if keepImage {
		how = (*database).preserve
	}
	if err := prove(ctx, n, cell, false); err != nil {
		return fmt.Errorf("evict %s from node %s: %w", cell, n.name, err)
	}
	return leave(n, cell, how)
}

// Handoff evicts a cell and releases it, so that any node may activate it.
// With snapshot a level-9 snapshot of each database is uploaded in place of
// its pending files, whose single txids then exist nowhere in the bucket.
func (n *Node) Handoff(ctx context.Context, cell string, snapshot bool) error {
	if err := prove(ctx, n, cell, snapshot); err != nil {
		return fmt.Errorf("hand %s off from node %s: %w", cell, n.name, err)
	}
	if err := leave(n, cell, (*database).remove); err != nil {
		return err
	}
	return n.Release(ctx, cell)
}

// AbandonEviction starts an eviction of a cell, uploads everything, and gives
// it up: the cell is reopened on the same database at the same epoch, its
// files still in place. Since the database was closed, the next file is a
// full image.
func (n *Node) AbandonEviction(ctx context.Context, cell string) error {
	if err := prove(ctx, n, cell, false); err != nil {
		return fmt.Errorf("evict %s from node %s: %w", cell, n.name, err)
	}
	for _, c := range n.held.below(cell) {
		if err := c.reopen(ctx, true); err != nil {
			return fmt.Errorf("abandon the eviction of %s from node %s: %w", cell, n.name, err)
		}
	}
	return nil
}

// AbandonEvictionLate is AbandonEviction of an eviction that had come further:
// the captured files are deleted when it is given up. meanwhile runs while
// there are none. The reopened cells number on from where they were, in
// directories of their own.
func (n *Node) AbandonEvictionLate(ctx context.Context, cell string, meanwhile func() error) error {
	if err := prove(ctx, n, cell, false); err != nil {
		return fmt.Errorf("evict %s from node %s: %w", cell, n.name, err)
	}
	cells := n.held.below(cell)
	var errs []error
	for _, c := range cells {
		errs = append(errs, loseFiles(c))
	}
	errs = append(errs, meanwhile())
	for _, c := range cells {
		errs = append(errs, c.reopen(ctx, true))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("abandon the eviction of %s from node %s: %w", cell, n.name, err)
	}
	return nil
}

// Reset discards a residency whose durability could not be proven: database,
// WAL and LTX files are deleted and nothing is uploaded.
func (n *Node) Reset(cell string) error {
	return leave(n, cell, (*database).remove)
}

// Drop gives a cell's handles up and leaves all files, as a fenced process
// does when it ends.
func (n *Node) Drop(cell string) error {
	return leave(n, cell, (*database).closeHard)
}

// Release writes own.json without a node, keeping the epoch. The cell must be
// owned by this node and not be resident any more.
func (n *Node) Release(ctx context.Context, cell string) error {
	if err := n.fleet.release(ctx, cell, n.name); err != nil {
		return fmt.Errorf("release %s from node %s: %w", cell, n.name, err)
	}
	return nil
}

// DropImages removes every evicted image of the node, as the cache limit does.
func (n *Node) DropImages() error {
	err := filepath.WalkDir(n.watch, func(path string, d os.DirEntry, err error) error {
		if err == nil && (d.Name() == celld.EvictedName || d.Name() == celld.HibernatedName) {
			return os.Remove(path)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("drop the evicted images of node %s: %w", n.name, err)
	}
	return nil
}

// prove uploads what a root cell and its facets still have to upload, then
// reads that the node owns the cell at the epoch of its residency.
func prove(ctx context.Context, n *Node, cell string, snapshot bool) error {
	root, err := residentRoot(n, cell)
	if err != nil {
		return err
	}
	for _, c := range n.held.below(cell) {
		if err := c.barrier(ctx, snapshot); err != nil {
			return err
		}
	}
	doc, _, err := n.fleet.readOwn(ctx, cell)
	if err != nil {
		return err
	}
	if doc.Node != n.name || doc.Epoch != root.epoch {
		return fmt.Errorf("node %q holds it at epoch %d: %w", doc.Node, doc.Epoch, ErrFenced)
	}
	return nil
}

// leave ends the residency of a root cell and its facets by one way of
// closing a database.
func leave(n *Node, cell string, how func(*database) error) error {
	if _, err := residentRoot(n, cell); err != nil {
		return err
	}
	var errs []error
	for _, c := range n.held.below(cell) {
		n.held.remove(c)
		errs = append(errs, closeCell(c, how))
	}
	return errors.Join(errs...)
}

// residentRoot returns a resident root cell.
func residentRoot(n *Node, cell string) (*Cell, error) {
	c, err := n.Cell(cell)
	if err != nil {
		return nil, err
	}
	if c.scope.IsFacet() {
		return nil, fmt.Errorf("node %s: %s is a facet and moves with its root", n.name, cell)
	}
	return c, nil
}
