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
	root, err := n.root(cell)
	if err != nil {
		return err
	}
	family := n.family(root)
	for _, c := range family {
		if err := c.lockedBarrier(ctx); err != nil {
			return fmt.Errorf("evict %s from node %s: %w", cell, n.name, err)
		}
	}
	if err := n.stillOwner(ctx, root); err != nil {
		return fmt.Errorf("evict %s from node %s: %w", cell, n.name, err)
	}
	return n.leave(family, keepImage)
}

// Handoff evicts a cell and releases it, so that any node may activate it.
// With snapshot a level-9 snapshot of each database is uploaded in place of
// its pending files, whose single txids then exist nowhere in the bucket.
func (n *Node) Handoff(ctx context.Context, cell string, snapshot bool) error {
	root, err := n.root(cell)
	if err != nil {
		return err
	}
	family := n.family(root)
	for _, c := range family {
		prove := c.lockedBarrier
		if snapshot && !c.paged {
			prove = c.lockedSnapshot
		}
		if err := prove(ctx); err != nil {
			return fmt.Errorf("hand %s off from node %s: %w", cell, n.name, err)
		}
	}
	if err := n.stillOwner(ctx, root); err != nil {
		return fmt.Errorf("hand %s off from node %s: %w", cell, n.name, err)
	}
	if err := n.leave(family, false); err != nil {
		return err
	}
	return n.release(ctx, root)
}

// AbandonEviction starts an eviction of a cell, uploads everything, and gives
// it up: the cell is reopened on the same database at the same epoch, its
// files still in place. Since the database was closed, the next file is a
// full image.
func (n *Node) AbandonEviction(ctx context.Context, cell string) error {
	root, err := n.root(cell)
	if err != nil {
		return err
	}
	for _, c := range n.family(root) {
		if err := c.lockedBarrier(ctx); err != nil {
			return fmt.Errorf("evict %s from node %s: %w", cell, n.name, err)
		}
		if err := c.reopen(ctx); err != nil {
			return fmt.Errorf("abandon the eviction of %s from node %s: %w", cell, n.name, err)
		}
	}
	return nil
}

// Reset discards a residency whose durability could not be proven: database,
// WAL and LTX files are deleted and nothing is uploaded.
func (n *Node) Reset(cell string) error {
	root, err := n.root(cell)
	if err != nil {
		return err
	}
	return n.leave(n.family(root), false)
}

// Drop gives a cell's handles up and leaves all files, as a fenced process
// does when it ends.
func (n *Node) Drop(cell string) error {
	root, err := n.root(cell)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range n.family(root) {
		n.remove(c)
		c.mu.Lock()
		errs = append(errs, c.closeHard())
		c.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Release writes own.json without a node, keeping the epoch. The cell must be
// owned by this node and not be resident any more.
func (n *Node) Release(ctx context.Context, cell string) error {
	doc, etag, err := n.fleet.readOwn(ctx, cell)
	if err != nil {
		return err
	}
	if doc.Node != n.name {
		return fmt.Errorf("release %s, which node %q holds: %w", cell, doc.Node, ErrFenced)
	}
	return n.fleet.casOwn(ctx, cell, etag, celld.Own{Epoch: doc.Epoch})
}

// DropImages removes every evicted image of the node, as the cache limit does.
func (n *Node) DropImages() error {
	for _, name := range []string{celld.EvictedName, celld.HibernatedName} {
		pattern := filepath.Join(n.watch, "*", celld.EpochsDirName, "e*", name)
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("look for evicted images: %w", err)
		}
		for _, path := range paths {
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("drop an evicted image: %w", err)
			}
		}
	}
	return nil
}

// root returns a resident root cell.
func (n *Node) root(cell string) (*Cell, error) {
	c, err := n.Cell(cell)
	if err != nil {
		return nil, err
	}
	if c.root != nil {
		return nil, fmt.Errorf("node %s: %s is a facet and moves with its root", n.name, cell)
	}
	return c, nil
}

// stillOwner reads own.json and compares it with the residency.
func (n *Node) stillOwner(ctx context.Context, c *Cell) error {
	doc, _, err := n.fleet.readOwn(ctx, c.scope.Cell)
	if err != nil {
		return err
	}
	if doc.Node != n.name || doc.Epoch != c.epoch {
		return fmt.Errorf("node %q holds it at epoch %d: %w", doc.Node, doc.Epoch, ErrFenced)
	}
	return nil
}

// release gives up the ownership that a residency had.
func (n *Node) release(ctx context.Context, c *Cell) error {
	if err := n.stillOwner(ctx, c); err != nil {
		return err
	}
	return n.Release(ctx, c.scope.Cell)
}

// leave closes databases and removes their files, keeping the image when
// asked.
func (n *Node) leave(family []*Cell, keepImage bool) error {
	for _, c := range family {
		n.remove(c)
		if err := c.leave(keepImage); err != nil {
			return fmt.Errorf("remove %s from node %s: %w", c.scope, n.name, err)
		}
	}
	return nil
}

func (c *Cell) leave(keepImage bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.closeClean(); err != nil {
		return err
	}
	var err error
	if keepImage {
		err = os.Rename(c.Path(), filepath.Join(c.dir, celld.EvictedName))
	} else {
		err = os.Remove(c.Path())
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if e := os.Remove(c.Path() + suffix); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, os.RemoveAll(filepath.Join(c.dir, celld.MetaDirName)))
}

// reopen closes a cell in the orderly way and opens it again.
func (c *Cell) reopen(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.closeClean(); err != nil {
		return err
	}
	var err error
	if c.db, err = openDatabase(c.Path(), c.pragmas); err != nil {
		return err
	}
	c.full = true
	return c.bump(ctx)
}

func (c *Cell) lockedBarrier(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.barrier(ctx)
}

func (c *Cell) lockedSnapshot(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.capture(); err != nil {
		return err
	}
	return c.snapshot(ctx)
}
