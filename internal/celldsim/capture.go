package celldsim

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"celldexport/internal/ltxfile"
)

// recorder captures one database into LTX files.
type recorder struct {
	dir      string // of the captured files
	database string // path of the database file
	now      func() time.Time

	txid     uint64  // last captured
	pages    uint32  // database size after it
	pageSize uint32  // bytes
	mark     walMark // what it covered of the WAL
	full     bool    // the next capture is a full image whatever the WAL says
	paged    bool    // the epoch continues its predecessor's txids
	lost     bool    // the epoch's first files are not there any more
}

// capture writes the committed frames that follow the mark as one file and
// returns its txid, 0 when there are none.
func (r *recorder) capture() (uint64, error) {
	wal, walSize, err := openSized(r.database + "-wal")
	if err != nil {
		return 0, err
	}
	defer wal.Close()
	scan, err := scanWAL(wal, walSize, r.mark)
	if err != nil || scan.commit == 0 {
		return 0, err
	}
	db, dbSize, err := openSized(r.database)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	img := image{scan: scan, wal: wal, db: db, dbSize: dbSize}
	first := r.pages + 1
	if r.full || scan.restarted {
		first = 1
	}
	header := ltxfile.Header{
		Flags: ltxfile.FlagNoChecksum, PageSize: scan.pageSize, Commit: scan.commit,
		MinTXID: r.txid + 1, MaxTXID: r.txid + 1, Timestamp: r.now().UnixMilli(),
		WALOffset: scan.start.offset, WALSize: scan.end.offset - scan.start.offset,
		WALSalt1: scan.start.salt1, WALSalt2: scan.start.salt2,
	}
	if err := writeLocal(r.dir, header, img.numbers(first), img.read); err != nil {
		return 0, err
	}
	r.txid++
	r.pages, r.pageSize, r.mark, r.full = scan.commit, scan.pageSize, scan.end, false
	return r.txid, nil
}

// startPaged writes the marker of a paged epoch, a file without pages one
// txid after the restored state, and numbers on from it.
func (r *recorder) startPaged(restored ltxfile.Info) error {
	marker := restored.MaxTXID + 1
	header := ltxfile.Header{
		Flags: ltxfile.FlagNoChecksum, PageSize: restored.PageSize, Commit: restored.Commit,
		MinTXID: marker, MaxTXID: marker, Timestamp: r.now().UnixMilli(),
	}
	if err := writeLocal(r.dir, header, nil, nil); err != nil {
		return err
	}
	r.txid, r.pages, r.pageSize = marker, restored.Commit, restored.PageSize
	r.full, r.paged = false, true
	return nil
}

// walAbove says whether the WAL has passed the fleet's limit.
func (r *recorder) walAbove(cfg Config) bool {
	limit := int64(cfg.TruncatePages)
	frames := (r.mark.offset - walHeaderSize) / (frameHeaderSize + int64(r.pageSize))
	switch {
	case limit < 0:
		return false
	case limit > 0:
		return frames > limit
	case cfg.Layout == V03:
		return frames > 121359
	}
	return frames > 128 && (r.pages <= 1024 || frames > int64(r.pages))
}

// file is the path of a captured file.
func (r *recorder) file(txid uint64) string {
	return filepath.Join(r.dir, ltxfile.FileName(txid, txid))
}

// merge folds the captured files from a txid up to the last one.
func (r *recorder) merge(from uint64) (*merger, error) {
	m := newMerger()
	for txid := from; txid <= r.txid; txid++ {
		b, err := os.ReadFile(r.file(txid))
		if err != nil {
			return nil, err
		}
		if err := m.add(b); err != nil {
			return nil, fmt.Errorf("txid %d: %w", txid, err)
		}
	}
	return m, nil
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
