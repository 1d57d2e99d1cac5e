package celldsim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"celldexport/internal/ltxfile"
)

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
	if c.walIsFull() {
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

// checkpointed moves the WAL into the database, makes the replicator's write
// that starts the next WAL, and captures the full image.
func (c *Cell) checkpointed() (uint64, error) {
	var busy, frames, moved int
	row := c.db.QueryRow(`PRAGMA wal_checkpoint(TRUNCATE)`)
	if err := row.Scan(&busy, &frames, &moved); err != nil {
		return 0, fmt.Errorf("checkpoint %s: %w", c.scope, err)
	}
	if busy != 0 {
		return 0, fmt.Errorf("checkpoint %s: another connection holds the WAL", c.scope)
	}
	if err := c.bump(context.Background()); err != nil {
		return 0, err
	}
	c.full = true
	return c.capture()
}

// walIsFull says whether the WAL has passed the limit of the fleet.
func (c *Cell) walIsFull() bool {
	limit := int64(c.node.fleet.cfg.TruncatePages)
	frames := (c.mark.offset - walHeaderSize) / (frameHeaderSize + int64(c.pageSize))
	switch {
	case limit < 0:
		return false
	case limit > 0:
		return frames > limit
	case c.node.fleet.cfg.Layout == V03:
		return frames > 121359
	}
	return frames > 128 && (c.pages <= 1024 || frames > int64(c.pages))
}

// capture writes at most one file and returns its txid, 0 for none.
func (c *Cell) capture() (uint64, error) {
	wal, walSize, err := openSized(c.Path() + "-wal")
	if err != nil {
		return 0, fmt.Errorf("capture %s: %w", c.scope, err)
	}
	defer wal.Close()
	scan, err := scanWAL(wal, walSize, c.mark)
	if err != nil {
		return 0, fmt.Errorf("capture %s: %w", c.scope, err)
	}
	if scan.commit == 0 {
		return 0, nil
	}
	db, dbSize, err := openSized(c.Path())
	if err != nil {
		return 0, fmt.Errorf("capture %s: %w", c.scope, err)
	}
	defer db.Close()
	img := image{scan: scan, wal: wal, db: db, dbSize: dbSize}
	txid := c.txid + 1
	first := c.pages + 1
	if c.full || scan.restarted {
		first = 1
	}
	header := ltxfile.Header{
		Flags: ltxfile.FlagNoChecksum, PageSize: scan.pageSize, Commit: scan.commit, MinTXID: txid, MaxTXID: txid,
		Timestamp: c.node.fleet.cfg.Now().UnixMilli(),
		WALOffset: scan.start.offset, WALSize: scan.end.offset - scan.start.offset,
		WALSalt1: scan.start.salt1, WALSalt2: scan.start.salt2,
	}
	if err := writeLocal(c.LTXDir(), header, img.numbers(first), img.read); err != nil {
		return 0, fmt.Errorf("capture %s: %w", c.scope, err)
	}
	c.txid, c.pages, c.pageSize, c.mark, c.full = txid, scan.commit, scan.pageSize, scan.end, false
	return txid, nil
}

// openSized opens a file with its size. An absent file reads as empty.
func openSized(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		f, err = os.Open(os.DevNull)
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// image is a database as of the end of a WAL scan: the WAL's pages over the
// file's.
type image struct {
	scan    walScan
	wal, db io.ReaderAt
	dbSize  int64
}

// numbers lists the pages of a file that holds what the WAL changed and every
// page from first on: in an increment the pages by which the database grew,
// in a full image all of them. Pages that were cut off again and the lock
// page are left out.
func (m image) numbers(first uint32) []uint32 {
	lock := ltxfile.LockPage(m.scan.pageSize)
	set := maps.Clone(m.scan.pages)
	for pgno := first; pgno <= m.scan.commit; pgno++ {
		if _, ok := set[pgno]; !ok {
			set[pgno] = 0
		}
	}
	maps.DeleteFunc(set, func(pgno uint32, _ int64) bool { return pgno == lock || pgno > m.scan.commit })
	return slices.Sorted(maps.Keys(set))
}

// read fills page with an image: the WAL's if it has one, else the file's. A
// page that neither holds was given up before anything was written to it; its
// content means nothing and is zero.
func (m image) read(pgno uint32, page []byte) error {
	if offset, ok := m.scan.pages[pgno]; ok {
		_, err := m.wal.ReadAt(page, offset)
		return err
	}
	offset := int64(pgno-1) * int64(len(page))
	if offset >= m.dbSize {
		clear(page)
		return nil
	}
	_, err := m.db.ReadAt(page, offset)
	return err
}

// writeLocal writes one captured file the way a node does: under a temporary
// name, synced, then renamed. A file of the same name is replaced.
func writeLocal(dir string, h ltxfile.Header, pages []uint32, read func(uint32, []byte) error) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, ltxfile.FileName(h.MinTXID, h.MaxTXID))
	tmp, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	if err := encode(tmp, h, ltxfile.Frame, pages, read); err != nil {
		return fmt.Errorf("write %s: %w", tmp.Name(), errors.Join(err, tmp.Close()))
	}
	if err := errors.Join(tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", tmp.Name(), err)
	}
	return os.Rename(tmp.Name(), path)
}

// encode writes one LTX file without a rolling checksum.
func encode(w io.Writer, h ltxfile.Header, form ltxfile.Form, pages []uint32, read func(uint32, []byte) error) error {
	out, err := ltxfile.NewWriter(w, h, form)
	if err != nil {
		return err
	}
	page := make([]byte, h.PageSize)
	for _, pgno := range pages {
		if err := read(pgno, page); err != nil {
			return fmt.Errorf("read page %d: %w", pgno, err)
		}
		if err := out.WritePage(pgno, page); err != nil {
			return err
		}
	}
	_, err = out.Close(0)
	return err
}
