package celldsim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"celldexport/internal/celld"
	"celldexport/internal/chain"
	"celldexport/internal/ltxfile"
)

// Activation says how a cell is opened.
type Activation struct {
	// Cell is the cell, "Class:id". Required.
	Cell string
	// Name is the object's name, "" for an object without one.
	Name string
	// Pragmas run before anything else, each as "name(value)":
	// "page_size(512)", "encoding('UTF-16le')", "auto_vacuum(1)". They
	// decide the form of a database that does not exist yet.
	Pragmas []string
	// Paged opens the restored state as a paged epoch: the local files
	// start with a marker without pages, one txid after the restored state,
	// and numbering goes on from there. It needs a state in the bucket.
	Paged bool
	// Deferred leaves the first capture to the caller, so that first
	// commits of the application come to lie in the epoch's first file.
	Deferred bool
}

// Activate takes a free cell, or one this node held last, for the next epoch
// and opens it: from the image that an eviction of the epoch before left
// here, else from the bucket, else fresh. When it returns, celld's own tables
// are in place and the epoch's first file, a full image, is captured and not
// uploaded. A cell that another node holds gives [ErrFenced].
func (n *Node) Activate(ctx context.Context, cell, name string) (*Cell, error) {
	return n.ActivateWith(ctx, Activation{Cell: cell, Name: name})
}

// ActivateWith is Activate with everything that can be chosen.
func (n *Node) ActivateWith(ctx context.Context, a Activation) (*Cell, error) {
	return n.activate(ctx, a, false)
}

// TakeOver takes a cell from whoever holds it, as a node may once the
// holder's lease has expired, and restores it from the bucket. The old
// holder's Cell goes on working and uploading until it is dropped: a paused
// owner that has not noticed.
func (n *Node) TakeOver(ctx context.Context, cell, name string) (*Cell, error) {
	return n.activate(ctx, Activation{Cell: cell, Name: name}, true)
}

// TakeOverWith is TakeOver with everything that can be chosen.
func (n *Node) TakeOverWith(ctx context.Context, a Activation) (*Cell, error) {
	return n.activate(ctx, a, true)
}

func (n *Node) activate(ctx context.Context, a Activation, force bool) (*Cell, error) {
	if err := celld.CheckCellName(a.Cell); err != nil {
		return nil, fmt.Errorf("activate on node %s: %w", n.name, err)
	}
	if _, err := n.Cell(a.Cell); err == nil {
		return nil, fmt.Errorf("activate %s on node %s: %w", a.Cell, n.name, ErrResident)
	}
	epoch, takeover, err := n.fleet.claim(ctx, a.Cell, n.name, force)
	if err != nil {
		return nil, fmt.Errorf("activate on node %s: %w", n.name, err)
	}
	c := n.newCell(celld.Scope{Cell: a.Cell}, epoch, a.Pragmas)
	if err := c.open(ctx, a, takeover); err != nil {
		return nil, fmt.Errorf("activate %s on node %s: %w", a.Cell, n.name, err)
	}
	return c, nil
}

// newCell describes a scope at an epoch that the node owns.
func (n *Node) newCell(scope celld.Scope, epoch uint64, pragmas []string) *Cell {
	dir := celld.EpochDir(n.watch, scope, epoch)
	return &Cell{node: n, scope: scope, epoch: epoch, dir: dir, pragmas: pragmas, full: true}
}

// open makes the cell resident.
func (c *Cell) open(ctx context.Context, a Activation, takeover bool) error {
	if err := os.MkdirAll(c.LTXDir(), 0o755); err != nil {
		return err
	}
	restored, err := c.provideImage(ctx, takeover || a.Paged)
	if err != nil {
		return err
	}
	if a.Paged {
		if err := c.markPaged(restored); err != nil {
			return err
		}
	}
	if c.db, err = openDatabase(c.Path(), c.pragmas); err != nil {
		return err
	}
	if err := c.setUp(ctx, a.Name); err != nil {
		return errors.Join(err, c.db.Close())
	}
	if !a.Deferred {
		if _, err := c.capture(); err != nil {
			return errors.Join(err, c.db.Close())
		}
	}
	c.node.add(c)
	return nil
}

// provideImage puts the database file in place: the evicted image unless
// fromBucket is set, else what the bucket restores to. It returns the header
// of the last restored file; a fresh cell has none and gets no file.
func (c *Cell) provideImage(ctx context.Context, fromBucket bool) (ltxfile.Info, error) {
	if path, ok := c.node.evictedImage(c.scope, c.epoch); ok && !fromBucket {
		return ltxfile.Info{}, os.Rename(path, c.Path())
	}
	store := c.node.fleet.cfg.Bucket
	files, err := chain.List(ctx, store, c.Scope())
	if err != nil {
		return ltxfile.Info{}, err
	}
	head, ok := chain.Derive(files)
	if !ok {
		return ltxfile.Info{}, nil
	}
	if head.Epoch >= c.epoch {
		return ltxfile.Info{}, fmt.Errorf("restore %s for epoch %d: the bucket already holds epoch %d", c.scope, c.epoch, head.Epoch)
	}
	plan, err := chain.Plan(files, head.Epoch, head.TXID)
	if err != nil {
		return ltxfile.Info{}, err
	}
	tmp := filepath.Join(c.dir, celld.DatabaseName+".tmp")
	out, err := os.Create(tmp)
	if err != nil {
		return ltxfile.Info{}, err
	}
	info, _, err := chain.Restore(ctx, store, plan, &databaseFile{file: out})
	if err := errors.Join(err, out.Close()); err != nil {
		return ltxfile.Info{}, err
	}
	return info, os.Rename(tmp, c.Path())
}

// markPaged writes the marker of a paged epoch and numbers on from it.
func (c *Cell) markPaged(restored ltxfile.Info) error {
	if restored.PageSize == 0 {
		return fmt.Errorf("open %s paged: the bucket holds no state of it", c.scope)
	}
	cut := restored.MaxTXID
	h := ltxfile.Header{
		Flags: ltxfile.FlagNoChecksum, PageSize: restored.PageSize, Commit: restored.Commit,
		MinTXID: cut + 1, MaxTXID: cut + 1, Timestamp: c.node.fleet.cfg.Now().UnixMilli(),
	}
	if err := writeLocal(c.LTXDir(), h, nil, nil); err != nil {
		return err
	}
	c.txid, c.uploaded, c.paged = cut+1, cut, true
	c.pages, c.pageSize, c.full = restored.Commit, restored.PageSize, false
	return nil
}

// databaseFile receives a restored image.
type databaseFile struct {
	file *os.File
}

// WritePage implements the restore's page writer.
func (d *databaseFile) WritePage(pgno uint32, data []byte) error {
	_, err := d.file.WriteAt(data, int64(pgno-1)*int64(len(data)))
	return err
}

// Resize implements the restore's page writer.
func (d *databaseFile) Resize(pageSize, commit uint32) error {
	return d.file.Truncate(int64(pageSize) * int64(commit))
}
