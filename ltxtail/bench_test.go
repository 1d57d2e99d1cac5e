package ltxtail

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// quietTree makes cells that nothing happens to, on a file system in memory
// where there is one.
func quietTree(b *testing.B, cells int) string {
	b.Helper()
	root, err := os.MkdirTemp("/dev/shm", "ltxtail-")
	if err != nil {
		root = b.TempDir()
	}
	b.Cleanup(func() { _ = os.RemoveAll(root) })
	for i := range cells {
		dir := filepath.Join(root, fmt.Sprintf("Cart:%064x", i), "ltx", "e1", ".db.sqlite-litestream", "ltx", "0")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for _, name := range []string{"0000000000000001-0000000000000001.ltx", "0000000000000002-0000000000000002.ltx"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	return root
}

// BenchmarkQuietWalk walks ten thousand watched cells that nothing happened
// to since the walk before.
func BenchmarkQuietWalk(b *testing.B) {
	const cells = 10_000
	tail := New(Config{Root: quietTree(b, cells), Watch: Inotify, Rescan: time.Hour})
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- tail.Run(ctx) }()
	for tail.Stats().Scans == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	for range 2 { // the second one is the first that may call a directory settled
		time.Sleep(racy + 100*time.Millisecond)
		if err := tail.Scan(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	used := processorTime(b)
	for range b.N {
		if err := tail.Scan(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(processorTime(b)-used)/float64(b.N)/cells, "cpu-ns/cell")
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// processorTime is what this process used so far: others use the machine too.
func processorTime(b *testing.B) time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
