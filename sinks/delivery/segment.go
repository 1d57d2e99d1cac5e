package delivery

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// ErrCorrupt is wrapped when a file of the spool holds something else than
// what was durably written to it.
var ErrCorrupt = errors.New("spool is damaged")

const segmentSuffix = ".spool"

// segment is one file of consecutive entries. Its name is the sequence number
// of its first entry, so that an empty spool still knows its next number.
type segment struct {
	fs    FS
	path  string
	salt  uint32
	first uint64

	// size and last are the end of the file and its last entry; both belong
	// to the spool's lock. last is first-1 while there is none.
	// durable is the size that was synced.
	size, durable int64
	last          uint64

	open sync.Mutex
	file File
	gone bool
}

func segmentPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", first, segmentSuffix))
}

// segmentNumber is the first sequence number that a file name tells.
func segmentNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0
}

// createSegment makes a durable empty segment.
func createSegment(fs FS, dir string, first uint64, salt uint32) (*segment, error) {
	s := &segment{fs: fs, path: segmentPath(dir, first), salt: salt, first: first, last: first - 1, size: segmentHead, durable: segmentHead}
	f, err := fs.Create(s.path)
	if err != nil {
		return nil, fmt.Errorf("create spool segment: %w", err)
	}
	b := make([]byte, segmentHead)
	copy(b, segmentMagic)
	binary.LittleEndian.PutUint64(b[8:], first)
	binary.LittleEndian.PutUint32(b[16:], salt)
	binary.LittleEndian.PutUint32(b[28:], crc32.Checksum(b[:28], crcTable))
	if _, err = f.WriteAt(b, 0); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = fs.SyncDir(dir)
	}
	if err != nil {
		f.Close()
		fs.Remove(s.path) // an empty segment left behind is recognised at start
		return nil, fmt.Errorf("create spool segment %s: %w", s.path, err)
	}
	s.file = f
	return s, nil
}

// loadSegment reads the head of a segment. errTorn means that its creation
// was cut short.
func loadSegment(fs FS, dir string, first uint64) (*segment, error) {
	s := &segment{fs: fs, path: segmentPath(dir, first), first: first, last: first - 1}
	f, err := s.handle()
	if err != nil {
		return nil, err
	}
	if s.size, err = f.Size(); err != nil {
		return nil, fmt.Errorf("size of spool segment %s: %w", s.path, err)
	}
	b := make([]byte, segmentHead)
	if s.size < segmentHead {
		return s, errTorn
	}
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("read spool segment %s: %w", s.path, err)
	}
	if crc32.Checksum(b[:28], crcTable) != binary.LittleEndian.Uint32(b[28:]) {
		return s, errTorn
	}
	if err := checkMagic(string(b[:8])); err != nil {
		return nil, fmt.Errorf("spool segment %s %w", s.path, err)
	}
	if got := binary.LittleEndian.Uint64(b[8:]); got != first {
		return nil, fmt.Errorf("%s says its first entry is %d: %w", s.path, got, ErrCorrupt)
	}
	s.salt = binary.LittleEndian.Uint32(b[16:])
	return s, nil
}

// checkMagic refuses segments that this program does not write.
func checkMagic(got string) error {
	const name = len(segmentMagic) - 1 // its last character is the format
	switch {
	case got == segmentMagic:
		return nil
	case got[:name] != segmentMagic[:name]:
		return errors.New("is of another program")
	case got < segmentMagic:
		return fmt.Errorf("has format %s, older than the %s this program knows", got[name:], segmentMagic[name:])
	default:
		return fmt.Errorf("has format %s, newer than the %s this program knows", got[name:], segmentMagic[name:])
	}
}

// handle is the open file; it is opened when first asked for.
func (s *segment) handle() (File, error) {
	s.open.Lock()
	defer s.open.Unlock()
	if s.gone {
		return nil, fmt.Errorf("spool segment %s was removed", s.path)
	}
	if s.file == nil {
		f, err := s.fs.Open(s.path)
		if err != nil {
			return nil, fmt.Errorf("open spool segment: %w", err)
		}
		s.file = f
	}
	return s.file, nil
}

func (s *segment) close() error {
	s.open.Lock()
	defer s.open.Unlock()
	s.gone = true
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}

// head reads the head of the entry at off. errTorn means that there is no
// whole head there.
func (s *segment) head(off, size int64, w *window) (h head, err error) {
	want := min(size-off, headUsual)
	if want < headFixed {
		return h, errTorn
	}
	b, err := w.read(s, off, int(want))
	if err != nil {
		return h, err
	}
	n, err := headLength(b)
	if err != nil {
		return h, err
	}
	if off+int64(n) > size {
		return h, errTorn
	}
	if n > len(b) {
		if b, err = w.read(s, off, n); err != nil {
			return h, err
		}
	}
	if err := h.decode(b[:n], s.salt, &w.last); err != nil {
		return h, err
	}
	if h.payload > size-off-h.length {
		return h, errTorn
	}
	w.passed(&h)
	return h, nil
}

// readAt fills n bytes, reusing buf.
func readAt(f io.ReaderAt, buf []byte, off int64, n int) ([]byte, error) {
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := f.ReadAt(buf, off); err != nil {
		return buf, err
	}
	return buf, nil
}

// scan walks the entries. The last segment of a spool is checked byte by
// byte: what follows its last Sync may be torn and is cut off. In an earlier
// one, complete since before the next was made, nothing may be wrong; its
// blocks are checked when they are read.
func (s *segment) scan(last bool, visit func(*head)) error {
	off := int64(segmentHead)
	ahead := window{upto: s.size}
	for off < s.size {
		h, err := s.head(off, s.size, &ahead)
		if err == nil && h.seq != s.last+1 {
			return fmt.Errorf("%s at %d holds entry %d after %d: %w", s.path, off, h.seq, s.last, ErrCorrupt)
		}
		if err == nil && last {
			err = s.verify(off+h.length, h.payload)
		}
		switch {
		case err == nil:
		case last && errors.Is(err, errTorn):
			return s.cut(off)
		case errors.Is(err, errTorn):
			return fmt.Errorf("%s at %d: entry %d is broken: %w", s.path, off, s.last+1, ErrCorrupt)
		default:
			return err
		}
		visit(&h)
		s.last = h.seq
		off += h.length + h.payload
	}
	return nil
}

// verify checks the blocks between off and off+length.
func (s *segment) verify(off, length int64) error {
	f, err := s.handle()
	if err != nil {
		return err
	}
	end := off + length
	buf := make([]byte, blockHead, 64<<10)
	for off < end {
		if end-off < blockHead {
			return errTorn
		}
		if buf, err = readAt(f, buf, off, blockHead); err != nil {
			return fmt.Errorf("read %s at %d: %w", s.path, off, err)
		}
		k, err := parseBlock(buf)
		if err != nil {
			return err
		}
		crc := crc32.Checksum(buf[:12], crcTable)
		off += blockHead
		if int64(k.stored) > end-off {
			return errTorn
		}
		for left := int64(k.stored); left > 0; {
			n := min(left, 64<<10)
			if buf, err = readAt(f, buf, off, int(n)); err != nil {
				return fmt.Errorf("read %s at %d: %w", s.path, off, err)
			}
			crc = crc32.Update(crc, crcTable, buf)
			off, left = off+n, left-n
		}
		if crc != k.crc {
			return errTorn
		}
	}
	return nil
}

// cut removes what follows off, unless a later entry shows that more than
// that was durable once: then it is damage, not a torn write.
func (s *segment) cut(off int64) error {
	f, err := s.handle()
	if err != nil {
		return err
	}
	const part = 1 << 20
	magic := []byte(entryMagic)
	buf := make([]byte, part)
	head := window{upto: s.size}
	for at := off + 1; at < s.size; at += part - int64(len(magic)) {
		n := min(s.size-at, part)
		if _, err := f.ReadAt(buf[:n], at); err != nil {
			return fmt.Errorf("read %s at %d: %w", s.path, at, err)
		}
		for i := 0; ; {
			j := bytes.Index(buf[i:n], magic)
			if j < 0 {
				break
			}
			i += j
			h, err := s.head(at+int64(i), s.size, &head)
			if (err == nil || errors.Is(err, errTorn)) && h.durable > off {
				return fmt.Errorf("%s at %d: entry %d is broken and was durable before entry %d: %w", s.path, off, s.last+1, h.seq, ErrCorrupt)
			}
			i++
		}
		if n < part {
			break
		}
	}
	if err := f.Truncate(off); err != nil {
		return fmt.Errorf("cut the torn end off %s: %w", s.path, err)
	}
	s.size = off
	return nil
}
