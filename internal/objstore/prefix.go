package objstore

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
)

// WithPrefix returns the part of s below prefix ("a/b"; slashes at its ends do
// not matter) as a store of its own, whose keys are relative to it. An empty
// prefix returns s.
func WithPrefix(s Store, prefix string) Store {
	prefix = strings.Trim(prefix, "/")
	if prefix == "" {
		return s
	}
	return &prefixed{store: s, prefix: prefix + "/"}
}

type prefixed struct {
	store  Store
	prefix string // ends in a slash
}

// List implements Store.
func (p *prefixed) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	if after != "" {
		after = p.prefix + after
	}
	return func(yield func(Object, error) bool) {
		for obj, err := range p.store.List(ctx, p.prefix+prefix, after) {
			if !yield(p.strip(obj), err) {
				return
			}
		}
	}
}

// Get implements Store.
func (p *prefixed) Get(ctx context.Context, key string, opts GetOptions) (io.ReadCloser, Object, error) {
	if err := CheckKey(key); err != nil {
		return nil, Object{}, fmt.Errorf("get: %w", err)
	}
	body, obj, err := p.store.Get(ctx, p.prefix+key, opts)
	return body, p.strip(obj), err
}

// Put implements Store.
func (p *prefixed) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts PutOptions) (Object, error) {
	if err := CheckKey(key); err != nil {
		return Object{}, fmt.Errorf("put: %w", err)
	}
	obj, err := p.store.Put(ctx, p.prefix+key, body, size, opts)
	return p.strip(obj), err
}

// Delete implements Store.
func (p *prefixed) Delete(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return p.store.Delete(ctx, p.prefix+key)
}

func (p *prefixed) strip(obj Object) Object {
	obj.Key = strings.TrimPrefix(obj.Key, p.prefix)
	return obj
}
