package objstore

import (
	"crypto/md5"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"sync"
)

// maxETags bounds the cache, at some 400 bytes each.
const maxETags = 1 << 16

// etagCache remembers the content hash of files, so that a listing reads each
// file once and not every time. Objects are replaced by renaming: another
// version is another file, with a time of its own.
type etagCache struct {
	mu    sync.Mutex
	known map[string]knownETag // by path
}

type knownETag struct {
	info fs.FileInfo
	etag string
}

func (k knownETag) isOf(info fs.FileInfo) bool {
	return k.info != nil && os.SameFile(k.info, info) && k.info.Size() == info.Size() && k.info.ModTime().Equal(info.ModTime())
}

// get returns the ETag of an open file, from the cache or from its content.
func (c *etagCache) get(file *os.File, path string, info fs.FileInfo) (string, error) {
	c.mu.Lock()
	known := c.known[path]
	c.mu.Unlock()
	if known.isOf(info) {
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxETags {
		c.known = map[string]knownETag{}
	}
	c.known[path] = knownETag{info: info, etag: etag}
}
