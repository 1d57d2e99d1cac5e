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
	// Resume opens what a crash left, at the epoch it was in: the database
	// goes back to what the bucket covers, and numbering goes on from there.
	// Captured files above it stay until new ones of the same name replace
	// them. The node must still own the cell.
	Resume bool
	// TakeOver takes the cell from whoever holds it; see [Node.TakeOver].
	TakeOver bool
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
	if err := celld.CheckCellName(a.Cell); err != nil {
		return nil, fmt.Errorf("activate on node %s: %w", n.name, err)
	}
	if _, err := n.Cell(a.Cell); err == nil {
		return nil, fmt.Errorf("activate %s on node %s: %w", a.Cell, n.name, ErrResident)
	}
	epoch, foreign, err := claimFor(ctx, n, a)
	if err != nil {
		return nil, fmt.Errorf("activate on node %s: %w", n.name, err)
	}
	c := newCell(n, celld.Scope{Cell: a.Cell}, epoch, a.Pragmas)
	if err := openCell(ctx, c, a, foreign || a.Paged || a.Resume); err != nil {
		return nil, fmt.Errorf("activate %s on node %s: %w", a.Cell, n.name, err)
	}
	return c, nil
}

// claimFor gets the epoch that an activation runs at, and whether the cell
// came from another node.
func claimFor(ctx context.Context, n *Node, a Activation) (epoch uint64, foreign bool, err error) {
	if !a.Resume {
		return n.fleet.claim(ctx, a.Cell, n.name, a.TakeOver)
	}
	doc, _, err := n.fleet.readOwn(ctx, a.Cell)
	if err == nil && doc.Node != n.name {
		err = fmt.Errorf("resume %s, which node %q holds: %w", a.Cell, doc.Node, ErrFenced)
	}
	return doc.Epoch, false, err
}

// TakeOver takes a cell from whoever holds it, as a node may once the
// holder's lease has expired, and restores it from the bucket. The old
// holder's Cell goes on working and uploading until it is dropped: a paused
// owner that has not noticed.
func (n *Node) TakeOver(ctx context.Context, cell, name string) (*Cell, error) {
	return n.ActivateWith(ctx, Activation{Cell: cell, Name: name, TakeOver: true})
}

// openCell makes a cell resident. An image that an eviction left is not used
// when fromBucket is set.
func openCell(ctx context.Context, c *Cell, a Activation, fromBucket bool) error {
	if err := os.MkdirAll(c.files.dir, 0o755); err != nil {
		return err
	}
	restored, err := provideImage(ctx, c, fromBucket, a.Resume)
	if err != nil {
		return err
	}
	if (a.Resume || a.Paged) && restored.PageSize == 0 {
		return errors.New("the bucket holds no state to go on from")
	}
	if a.Resume {
		c.files.txid, c.sent.through = restored.MaxTXID, restored.MaxTXID
	}
	if a.Paged {
		if err := c.files.startPaged(restored); err != nil {
			return err
		}
		c.sent.through = restored.MaxTXID
	}
	if err := c.db.open(); err != nil {
		return err
	}
	if err := c.db.setUp(ctx, a.Name); err != nil {
		return errors.Join(err, c.db.closeClean())
	}
	if !a.Deferred {
		if _, err := c.capture(); err != nil {
			return errors.Join(err, c.db.closeClean())
		}
	}
	c.node.held.add(c)
	return nil
}

// provideImage puts the database file in place: the evicted image unless
// fromBucket is set, else what the bucket restores to. It returns what the
// last restored file said; a fresh cell has none and gets no file. The state
// is of an earlier epoch, except to resume, when it is of this one.
func provideImage(ctx context.Context, c *Cell, fromBucket, resume bool) (ltxfile.Info, error) {
	if path, ok := evictedImage(c); ok && !fromBucket {
		return ltxfile.Info{}, os.Rename(path, c.db.path())
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
	if head.Epoch > c.epoch || head.Epoch == c.epoch != resume {
		return ltxfile.Info{}, fmt.Errorf("restore %s for epoch %d: the newest epoch in the bucket is %d", c.scope, c.epoch, head.Epoch)
	}
	plan, err := chain.Plan(files, head.Epoch, head.TXID)
	if err != nil {
		return ltxfile.Info{}, err
	}
	tmp := c.db.path() + ".tmp"
	out, err := os.Create(tmp)
	if err != nil {
		return ltxfile.Info{}, err
	}
	info, _, err := chain.Restore(ctx, store, plan, &databaseFile{file: out})
	if err := errors.Join(err, out.Close()); err != nil {
		return ltxfile.Info{}, err
	}
	if err := os.RemoveAll(c.db.path() + "-wal"); err != nil {
		return ltxfile.Info{}, err
	}
	return info, os.Rename(tmp, c.db.path())
}

// evictedImage finds the image that an eviction left in the epoch before.
func evictedImage(c *Cell) (string, bool) {
	if c.epoch < 2 {
		return "", false
	}
	for _, name := range []string{celld.EvictedName, celld.HibernatedName} {
		path := filepath.Join(celld.EpochDir(c.node.watch, c.scope, c.epoch-1), name)
		if _, err := os.Stat(path); err == nil {
			return path, true
		}
	}
	return "", false
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
