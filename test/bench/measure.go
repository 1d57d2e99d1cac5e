package main

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// clock is what a measurement is taken with.
type clock func() time.Duration

// cpuClock is the processor time of this process. Other people on the machine
// do not show in it, so it is what everything is measured with that does not
// wait: for a disk, a timer, another process.
func cpuClock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0 // every Linux has this clock
	}
	return time.Duration(t.Nano())
}

// wallClock is a clock for what waits.
func wallClock() clock {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// effort is how long and how often a stage measures.
type effort struct {
	// slice is how long one run of repetitions lasts, and reps how many such
	// runs every contender gets, taking turns.
	slice time.Duration
	reps  int
}

// result is what one contender took.
type result struct {
	// ns is the time of one operation in nanoseconds, one per turn.
	ns []float64
	// allocs and bytes are per operation.
	allocs, bytes float64
}

func (r result) median() float64 { return quantile(r.ns, 0.5) }

// against is the ratio to another contender, turn by turn: the median and the
// quartiles. A turn's two measurements are neighbours in time, so what the
// machine does to one it mostly does to the other.
func (r result) against(floor result) spread {
	ratios := make([]float64, min(len(r.ns), len(floor.ns)))
	for i := range ratios {
		ratios[i] = r.ns[i] / floor.ns[i]
	}
	return spread{quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75)}
}

// spread is a median between its quartiles.
type spread struct{ Mid, Low, High float64 }

func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(math.Round(q*float64(len(sorted)-1)))]
}

// interleave measures contenders in turns: first, second, ..., first, second,
// and so on. Every turn begins with an empty garbage collector.
func (e effort) interleave(c clock, contenders ...func() error) ([]result, error) {
	counts := make([]int, len(contenders))
	for i, run := range contenders {
		n, err := e.calibrate(c, run)
		if err != nil {
			return nil, fmt.Errorf("contender %d: %w", i, err)
		}
		counts[i] = n
	}
	results := make([]result, len(contenders))
	for range e.reps {
		for i, run := range contenders {
			if err := results[i].turn(c, run, counts[i]); err != nil {
				return nil, fmt.Errorf("contender %d: %w", i, err)
			}
		}
	}
	return results, nil
}

// calibrate warms a contender up and finds how often it runs in a slice.
func (e effort) calibrate(c clock, run func() error) (int, error) {
	for n := 1; ; {
		start := c()
		for range n {
			if err := run(); err != nil {
				return 0, err
			}
		}
		took := max(c()-start, time.Microsecond)
		if took > e.slice/4 {
			return max(1, int(float64(n)*float64(e.slice)/float64(took))), nil
		}
		n = max(n+1, int(float64(n)*min(8, float64(e.slice)/2/float64(took))))
	}
}

func (r *result) turn(c clock, run func() error, n int) error {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := c()
	for range n {
		if err := run(); err != nil {
			return err
		}
	}
	took := c() - start
	runtime.ReadMemStats(&after)
	r.ns = append(r.ns, float64(took)/float64(n))
	r.allocs = float64(after.Mallocs-before.Mallocs) / float64(n)
	r.bytes = float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
	return nil
}

// errNotMeasured is returned by a stage that cannot be measured here; the
// table says so instead of leaving it out.
var errNotMeasured = errors.New("not measured")
