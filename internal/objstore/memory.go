package objstore

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a store that lives in the process: for tests, and for trying
// things out. Its ETags are the MD5 of the content, as those of S3's single
// PUTs are.
type Memory struct {
	mu      sync.Mutex
	now     func() time.Time
	keys    []string // sorted
	objects map[string]memoryObject
}

type memoryObject struct {
	data     []byte // never changed once stored
	etag     string
	modified time.Time
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{now: time.Now, objects: map[string]memoryObject{}}
}

// SetClock makes now the clock that gives later objects their Modified time.
func (m *Memory) SetClock(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = now
}

// SetModified changes the Modified time of a stored object, as if it had been
// stored then.
func (m *Memory) SetModified(key string, modified time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return fmt.Errorf("set time of %s: %w", key, ErrNotFound)
	}
	o.modified = modified
	m.objects[key] = o
	return nil
}

// List implements Store. It yields the objects as they were when the loop
// began.
func (m *Memory) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for _, obj := range m.snapshot(prefix, after) {
			if err := ctx.Err(); err != nil {
				yield(Object{}, fmt.Errorf("list %s: %w", prefix, err))
				return
			}
			if !yield(obj, nil) {
				return
			}
		}
	}
}

func (m *Memory) snapshot(prefix, after string) []Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, found := slices.BinarySearch(m.keys, max(prefix, after))
	if found && m.keys[from] == after {
		from++
	}
	var objs []Object
	for _, key := range m.keys[from:] {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		objs = append(objs, m.objects[key].describe(key))
	}
	return objs
}

func (o memoryObject) describe(key string) Object {
	return Object{Key: key, Size: int64(len(o.data)), ETag: o.etag, Modified: o.modified}
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, key string, opts GetOptions) (io.ReadCloser, Object, error) {
	if err := begin(ctx, "get", key); err != nil {
		return nil, Object{}, err
	}
	m.mu.Lock()
	o, ok := m.objects[key]
	m.mu.Unlock()
	if !ok {
		return nil, Object{}, fmt.Errorf("get %s: %w", key, ErrNotFound)
	}
	if opts.IfMatch != "" && opts.IfMatch != o.etag {
		return nil, Object{}, fmt.Errorf("get %s: %w", key, ErrPrecondition)
	}
	from, to := window(opts, int64(len(o.data)))
	return io.NopCloser(bytes.NewReader(o.data[from:to])), o.describe(key), nil
}

// Put implements Store.
func (m *Memory) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts PutOptions) (Object, error) {
	if err := begin(ctx, "put", key); err != nil {
		return Object{}, err
	}
	if err := checkConditions(key, opts); err != nil {
		return Object{}, err
	}
	data := make([]byte, size)
	if n, err := io.ReadFull(io.NewSectionReader(body, 0, size), data); err != nil {
		return Object{}, fmt.Errorf("put %s: %w", key, bodyError(int64(n), size, err))
	}
	sum := md5.Sum(data)

	m.mu.Lock()
	defer m.mu.Unlock()
	old, exists := m.objects[key]
	if opts.IfAbsent && exists || opts.IfMatch != "" && opts.IfMatch != old.etag {
		return Object{}, fmt.Errorf("put %s: %w", key, ErrPrecondition)
	}
	if !exists {
		at, _ := slices.BinarySearch(m.keys, key)
		m.keys = slices.Insert(m.keys, at, key)
	}
	o := memoryObject{data: data, etag: hex.EncodeToString(sum[:]), modified: m.now()}
	m.objects[key] = o
	return o.describe(key), nil
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, key string) error {
	if err := begin(ctx, "delete", key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, found := slices.BinarySearch(m.keys, key); found {
		m.keys = slices.Delete(m.keys, at, at+1)
		delete(m.objects, key)
	}
	return nil
}

// begin is what every operation checks first.
func begin(ctx context.Context, op, key string) error {
	if err := CheckKey(key); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	return nil
}
