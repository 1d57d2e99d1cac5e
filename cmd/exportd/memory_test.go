package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestMemoryLimitFollowsTheSettings(t *testing.T) {
	for _, c := range []struct{ queue, live, want int64 }{
		{64 << 20, 0, 192 << 20},
		{64 << 20, 90 << 20, 192 << 20},
		{64 << 20, 300 << 20, 600 << 20},
	} {
		if got := memoryLimit(c.queue, c.live); got != c.want {
			t.Errorf("queue_bytes %d, %d in use: limit %d, want %d", c.queue, c.live, got, c.want)
		}
	}
	runtime.GC()
	if n := liveBytes(); n <= 0 {
		t.Errorf("%d bytes are in use", n)
	}
}

func TestMemoryLimitIsSetAndTakenBack(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	stop := (&app{}).limitMemory(64 << 20)
	if got := debug.SetMemoryLimit(-1); got != 192<<20 {
		t.Errorf("the limit is %d", got)
	}
	stop()
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("the limit is %d afterwards", got)
	}
	(&app{environ: []string{"GOMEMLIMIT=1GiB"}}).limitMemory(64 << 20)()
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("the limit is %d although the environment has one", got)
	}
}
