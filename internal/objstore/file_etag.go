package objstore

import (
	"crypto/md5"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// maxETags bounds the cache: some 200 bytes each.
const maxETags = 1 << 16

// etagCache remembers the content hash of files, so that a listing reads each
// file once and not every time. A file is known by what changes with its
// content: objects are replaced by renaming, hence inode and times move.
type etagCache struct {
	mu    sync.Mutex
	known map[string]knownETag
}

type knownETag struct {
	id   fileID
	etag string
}

type fileID struct {
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
}

// identify returns what tells versions of a file apart. ok is false on file
// systems that do not say.
func identify(info fs.FileInfo) (id fileID, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, false
	}
	return fileID{dev: uint64(st.Dev), ino: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}, true
}

// get returns the ETag of an open file, from the cache or from its content.
func (c *etagCache) get(file *os.File, path string, info fs.FileInfo) (string, error) {
	id, ok := identify(info)
	c.mu.Lock()
	known, hit := c.known[path]
	c.mu.Unlock()
	if ok && hit && known.id == id {
		return known.etag, nil
	}
	sum := md5.New()
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, info.Size())); err != nil {
		return "", err
	}
	etag := hex.EncodeToString(sum.Sum(nil))
	c.set(path, info, etag)
	return etag, nil
}

func (c *etagCache) set(path string, info fs.FileInfo, etag string) {
	id, ok := identify(info)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxETags {
		c.known = map[string]knownETag{}
	}
	c.known[path] = knownETag{id: id, etag: etag}
}
