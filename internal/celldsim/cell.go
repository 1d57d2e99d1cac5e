package celldsim

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"celldexport/internal/celld"
)

// Cell is a resident cell or facet: one database that one node holds at one
// epoch. It stays usable after another node took the cell over, as a paused
// owner does that has not noticed yet.
type Cell struct {
	node  *Node
	scope celld.Scope
	epoch uint64

	mu    sync.Mutex
	db    database
	files recorder
	sent  uploader
}

// newCell describes a scope at an epoch that the node owns.
func newCell(n *Node, scope celld.Scope, epoch uint64, pragmas []string) *Cell {
	db := database{scope: scope.String(), dir: celld.EpochDir(n.watch, scope, epoch), pragmas: pragmas}
	return &Cell{
		node: n, scope: scope, epoch: epoch, db: db,
		files: recorder{dir: celld.LTXDir(n.watch, scope, epoch), database: db.path(), now: n.fleet.cfg.Now, full: true},
		sent:  uploader{fleet: n.fleet, scope: db.scope, epoch: epoch},
	}
}

// Scope returns the cell's stream name: "Class:id", with "/facets/<hash>"
// segments for a facet.
func (c *Cell) Scope() string { return c.scope.String() }

// Epoch returns the epoch at which the node holds the cell.
func (c *Cell) Epoch() uint64 { return c.epoch }

// Node returns the node that holds the cell.
func (c *Cell) Node() *Node { return c.node }

// TXID returns the number of the last captured LTX file, 0 before the first.
func (c *Cell) TXID() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.files.txid
}

// LTXDir returns the directory of the captured files.
func (c *Cell) LTXDir() string { return c.files.dir }

// DB returns the cell's database. It has a single connection: a statement
// issued while a result set or transaction is open waits for it.
func (c *Cell) DB() *sql.DB {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db.sql
}

// Exec runs SQL, which may be several statements, each its own transaction
// unless the text opens one.
func (c *Cell) Exec(query string, args ...any) error {
	if _, err := c.DB().Exec(query, args...); err != nil {
		return fmt.Errorf("execute %q on %s: %w", abbreviate(query), c.scope, err)
	}
	return nil
}

// abbreviate cuts long SQL for an error message.
func abbreviate(s string) string {
	if len(s) > 120 {
		return s[:120] + "..."
	}
	return s
}

// Bump commits a change of the replicator's own sequence table and of nothing
// else, as the replicator does to force a WAL write.
func (c *Cell) Bump() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db.bump(context.Background())
}

// Capture writes everything committed since the last capture as one LTX file
// and returns its txid; nothing is returned when nothing was committed. The
// first file of an epoch, and the file after the WAL was restarted, hold
// every page. When the WAL has grown past the fleet's limit the capture goes
// on with a TRUNCATE checkpoint and the full image that follows it, so that
// two txids come back; it then waits for the database's connection.
func (c *Cell) Capture() ([]uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	txid, err := c.capture()
	if err != nil || txid == 0 {
		return nil, err
	}
	txids := []uint64{txid}
	if c.files.walAbove(c.node.fleet.cfg) {
		if txid, err = c.checkpointed(); err != nil {
			return txids, err
		}
		txids = append(txids, txid)
	}
	return txids, nil
}

// FullImage checkpoints the database with TRUNCATE, as a replicator does
// when the WAL grew too long, and captures it: one file that holds every page
// and, among them, whatever was committed since the last capture.
func (c *Cell) FullImage() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checkpointed()
}

// capture writes at most one file and returns its txid, 0 for none.
func (c *Cell) capture() (uint64, error) {
	txid, err := c.files.capture()
	if err != nil {
		return 0, fmt.Errorf("capture %s: %w", c.scope, err)
	}
	return txid, nil
}

// checkpointed moves the WAL into the database, makes the replicator's write
// that starts the next WAL, and captures the full image.
func (c *Cell) checkpointed() (uint64, error) {
	ctx := context.Background()
	if err := c.db.checkpoint(ctx); err != nil {
		return 0, err
	}
	if err := c.db.bump(ctx); err != nil {
		return 0, err
	}
	c.files.full = true
	return c.capture()
}

// Pending returns the txids that were captured and not yet uploaded.
func (c *Cell) Pending() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var txids []uint64
	for txid := c.sent.through + 1; txid <= c.files.txid; txid++ {
		txids = append(txids, txid)
	}
	return txids
}

// Upload puts every pending file into the bucket as it is, one object per
// txid. Like celld it does not ask first whether the node still owns the
// cell.
func (c *Cell) Upload(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.singly(ctx, &c.files, c.files.txid)
}

// UploadThrough puts the pending files up to and including a txid into the
// bucket, one object per txid.
func (c *Cell) UploadThrough(ctx context.Context, txid uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.singly(ctx, &c.files, min(txid, c.files.txid))
}

// UploadMerged puts all pending files into the bucket as one level-0 object
// over their range, written as a compactor writes: pages as LZ4 blocks, no
// WAL fields. A single pending file is re-encoded under its own name.
func (c *Cell) UploadMerged(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.merged(ctx, &c.files)
}

// Compact writes one level-1 object over at most max level-0 objects of the
// epoch, those that follow the last level-1 object. The inputs stay. It
// returns the range written, 0 and 0 when there was nothing to compact.
func (c *Cell) Compact(ctx context.Context, max int) (minTXID, maxTXID uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.compact(ctx, max)
}

// Snapshot writes the level-9 object of a handoff: the image at the last
// captured txid, from txid 1 on, with a rolling checksum. The last captured
// txids then need no object of their own. A paged epoch has none.
func (c *Cell) Snapshot(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.snapshot(ctx, &c.files)
}

// barrier captures what is committed and uploads it: as a level-9 snapshot
// when asked for and possible, else what is pending in the manner of the
// layout.
func (c *Cell) barrier(ctx context.Context, snapshot bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.capture(); err != nil {
		return err
	}
	if snapshot && !c.files.paged && !c.files.lost {
		return c.sent.snapshot(ctx, &c.files)
	}
	return c.sent.pending(ctx, &c.files)
}

// loseFiles deletes the captured files of a cell, which are all uploaded.
func loseFiles(c *Cell) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files.lost = true
	return os.RemoveAll(filepath.Join(c.db.dir, celld.MetaDirName))
}

// closeCell ends the handles of a cell by one of the ways to close a database.
func closeCell(c *Cell, how func(*database) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return how(&c.db)
}

// reopen closes the handles and opens the database again. After an orderly
// close the WAL is gone, and the next file is a full image.
func (c *Cell) reopen(ctx context.Context, orderly bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !orderly {
		if err := c.db.closeHard(); err != nil {
			return err
		}
		return c.db.open()
	}
	if err := c.db.closeClean(); err != nil {
		return err
	}
	if err := c.db.open(); err != nil {
		return err
	}
	c.files.full = true
	return c.db.bump(ctx)
}
