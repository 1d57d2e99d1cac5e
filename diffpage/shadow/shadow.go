// Package shadow keeps one database as a file of our own: the pages as of the
// last unit that was applied. It is the before-image every diff needs, and
// the place a restore writes to. A unit that has been diffed but is not yet
// safe elsewhere is only laid over the file, so the file never runs ahead of
// what is durable.
package shadow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// ErrMissing is wrapped when a page is asked for that the database does not
// have, or has no content of: beyond its end, or the lock page.
var ErrMissing = errors.New("no such page")

// ErrTorn is wrapped when a file is opened that is neither empty nor a database
// of whole pages. A crash leaves one while Flush or Resize give a shadow its
// first pages or pages of another size; writing all pages again mends it.
var ErrTorn = errors.New("torn shadow")

// File is what a shadow is kept in; *os.File is one.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// Shadow is a database as a plain image, page n at (n-1) * page size, the
// lock page a hole, under zero or more units that are staged but not flushed.
// It is not safe for concurrent use.
type Shadow struct {
	file   File
	name   string
	base   extent
	layers []layer
}

// extent is the shape of a database. A database without pages may have no
// page size yet.
type extent struct {
	pageSize, commit uint32
}

// layer is a staged unit: its images and the shape after it.
type layer struct {
	images *Images
	after  extent
}

// Create makes an empty shadow, replacing a file of that name.
func Create(path string) (*Shadow, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create shadow: %w", err)
	}
	return &Shadow{file: f, name: path}, nil
}

// Open opens a shadow made before. Its page size is read from the database
// header (SQLite file format 1.3.2), its page count from its length, which
// Resize and Flush keep exact.
func Open(path string) (*Shadow, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open shadow: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open shadow: %w", err), f.Close())
	}
	s, err := New(f, path, st.Size())
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// New is Open for a file of any kind; name is used in messages only and size
// is the file's length in bytes.
func New(f File, name string, size int64) (*Shadow, error) {
	s := &Shadow{file: f, name: name}
	if size == 0 {
		return s, nil
	}
	var head [18]byte
	if size < int64(len(head)) {
		return nil, fmt.Errorf("open shadow %s: %d bytes hold no database header: %w", name, size, ErrTorn)
	}
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return nil, fmt.Errorf("read the database header of shadow %s: %w", name, err)
	}
	if string(head[:16]) != "SQLite format 3\x00" {
		return nil, fmt.Errorf("open shadow %s: it is no SQLite database: %w", name, ErrTorn)
	}
	pageSize := uint32(binary.BigEndian.Uint16(head[16:]))
	if pageSize == 1 {
		pageSize = 65536
	}
	if !ValidPageSize(pageSize) || size%int64(pageSize) != 0 || size/int64(pageSize) > maxPages {
		return nil, fmt.Errorf("open shadow %s: %d bytes are not whole pages of %d: %w: %w", name, size, pageSize, ErrTorn, ErrPageSize)
	}
	s.base = extent{pageSize, uint32(size / int64(pageSize))}
	return s, nil
}

// maxPages is the largest page count SQLite allows (SQLite limits, 12).
const maxPages = 4294967294

// ValidPageSize reports whether SQLite has databases of this page size: the
// powers of two from 512 to 65536.
func ValidPageSize(n uint32) bool {
	return n >= 512 && n <= 65536 && n&(n-1) == 0
}

// LockPage is the page that holds byte 2^30 of a database. SQLite locks bytes
// of it and never stores anything there.
func LockPage(pageSize uint32) uint32 { return 1<<30/pageSize + 1 }

// PageSize is the page size in bytes, staged units included; 0 while the
// database has never had a page.
func (s *Shadow) PageSize() uint32 { return s.top().pageSize }

// Commit is the number of pages, staged units included.
func (s *Shadow) Commit() uint32 { return s.top().commit }

func (s *Shadow) top() extent {
	if n := len(s.layers); n > 0 {
		return s.layers[n-1].after
	}
	return s.base
}

// under is the shape below the i-th layer.
func (s *Shadow) under(i int) extent {
	if i == 0 {
		return s.base
	}
	return s.layers[i-1].after
}

// Page is the content of a page, staged units included. It is read into buf,
// grown when too small, or is memory of a staged unit; either way it must not
// be written to and is valid until buf is used again or the shadow changes.
func (s *Shadow) Page(pgno uint32, buf []byte) ([]byte, error) {
	t := s.top()
	if pgno == 0 || pgno > t.commit || pgno == LockPage(t.pageSize) {
		return nil, fmt.Errorf("read page %d of shadow %s (%d pages): %w", pgno, s.name, t.commit, ErrMissing)
	}
	for i, l := range slices.Backward(s.layers) {
		if data, ok, err := l.images.Find(pgno, buf); ok || err != nil {
			return data, err
		}
		if below := s.under(i); pgno > below.commit || below.pageSize != t.pageSize {
			return nil, fmt.Errorf("read page %d of shadow %s: the unit that added it has no image of it: %w", pgno, s.name, ErrMissing)
		}
	}
	size := int(t.pageSize)
	buf = slices.Grow(buf[:0], size)[:size]
	if err := s.read(buf, pgno); err != nil {
		return nil, err
	}
	return buf, nil
}

// Pages reads adjacent pages from pgno on, as many as fill buf, staged units
// included.
func (s *Shadow) Pages(pgno uint32, buf []byte) error {
	size := int(s.PageSize())
	for len(buf) >= max(1, size) {
		n := s.bare(pgno, len(buf)/max(1, size))
		if n > 0 {
			if err := s.read(buf[:n*size], pgno); err != nil {
				return err
			}
		} else {
			data, err := s.Page(pgno, buf[:size:size])
			if err != nil {
				return err
			}
			copy(buf, data) // in place already unless it is staged
			n = 1
		}
		pgno, buf = pgno+uint32(n), buf[n*size:]
	}
	return nil
}

// bare is how many pages from pgno on, at most n, are as they are in the file.
func (s *Shadow) bare(pgno uint32, n int) int {
	commit := s.base.commit
	for _, l := range s.layers {
		if l.after.pageSize != s.base.pageSize {
			return 0
		}
		commit = min(commit, l.after.commit)
	}
	if commit == 0 {
		return 0
	}
	lock := LockPage(s.base.pageSize)
	k := 0
	for ; k < n; k++ {
		at := uint64(pgno) + uint64(k)
		if at == 0 || at > uint64(commit) || at == uint64(lock) {
			return k
		}
		for _, l := range s.layers {
			if l.images.Has(uint32(at)) {
				return k
			}
		}
	}
	return k
}

// read fills buf with pages from pgno on.
func (s *Shadow) read(buf []byte, pgno uint32) error {
	if _, err := s.file.ReadAt(buf, int64(pgno-1)*int64(s.top().pageSize)); err != nil {
		return fmt.Errorf("read page %d of shadow %s: %w", pgno, s.name, err)
	}
	return nil
}

// Resize gives the database a shape: pages above commit are forgotten, new
// ones are zero until written. Another page size forgets every page. Nothing
// may be staged.
func (s *Shadow) Resize(pageSize, commit uint32) error {
	if len(s.layers) > 0 {
		return fmt.Errorf("resize shadow %s: %d staged units are not flushed", s.name, len(s.layers))
	}
	return s.resize(extent{pageSize, commit})
}

func (s *Shadow) resize(to extent) error {
	if !ValidPageSize(to.pageSize) && to != (extent{}) {
		return fmt.Errorf("resize shadow %s to pages of %d bytes: %w", s.name, to.pageSize, ErrPageSize)
	}
	if s.base.pageSize != to.pageSize && s.base.commit > 0 {
		if err := s.file.Truncate(0); err != nil {
			return fmt.Errorf("empty shadow %s: %w", s.name, err)
		}
	}
	if err := s.file.Truncate(int64(to.commit) * int64(to.pageSize)); err != nil {
		return fmt.Errorf("resize shadow %s to %d pages: %w", s.name, to.commit, err)
	}
	s.base = to
	return nil
}

// WritePage stores a page inside the present shape. Nothing may be staged.
func (s *Shadow) WritePage(pgno uint32, data []byte) error {
	if len(s.layers) > 0 {
		return fmt.Errorf("write page %d of shadow %s: %d staged units are not flushed", pgno, s.name, len(s.layers))
	}
	return s.write(pgno, data)
}

func (s *Shadow) write(pgno uint32, data []byte) error {
	if uint32(len(data)) != s.base.pageSize {
		return fmt.Errorf("write page %d of %d bytes to shadow %s of %d-byte pages: %w", pgno, len(data), s.name, s.base.pageSize, ErrPageSize)
	}
	if pgno == 0 || pgno > s.base.commit || pgno == LockPage(s.base.pageSize) {
		return fmt.Errorf("write page %d of shadow %s (%d pages): %w", pgno, s.name, s.base.commit, ErrMissing)
	}
	if _, err := s.file.WriteAt(data, int64(pgno-1)*int64(len(data))); err != nil {
		return fmt.Errorf("write page %d of shadow %s: %w", pgno, s.name, err)
	}
	return nil
}

// Stage lays a unit over the database: from now on Page, PageSize and Commit
// show the state after it, while the file stays as it is. The shadow closes
// the images when the unit is flushed or the shadow closed.
func (s *Shadow) Stage(images *Images, commit uint32) {
	s.layers = append(s.layers, layer{images, extent{images.PageSize(), commit}})
}

// Staged is the number of units laid over the file.
func (s *Shadow) Staged() int { return len(s.layers) }

// Flush writes the staged units into the file, oldest first. It may be called
// once they are durable elsewhere, since a crash in the middle leaves pages of
// both states. After an error the units are still staged and Flush can be
// repeated; writing the same pages again does no harm.
func (s *Shadow) Flush() error {
	var buf []byte
	for len(s.layers) > 0 {
		l := s.layers[0]
		if err := s.resize(l.after); err != nil {
			return err
		}
		buf = slices.Grow(buf[:0], int(l.after.pageSize))
		for i := range l.images.Len() {
			pgno := l.images.Pgno(i)
			if pgno > l.after.commit {
				continue
			}
			data, err := l.images.Page(i, buf)
			if err != nil {
				return err
			}
			if err := s.write(pgno, data); err != nil {
				return err
			}
		}
		s.layers = s.layers[1:]
		if err := l.images.Close(); err != nil {
			return err
		}
	}
	s.layers = nil
	return nil
}

// Sync makes the file's content durable; staged units are not part of it.
func (s *Shadow) Sync() error {
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("sync shadow %s: %w", s.name, err)
	}
	return nil
}

// Close closes the file and drops what is staged, without syncing.
func (s *Shadow) Close() error {
	var errs []error
	for _, l := range s.layers {
		errs = append(errs, l.images.Close())
	}
	s.layers = nil
	if err := s.file.Close(); err != nil {
		errs = append(errs, fmt.Errorf("close shadow %s: %w", s.name, err))
	}
	return errors.Join(errs...)
}
