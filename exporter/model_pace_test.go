package exporter_test

import (
	"context"
	"io"
	"iter"
	"math/rand/v2"
	"time"

	"celldexport/internal/objstore"
	"celldexport/sinks/delivery"
)

// pace is what a fleet's machine is like. The same events meet another order
// of what happens at the same time on each.
type pace struct {
	// flush is how long sinks wait before they send by themselves.
	flush time.Duration
	// call and sync are how long a call of the bucket and a sync of the spool
	// take at most.
	call, sync time.Duration
	// patience is how long a round waits for one stream.
	patience time.Duration
}

// paceOf gives an eighth of the fleets each of a few paces; the others' sinks
// send when they are told to. The rounds of a fourth leave behind every stream
// that makes a call.
func paceOf(seed uint64) pace {
	p := pace{flush: time.Hour, patience: time.Hour}
	switch seed / 2 % 8 {
	case 1:
		p.flush = time.Millisecond
	case 3:
		p.flush, p.sync = 100*time.Millisecond, 2*time.Millisecond
	case 5:
		p.flush, p.call = 5*time.Second, 500*time.Microsecond
	}
	if seed/16%4 == 1 {
		p.patience = time.Nanosecond
	}
	return p
}

// take lets up to most pass. How long is up to chance: what it decides is up
// to the machine in any case.
func take(most time.Duration) {
	if most > 0 {
		time.Sleep(rand.N(most))
	}
}

// slowStore is a bucket whose calls take a while.
type slowStore struct {
	objstore.Store
	most time.Duration
}

func (s slowStore) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Object, error] {
	return func(yield func(objstore.Object, error) bool) {
		take(s.most)
		s.Store.List(ctx, prefix, after)(yield)
	}
}

func (s slowStore) Get(ctx context.Context, key string, opts objstore.GetOptions) (io.ReadCloser, objstore.Object, error) {
	take(s.most)
	return s.Store.Get(ctx, key, opts)
}

func (s slowStore) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts objstore.PutOptions) (objstore.Object, error) {
	defer take(s.most)
	return s.Store.Put(ctx, key, body, size, opts)
}

// slowDisk is a disk whose syncs take a while.
type slowDisk struct {
	delivery.FS
	most time.Duration
}

func (d slowDisk) Create(name string) (delivery.File, error) { return d.slow(d.FS.Create(name)) }

func (d slowDisk) Open(name string) (delivery.File, error) { return d.slow(d.FS.Open(name)) }

func (d slowDisk) slow(f delivery.File, err error) (delivery.File, error) {
	if err != nil {
		return nil, err
	}
	return slowFile{f, d.most}, nil
}

type slowFile struct {
	delivery.File
	most time.Duration
}

func (f slowFile) Sync() error {
	take(f.most)
	return f.File.Sync()
}
