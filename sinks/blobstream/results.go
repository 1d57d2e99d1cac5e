package blobstream

import (
	"context"
	"sync"
)

// results hands stored batches from the goroutines that sent them to the run.
type results struct {
	mu   sync.Mutex
	list []*batch
	// wake is called when a batch arrives, while somebody waits.
	wake context.CancelFunc
}

func (r *results) put(b *batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, b)
	if r.wake != nil {
		r.wake()
	}
}

// arm has wake called when a batch arrives; false when one is there.
func (r *results) arm(wake context.CancelFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) > 0 {
		return false
	}
	r.wake = wake
	return true
}

func (r *results) disarm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake = nil
}

// take takes what has arrived.
func (r *results) take() []*batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}

// wait waits for a batch; the error is ctx's.
func (r *results) wait(ctx context.Context) error {
	arrived, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.arm(cancel) {
		<-arrived.Done()
		r.disarm()
	}
	return ctx.Err()
}
