package chain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
)

// PageWriter is a database image that a restore builds page by page.
type PageWriter interface {
	// Resize sets the page size in bytes and the size of the database in
	// pages: pages above commit are dropped, and a page size other than
	// before drops all pages.
	Resize(pageSize, commit uint32) error
	// WritePage sets a page within the current size. data is valid until
	// WritePage returns.
	WritePage(pgno uint32, data []byte) error
}

// Restore applies the files of a plan, in its order, to an empty image and
// returns what the last file says and the bytes read. Each object is read in
// the version that was listed and verified whole; since its pages are written
// before its checksum is known, an image is worth nothing unless Restore has
// returned nil.
//
// Errors name the object's key. One that wraps ltxfile.ErrCorrupt says that an
// object is damaged, is not what its key says, or that the files together
// leave a page of the database unknown. One that wraps objstore.ErrNotFound or
// objstore.ErrPrecondition says that the objects have changed since they were
// listed: list and plan again.
func Restore(ctx context.Context, store objstore.Store, plan []File, w PageWriter) (ltxfile.Info, int64, error) {
	if len(plan) == 0 {
		return ltxfile.Info{}, 0, errors.New("restore: the plan is empty")
	}
	r := restorer{store: store, image: w}
	for _, f := range plan {
		if err := r.apply(ctx, f); err != nil {
			return ltxfile.Info{}, r.read, fmt.Errorf("restore from %s: %w", f.Object.Key, err)
		}
	}
	if pgno, ok := r.missing(); ok {
		key := plan[r.claimed(pgno)].Object.Key
		return ltxfile.Info{}, r.read, fmt.Errorf("restore from %s: page %d of %d is in no object: %w", key, pgno, r.last.Commit, ltxfile.ErrCorrupt)
	}
	return r.last, r.read, nil
}

// restorer is the state of one Restore.
type restorer struct {
	store   objstore.Store
	image   PageWriter
	last    ltxfile.Info
	read    int64
	seen    pageSet
	commits []uint32 // the size of the database after each file
}

// apply reads one object into the image.
func (r *restorer) apply(ctx context.Context, f File) (err error) {
	body, err := Open(ctx, r.store, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	counted := &countingReader{r: body, n: &r.read}

	head := make([]byte, min(f.Object.Size, ltxfile.HeaderSize))
	if _, err := io.ReadFull(counted, head); err != nil {
		return fmt.Errorf("read header: %w", err)
	}
	h, err := ltxfile.ParseHeader(head)
	if err != nil {
		return err
	}
	if h.MinTXID != f.Min || h.MaxTXID != f.Max {
		return fmt.Errorf("file holds the transactions %d to %d: %w", h.MinTXID, h.MaxTXID, ltxfile.ErrCorrupt)
	}
	// The size comes from a header that nothing has vouched for yet, and an
	// image may reserve space for it.
	if limit := int64(r.last.Commit) + ltxfile.MaxPages(f.Object.Size); int64(h.Commit) > limit {
		return fmt.Errorf("file of %d bytes makes %d pages of %d: %w", f.Object.Size, h.Commit, r.last.Commit, ltxfile.ErrCorrupt)
	}
	if err := r.resize(h); err != nil {
		return err
	}
	whole := io.MultiReader(bytes.NewReader(head), counted)
	r.last, err = ltxfile.Decode(whole, f.Object.Size, func(pgno uint32, data []byte) error {
		r.seen.add(pgno)
		if err := r.image.WritePage(pgno, data); err != nil {
			return fmt.Errorf("write page %d: %w", pgno, err)
		}
		return nil
	})
	return err
}

// resize gives the image the size that a file says.
func (r *restorer) resize(h ltxfile.Header) error {
	if r.last.PageSize != 0 && h.PageSize != r.last.PageSize {
		r.seen = pageSet{}
	}
	r.seen.truncate(h.Commit)
	r.commits = append(r.commits, h.Commit)
	if err := r.image.Resize(h.PageSize, h.Commit); err != nil {
		return fmt.Errorf("resize to %d pages of %d bytes: %w", h.Commit, h.PageSize, err)
	}
	return nil
}

// missing is the lowest page of the database that no file held. The page that
// SQLite locks is in none and not missed.
func (r *restorer) missing() (pgno uint32, ok bool) {
	return r.seen.missing(r.last.Commit, ltxfile.LockPage(r.last.PageSize))
}

// claimed is the index of the file that last grew the database over a page.
func (r *restorer) claimed(pgno uint32) int {
	i := len(r.commits) - 1
	for i > 0 && r.commits[i-1] >= pgno {
		i--
	}
	return i
}

// countingReader counts the bytes that a restore costs.
type countingReader struct {
	r io.Reader
	n *int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	*c.n += int64(n)
	return n, err
}
