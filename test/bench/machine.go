package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine is where and when a run was made.
type machine struct {
	Date  string `json:"date"`
	Cores int    `json:"cores"`
	CPU   string `json:"cpu"`
	Go    string `json:"go"`
	OS    string `json:"os"`
	Load  string `json:"load"`
}

func thisMachine() machine {
	m := machine{Date: time.Now().UTC().Format(time.RFC3339), Cores: runtime.NumCPU(), CPU: "unknown", Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	return m
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d cores of %s, %s, %s, load %s; measured on one core; processor time but for spool, latency, writer and lines that say wall",
		m.Date, m.Cores, m.CPU, m.Go, m.OS, m.Load)
}

// cacheDir holds large databases between runs.
func cacheDir() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("celldexport-bench-cache-%d", os.Getuid()))
	return dir, os.MkdirAll(dir, 0o700)
}

// pin keeps the process on one processor, unpin lets it use all.
func pin(cpu int) error { return affinity(cpu, cpu) }

func unpin() { _ = affinity(0, runtime.NumCPU()-1) } // back to where it was: cannot fail

func affinity(first, last int) error {
	var set unix.CPUSet
	for cpu := first; cpu <= last; cpu++ {
		set.Set(cpu)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil {
			return fmt.Errorf("run on processors %d to %d: %w", first, last, err)
		}
	}
	return nil
}

// again is this program as a child process. Its errors go where ours go.
func again(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// inChild measures a stage in a process of its own.
func (b *bench) inChild(ctx context.Context, name string) ([]Line, error) {
	args := []string{"-inline", "-json", "-stage", name, "-cells", strconv.Itoa(b.flags.cells)}
	if b.flags.short {
		args = append(args, "-short")
	}
	if b.flags.large {
		args = append(args, "-large")
	}
	cmd, err := again(ctx, args...)
	if err != nil {
		return nil, err
	}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run stage %s in a process of its own: %w", name, err)
	}
	var lines []Line
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		var l Line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("read the lines of stage %s: %w", name, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}
