package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"celldexport/envelope"
	"celldexport/exporter"
	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
	"celldexport/sinks/bucket"
)

// txKey names one capture of one cell.
type txKey struct {
	cell string
	txid uint64
}

// stopwatch is an export bucket that knows when a transaction was committed,
// and notes when an object that holds it was stored.
type stopwatch struct {
	objstore.Store
	mu        sync.Mutex
	committed map[txKey]time.Time
	took      []float64 // nanoseconds
	err       error
}

// Put stores the object and looks up whose records are in it.
func (s *stopwatch) Put(ctx context.Context, key string, body io.ReaderAt, size int64, o objstore.PutOptions) (objstore.Object, error) {
	obj, err := s.Store.Put(ctx, key, body, size, o)
	now := time.Now()
	if err != nil || !strings.HasPrefix(key, bucket.Prefix) {
		return obj, err
	}
	if err := s.note(key, body, size, now); err != nil {
		s.mu.Lock()
		s.err = errors.Join(s.err, err)
		s.mu.Unlock()
	}
	return obj, nil
}

func (s *stopwatch) note(key string, body io.ReaderAt, size int64, now time.Time) error {
	r, err := bucket.NewReader(key, body, size)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for rec, err := range r.Records() {
		if err != nil {
			return err
		}
		k := txKey{rec.Stream.Cell, rec.Position.TXID}
		if at, ok := s.committed[k]; ok && rec.Kind == envelope.KindRows {
			s.took = append(s.took, float64(now.Sub(at)))
			delete(s.committed, k)
		}
	}
	return nil
}

// left is how many commits are not stored yet.
func (s *stopwatch) left() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.committed), s.err
}

// latencyStage commits now and then and measures how long each commit takes
// to be in the bucket, acknowledged.
func latencyStage(ctx context.Context, b *bench) ([]Line, error) {
	flush, commits := time.Second, 400
	if b.flags.short {
		flush, commits = 500*time.Millisecond, 150
	}
	r, err := newRig(ctx, b.dir)
	if err != nil {
		return nil, err
	}
	defer r.fleet.Close()
	watch := &stopwatch{Store: r.store, committed: make(map[txKey]time.Time)}
	settings := settingsFor(b.dir)
	settings.Export.Flush = flush
	e, err := start(ctx, exporter.Options{Settings: settings, Fleet: r.store, Export: watch})
	if err != nil {
		return nil, err
	}
	err = r.trickle(ctx, watch, commits, e)
	if err := errors.Join(err, e.halt()); err != nil {
		return nil, err
	}
	rounds := settings.Export.Flush // the interval of rounds follows flush_ms
	bound := flush + 2*rounds
	on := fmt.Sprintf("%d commits on 4 cells, flush_ms %d, file bucket", commits, flush.Milliseconds())
	line := func(what string, q float64) Line {
		ns := quantile(watch.took, q)
		l := Line{Stage: "latency", What: "commit to acknowledged, " + what, On: on, NS: ns, Note: "wall time"}
		return l.atMost(ns, float64(bound), fmt.Sprintf("flush_ms + 2 rounds = %v", bound))
	}
	return []Line{line("p50", 0.5), line("p99", 0.99)}, nil
}

// trickle commits at odd moments and waits for the last one.
func (r *rig) trickle(ctx context.Context, watch *stopwatch, commits int, e *running) error {
	var cells []*celldsim.Cell
	for i := range 4 {
		c, err := r.cell(ctx, fmt.Sprint("cart-", i), "CREATE TABLE items(id INTEGER PRIMARY KEY, qty INT)", "INSERT INTO items VALUES(1, 0)")
		if err != nil {
			return err
		}
		cells = append(cells, c)
	}
	if err := e.settled(ctx, len(cells)); err != nil {
		return err
	}
	for i := range commits {
		c := cells[i%len(cells)]
		if err := c.Exec("UPDATE items SET qty = qty + 1"); err != nil {
			return err
		}
		watch.mu.Lock()
		watch.committed[txKey{c.Scope(), c.TXID() + 1}] = time.Now()
		watch.mu.Unlock()
		if err := ship(ctx, c); err != nil {
			return err
		}
		time.Sleep(time.Duration(20+i*37%41) * time.Millisecond)
	}
	for range 600 {
		if n, err := watch.left(); n == 0 || err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	n, _ := watch.left()
	return fmt.Errorf("%d commits were not stored after a minute", n)
}
