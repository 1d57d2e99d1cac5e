package celldsim

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"celldexport/internal/celld"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
)

// Pending returns the txids that were captured and not yet uploaded.
func (c *Cell) Pending() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var txids []uint64
	for txid := c.uploaded + 1; txid <= c.txid; txid++ {
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
	return c.upload(ctx, c.txid)
}

// UploadThrough puts the pending files up to and including a txid into the
// bucket, one object per txid.
func (c *Cell) UploadThrough(ctx context.Context, txid uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.upload(ctx, min(txid, c.txid))
}

func (c *Cell) upload(ctx context.Context, through uint64) error {
	for c.uploaded < through {
		txid := c.uploaded + 1
		b, err := os.ReadFile(c.localFile(txid))
		if err != nil {
			return fmt.Errorf("upload txid %d of %s: %w", txid, c.scope, err)
		}
		key := celld.LTXKey(c.Scope(), c.epoch, 0, txid, txid)
		if err := c.node.fleet.put(ctx, key, b, objstore.PutOptions{}); err != nil {
			return err
		}
		c.uploaded = txid
	}
	return nil
}

// UploadMerged puts all pending files into the bucket as one level-0 object
// over their range, written as a compactor writes: pages as LZ4 blocks, no
// WAL fields. A single pending file is re-encoded under its own name.
func (c *Cell) UploadMerged(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uploadMerged(ctx)
}

func (c *Cell) uploadMerged(ctx context.Context) error {
	if c.uploaded >= c.txid {
		return nil
	}
	merged, err := c.mergeLocal(c.uploaded + 1)
	if err != nil {
		return fmt.Errorf("merge the pending files of %s: %w", c.scope, err)
	}
	if err := c.putMerged(ctx, 0, merged); err != nil {
		return err
	}
	c.uploaded = c.txid
	return nil
}

// uploadPending uploads what is pending in the manner of the fleet's layout.
func (c *Cell) uploadPending(ctx context.Context) error {
	if c.node.fleet.cfg.Layout == V06 && c.txid > c.uploaded+1 {
		return c.uploadMerged(ctx)
	}
	return c.upload(ctx, c.txid)
}

// Compact writes one level-1 object over at most max level-0 objects of the
// epoch, those that follow the last level-1 object. The inputs stay. It
// returns the range written, 0 and 0 when there was nothing to compact.
func (c *Cell) Compact(ctx context.Context, max int) (minTXID, maxTXID uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done, err := c.node.fleet.levelRanges(ctx, c.Scope(), c.epoch, 1)
	if err != nil {
		return 0, 0, err
	}
	var last uint64
	for _, r := range done {
		last = r.Max
	}
	ranges, err := c.node.fleet.levelRanges(ctx, c.Scope(), c.epoch, 0)
	if err != nil {
		return 0, 0, err
	}
	m := newMerger()
	for inputs := 0; len(ranges) > 0 && inputs < max; ranges = ranges[1:] {
		r := ranges[0]
		if r.Max <= last {
			continue
		}
		key := celld.LTXKey(c.Scope(), c.epoch, 0, r.Min, r.Max)
		b, _, err := objstore.ReadAll(ctx, c.node.fleet.cfg.Bucket, key, maxLTX)
		if err != nil {
			return 0, 0, err
		}
		if err := m.add(b); err != nil {
			return 0, 0, fmt.Errorf("compact %s: %w", key, err)
		}
		inputs++
	}
	if m.files == 0 {
		return 0, 0, nil
	}
	return m.header.MinTXID, m.header.MaxTXID, c.putMerged(ctx, 1, m)
}

// maxLTX bounds the objects that a compaction reads, in bytes.
const maxLTX = 1 << 30

// putMerged stores a merged file at a level.
func (c *Cell) putMerged(ctx context.Context, level int, m *merger) error {
	var buf bytes.Buffer
	if err := m.encode(&buf, ltxfile.Block); err != nil {
		return fmt.Errorf("encode txids %d to %d of %s: %w", m.header.MinTXID, m.header.MaxTXID, c.scope, err)
	}
	key := celld.LTXKey(c.Scope(), c.epoch, level, m.header.MinTXID, m.header.MaxTXID)
	return c.node.fleet.put(ctx, key, buf.Bytes(), objstore.PutOptions{})
}

// Snapshot writes the level-9 object of a handoff: the image at the last
// captured txid, from txid 1 on, with a rolling checksum. The last captured
// txids then need no object of their own. A paged epoch has none.
func (c *Cell) Snapshot(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshot(ctx)
}

func (c *Cell) snapshot(ctx context.Context) error {
	if c.paged {
		return fmt.Errorf("snapshot %s: a paged epoch does not start at txid 1", c.scope)
	}
	m, err := c.mergeLocal(1)
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", c.scope, err)
	}
	var buf bytes.Buffer
	if err := m.encodeSnapshot(&buf); err != nil {
		return fmt.Errorf("snapshot %s: %w", c.scope, err)
	}
	key := celld.LTXKey(c.Scope(), c.epoch, celld.SnapshotLevel, 1, m.header.MaxTXID)
	if err := c.node.fleet.put(ctx, key, buf.Bytes(), objstore.PutOptions{}); err != nil {
		return err
	}
	c.uploaded = c.txid
	return nil
}

// mergeLocal merges the local files from a txid up to the last one.
func (c *Cell) mergeLocal(from uint64) (*merger, error) {
	m := newMerger()
	for txid := from; txid <= c.txid; txid++ {
		b, err := os.ReadFile(c.localFile(txid))
		if err != nil {
			return nil, err
		}
		if err := m.add(b); err != nil {
			return nil, fmt.Errorf("txid %d: %w", txid, err)
		}
	}
	return m, nil
}

// localFile is the path of a captured file.
func (c *Cell) localFile(txid uint64) string {
	return filepath.Join(c.LTXDir(), ltxfile.FileName(txid, txid))
}

// levelRanges lists the txid ranges of one level of an epoch, in order.
func (f *Fleet) levelRanges(ctx context.Context, scope string, epoch uint64, level int) ([]celld.LTXName, error) {
	var ranges []celld.LTXName
	prefix := celld.LTXLevelPrefix(scope, epoch, level)
	for obj, err := range f.cfg.Bucket.List(ctx, prefix, "") {
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", prefix, err)
		}
		name, ok, err := celld.ParseLTXKey(obj.Key)
		if err != nil {
			return nil, err
		}
		if ok {
			ranges = append(ranges, name)
		}
	}
	return ranges, nil
}
