package exporter_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"sync"

	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
)

// racing has something happen to the fleet in the middle of an exporter's
// work: before or after one of its calls of the bucket.
type racing struct {
	objstore.Store

	mu   sync.Mutex
	left int
	do   func()
	err  error
}

// arm has do happen at the call after left others; each call counts when it
// begins and when it ends.
func (r *racing) arm(left int, do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left, r.do = left, do
}

// armed reports whether something is still to happen, or to be told.
func (r *racing) armed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.do != nil || r.err != nil
}

// over disarms and reports what went wrong meanwhile.
func (r *racing) over() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.err
	r.do, r.err = nil, nil
	return err
}

func (r *racing) turn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.do == nil {
		return
	}
	if r.left--; r.left >= 0 {
		return
	}
	do := r.do
	r.do = nil
	defer func() {
		switch p := recover().(type) {
		case nil:
		case wrong:
			r.err = fmt.Errorf("in a round: %w", p.error)
		default:
			panic(p)
		}
	}()
	do()
}

func (r *racing) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Object, error] {
	return func(yield func(objstore.Object, error) bool) {
		r.turn()
		defer r.turn()
		for obj, err := range r.Store.List(ctx, prefix, after) {
			if !yield(obj, err) {
				return
			}
		}
	}
}

func (r *racing) Get(ctx context.Context, key string, opts objstore.GetOptions) (io.ReadCloser, objstore.Object, error) {
	r.turn()
	defer r.turn()
	return r.Store.Get(ctx, key, opts)
}

func (r *racing) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts objstore.PutOptions) (objstore.Object, error) {
	r.turn()
	defer r.turn()
	return r.Store.Put(ctx, key, body, size, opts)
}

// race is what happens to a cell in the middle of a round.
func (m *model) race(c *modelCell, how uint64) {
	switch how {
	case 0, 1: // another node takes it and goes on, and the old one too
		if c.owner == nil {
			return
		}
		for i, h := range m.hosts {
			if h == c.owner {
				m.move(c, event{Op: opTakeOver, B: uint64(i+1) % uint64(len(m.hosts))})
				break
			}
		}
		if len(c.zombies) > 0 && how == 0 {
			m.zombie(c, 0, event{Op: opZombieWrite})
		}
	case 2: // it sleeps and wakes
		m.move(c, event{Op: opEvict, B: 1})
		if c.res == nil && c.owner != nil {
			m.activate(c, c.owner, celldsim.Activation{})
		}
	}
	m.traffic(c, event{Op: opWrite})
	m.observe()
}
