package main

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"celldexport/cmd/internal/cli"
)

const (
	// memoryHeadroom is what the process may take beside queue_bytes before
	// garbage is collected sooner than usual, in bytes. What the bounds of
	// the settings leave out is within it: page lists of large units, buffers
	// of the encoders, and some kilobytes per cell.
	memoryHeadroom = 128 << 20
	// memoryEvery is how often it is looked whether the limit still is one
	// that can be kept.
	memoryEvery = 10 * time.Second
)

// memoryLimit is the soft limit for the size of what is in use, both in bytes:
// never so close to it that collecting would be all that is done.
func memoryLimit(queue, live int64) int64 { return max(queue+memoryHeadroom, 2*live) }

// limitMemory keeps garbage from doubling the memory that queue_bytes speaks
// of, until the function it returns is called. GOMEMLIMIT in the environment
// says it otherwise.
func (a *app) limitMemory(queue int64) (stop func()) {
	if cli.Lookup(a.environ, "GOMEMLIMIT") != "" {
		return func() {}
	}
	before := debug.SetMemoryLimit(memoryLimit(queue, 0))
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(memoryEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				debug.SetMemoryLimit(memoryLimit(queue, liveBytes()))
			}
		}
	})
	return func() {
		close(done)
		group.Wait()
		debug.SetMemoryLimit(before)
	}
}

// liveBytes is what the last collection found in use.
func liveBytes() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
