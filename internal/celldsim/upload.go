package celldsim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"celldexport/internal/celld"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
)

// uploader carries the files of one scope and epoch to the bucket.
type uploader struct {
	fleet   *Fleet
	scope   string
	epoch   uint64
	through uint64 // last txid known to be in the bucket
}

// singly uploads the pending files up to a txid as they are.
func (u *uploader) singly(ctx context.Context, r *recorder, through uint64) error {
	for u.through < through {
		txid := u.through + 1
		b, err := os.ReadFile(r.file(txid))
		if err != nil {
			return fmt.Errorf("upload txid %d of %s: %w", txid, u.scope, err)
		}
		if err := u.fleet.put(ctx, celld.LTXKey(u.scope, u.epoch, 0, txid, txid), b, objstore.PutOptions{}); err != nil {
			return err
		}
		u.through = txid
	}
	return nil
}

// merged uploads all pending files as one level-0 object.
func (u *uploader) merged(ctx context.Context, r *recorder) error {
	if u.through >= r.txid {
		return nil
	}
	m, err := r.merge(u.through + 1)
	if err != nil {
		return fmt.Errorf("merge the pending files of %s: %w", u.scope, err)
	}
	if err := u.put(ctx, 0, m); err != nil {
		return err
	}
	u.through = r.txid
	return nil
}

// pending uploads what is pending in the manner of the fleet's layout.
func (u *uploader) pending(ctx context.Context, r *recorder) error {
	if u.fleet.cfg.Layout == V06 && r.txid > u.through+1 {
		return u.merged(ctx, r)
	}
	return u.singly(ctx, r, r.txid)
}

// snapshot uploads the image at the last captured txid to level 9.
func (u *uploader) snapshot(ctx context.Context, r *recorder) error {
	if r.paged {
		return fmt.Errorf("snapshot %s: a paged epoch does not start at txid 1", u.scope)
	}
	if r.lost {
		return fmt.Errorf("snapshot %s: the epoch's first files are not there any more", u.scope)
	}
	m, err := r.merge(1)
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", u.scope, err)
	}
	var buf bytes.Buffer
	if err := m.encodeSnapshot(&buf); err != nil {
		return fmt.Errorf("snapshot %s: %w", u.scope, err)
	}
	key := celld.LTXKey(u.scope, u.epoch, celld.SnapshotLevel, 1, m.header.MaxTXID)
	if err := u.fleet.put(ctx, key, buf.Bytes(), objstore.PutOptions{}); err != nil {
		return err
	}
	u.through = r.txid
	return nil
}

// maxLTX bounds the objects that a compaction reads, in bytes.
const maxLTX = 1 << 30

// compact folds at most max level-0 objects into one of level 1.
func (u *uploader) compact(ctx context.Context, max int) (minTXID, maxTXID uint64, err error) {
	done, errDone := u.ranges(ctx, 1)
	inputs, errInputs := u.ranges(ctx, 0)
	if err := errors.Join(errDone, errInputs); err != nil {
		return 0, 0, err
	}
	var last uint64
	for _, r := range done {
		last = r.Max
	}
	m := newMerger()
	for _, r := range inputs {
		if r.Max <= last || m.files >= max {
			continue
		}
		key := celld.LTXKey(u.scope, u.epoch, 0, r.Min, r.Max)
		b, _, err := objstore.ReadAll(ctx, u.fleet.cfg.Bucket, key, maxLTX)
		if err != nil {
			return 0, 0, err
		}
		if err := m.add(b); err != nil {
			return 0, 0, fmt.Errorf("compact %s: %w", key, err)
		}
	}
	if m.files == 0 {
		return 0, 0, nil
	}
	return m.header.MinTXID, m.header.MaxTXID, u.put(ctx, 1, m)
}

// put stores a merged file at a level.
func (u *uploader) put(ctx context.Context, level int, m *merger) error {
	var buf bytes.Buffer
	if err := m.encode(&buf, ltxfile.Block); err != nil {
		return fmt.Errorf("encode txids %d to %d of %s: %w", m.header.MinTXID, m.header.MaxTXID, u.scope, err)
	}
	key := celld.LTXKey(u.scope, u.epoch, level, m.header.MinTXID, m.header.MaxTXID)
	return u.fleet.put(ctx, key, buf.Bytes(), objstore.PutOptions{})
}

// ranges lists the txid ranges of one level of the epoch, in order.
func (u *uploader) ranges(ctx context.Context, level int) ([]celld.LTXName, error) {
	var ranges []celld.LTXName
	prefix := celld.LTXLevelPrefix(u.scope, u.epoch, level)
	for obj, err := range u.fleet.cfg.Bucket.List(ctx, prefix, "") {
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
