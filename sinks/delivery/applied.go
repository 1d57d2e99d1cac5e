package delivery

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// marker is one number kept durably in a file of two slots written in turn:
// a write that is cut short leaves the other slot, which is older.
type marker struct {
	path string
	file File

	// value is read without mu, which is held over writes.
	value atomic.Uint64

	mu    sync.Mutex
	turn  uint64
	saved uint64
	err   error
}

const (
	markerName = "applied"
	markerSlot = 24
)

func openMarker(fs FS, dir string) (*marker, error) {
	m := &marker{path: filepath.Join(dir, markerName)}
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("list spool directory: %w", err)
	}
	found := false
	for _, name := range names {
		found = found || name == markerName
	}
	if found {
		m.file, err = fs.Open(m.path)
	} else {
		m.file, err = fs.Create(m.path)
		if err == nil {
			err = fs.SyncDir(dir)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", m.path, err)
	}
	return m, m.read()
}

func (m *marker) read() error {
	size, err := m.file.Size()
	if err != nil {
		return fmt.Errorf("size of %s: %w", m.path, err)
	}
	var b [markerSlot]byte
	valid := false
	for at := int64(0); at+markerSlot <= min(size, 2*markerSlot); at += markerSlot {
		if _, err := m.file.ReadAt(b[:], at); err != nil {
			return fmt.Errorf("read %s: %w", m.path, err)
		}
		if crc32.Checksum(b[:20], crcTable) != binary.LittleEndian.Uint32(b[20:]) {
			continue
		}
		valid = true
		if turn := binary.LittleEndian.Uint64(b[:]); turn > m.turn {
			m.turn, m.saved = turn, binary.LittleEndian.Uint64(b[8:])
		}
	}
	// The very first write may have been cut short; two slots cannot both.
	if !valid && size >= 2*markerSlot {
		return fmt.Errorf("%s holds no valid number: %w", m.path, ErrCorrupt)
	}
	m.value.Store(m.saved)
	return nil
}

func (m *marker) get() uint64 { return m.value.Load() }

// set raises the number, durable on return. A smaller one changes nothing.
func (m *marker) set(value uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if value <= m.saved || m.err != nil {
		return m.err
	}
	var b [markerSlot]byte
	binary.LittleEndian.PutUint64(b[:], m.turn+1)
	binary.LittleEndian.PutUint64(b[8:], value)
	binary.LittleEndian.PutUint32(b[20:], crc32.Checksum(b[:20], crcTable))
	if _, err := m.file.WriteAt(b[:], int64(m.turn+1)%2*markerSlot); err != nil {
		return fmt.Errorf("write %s: %w", m.path, err)
	}
	if err := m.file.Sync(); err != nil {
		// Whether the slot is on disk is unknown from here on.
		m.err = fmt.Errorf("sync %s: %w", m.path, err)
		return m.err
	}
	m.turn++
	m.saved = value
	m.advance(value)
	return nil
}

// advance raises the number in memory only.
func (m *marker) advance(value uint64) {
	for at := m.value.Load(); at < value && !m.value.CompareAndSwap(at, value); {
		at = m.value.Load()
	}
}

// follow raises the number by one in memory, if it is the one before value.
func (m *marker) follow(value uint64) { m.value.CompareAndSwap(value-1, value) }

func (m *marker) close() error { return m.file.Close() }
