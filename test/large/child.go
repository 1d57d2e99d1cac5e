package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"celldexport/exporter"
	"celldexport/internal/config"
)

// childEnv carries the spec of an exporter that this program runs as a
// process of its own.
const childEnv = "EXPORT_LARGE_CHILD"

// childSpec is what such an exporter works with. Sizes are in bytes; a soft
// memory limit of 0 is none.
type childSpec struct {
	Watch, State, Node, Bucket string
	Queue, Unit, SoftLimit     int64
	// Files limits the files that it may open; 0 is no limit.
	Files   uint64
	Timeout time.Duration
	// Profile is a file for heap profiles, if any.
	Profile string
}

// memory is what the process took, in bytes.
type memory struct {
	// Peak is the largest resident set (VmHWM of /proc/self/status).
	Peak int64
	// Heap is the largest size of live and not yet collected objects that was
	// seen, Live the largest that a collection left.
	Heap, Live int64
}

func childMain(text string) int {
	m, err := export(text)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "export:", err)
		return 1
	}
	return 0
}

// export runs an exporter over everything present and measures.
func export(text string) (memory, error) {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return memory{}, err
	}
	if spec.Files > 0 {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: spec.Files, Max: spec.Files}); err != nil {
			return memory{}, fmt.Errorf("limit open files to %d: %w", spec.Files, err)
		}
	}
	if spec.SoftLimit > 0 {
		debug.SetMemoryLimit(spec.SoftLimit)
	}
	s := config.Default()
	s.Watch, s.State, s.Node, s.Bucket = spec.Watch, spec.State, spec.Node, "file://"+spec.Bucket
	s.Export.Enabled = true
	s.Export.QueueBytes, s.Export.MaxTxBytes = spec.Queue, spec.Unit
	s.Export.FlushBytes = min(s.Export.FlushBytes, spec.Queue)
	s.Export.SpoolBytes = 64 << 30
	ctx := context.Background()
	watched := watchHeap(spec.Profile)
	e, err := exporter.New(ctx, exporter.Options{Settings: s, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return memory{}, err
	}
	left, err := e.Once(ctx, spec.Timeout)
	if cerr := e.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return memory{}, err
	}
	if len(left) > 0 {
		return memory{}, fmt.Errorf("not everything was exported: %v", left)
	}
	m := watched()
	m.Peak, err = peakResident()
	return m, err
}

// watchHeap looks at the heap until the function it returns is called. Of what
// is live it writes a profile whenever that is a twentieth more than ever
// before.
func watchHeap(profile string) func() memory {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}}
	var m memory
	profiled := int64(0)
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			metrics.Read(samples)
			m.Heap = max(m.Heap, int64(samples[0].Value.Uint64()))
			m.Live = max(m.Live, int64(samples[1].Value.Uint64()))
			if profile != "" && m.Live > profiled+profiled/20 {
				profiled = m.Live
				writeProfile(profile)
			}
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() memory {
		close(done)
		group.Wait()
		return m
	}
}

// writeProfile replaces a heap profile, as far as it can: the figures do not
// depend on it.
func writeProfile(path string) {
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(pprof.Lookup("heap").WriteTo(f, 0), f.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "heap profile:", err)
	}
}

// peakResident is the largest resident set of this process so far.
func peakResident() (int64, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read the peak of memory: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("read the peak of memory: /proc/self/status has no VmHWM")
}

// exportOnce runs the child and returns what it measured.
func (s *scene) exportOnce(ctx context.Context, files uint64) (memory, error) {
	spec, err := json.Marshal(childSpec{
		Watch: s.node.Watch(), State: s.stateDir(), Node: s.node.Name(), Bucket: s.bucketDir(),
		Queue: s.sizes.queue, Unit: s.sizes.unit, SoftLimit: s.sizes.softLimit, Files: files, Timeout: time.Hour, Profile: s.profile,
	})
	if err != nil {
		return memory{}, err
	}
	var out, log bytes.Buffer
	cmd := exec.CommandContext(ctx, s.self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(spec))
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		return memory{}, fmt.Errorf("run the exporter: %w\n%s", err, log.String())
	}
	var m memory
	if err := json.Unmarshal(out.Bytes(), &m); err != nil {
		return memory{}, fmt.Errorf("read what the exporter measured: %w\n%s", err, log.String())
	}
	return m, nil
}
