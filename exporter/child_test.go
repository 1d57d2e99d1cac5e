package exporter_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"celldexport/exporter"
	"celldexport/internal/config"
	"celldexport/internal/objstore"
	"celldexport/sinks/delivery"
)

// childEnv carries the spec of an exporter that runs in a process of its own.
const childEnv = "EXPORTER_TEST_CHILD"

// childSpec is what such an exporter works with.
type childSpec struct {
	Watch, State, Node, Bucket string
	// Puts is a directory that keeps the body of every PUT into the export,
	// "" keeps none.
	Puts string
	// Files is the limit of open files, 0 the one inherited. Flush and
	// Interval are those of the sink and of rounds, 0 the usual of tests.
	Files           uint64
	Flush, Interval time.Duration
	// Memory is its soft limit of memory in bytes, 0 none.
	Memory int64
	// Brokers are of a topic that gets everything too, none for the bucket
	// alone.
	Brokers []string
	// Crash has the process kill itself at a named point, "" at none.
	Crash crashPoint
}

// childMain exports until it is killed. It returns the exit code of a start
// that went wrong.
func childMain(text string) int {
	if err := runChild(text); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	return 0
}

func runChild(text string) error {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	store, err := objstore.NewFile(spec.Bucket)
	if err != nil {
		return err
	}
	s := config.Default()
	s.Watch, s.State, s.Node, s.Bucket = spec.Watch, spec.State, spec.Node, "file://"+spec.Bucket
	s.Export.Enabled = true
	if spec.Crash.Name != "" {
		s.Export.SpoolBytes = 4 << 20 // small segments, so that some are removed
	}
	s.Export.Flush = cmp.Or(spec.Flush, childFlush)
	if len(spec.Brokers) > 0 {
		s.Export.Sinks, s.Kafka.Brokers = []string{config.SinkKafka, config.SinkBucket}, spec.Brokers
	}
	if spec.Files > 0 {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: spec.Files, Max: spec.Files}); err != nil {
			return err
		}
	}
	if spec.Memory > 0 {
		debug.SetMemoryLimit(spec.Memory)
	}
	var export objstore.Store = store
	if spec.Puts != "" {
		export = journaled{store, spec.Puts}
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	c := &crasher{at: spec.Crash}
	e, err := exporter.New(ctx, exporter.Options{
		Settings: s, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Fleet: crashStore{store, c}, Export: crashStore{export, c}, Interval: cmp.Or(spec.Interval, 10*time.Millisecond), Waits: exporter.Waits{Patience: patience},
		Step: c.step, Shadow: c.shadow, Spool: crashFS{delivery.DiskFS(), c},
	})
	if err != nil {
		return err
	}
	return errors.Join(e.Run(ctx), e.Close())
}

const childFlush = 20 * time.Millisecond

// journaled keeps the body of every PUT as a file, before it is stored: what
// a sink sent twice can be compared although a name holds one object.
type journaled struct {
	objstore.Store
	dir string
}

func (j journaled) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts objstore.PutOptions) (objstore.Object, error) {
	b := make([]byte, size)
	if _, err := body.ReadAt(b, 0); err != nil && err != io.EOF {
		return objstore.Object{}, err
	}
	name := filepath.Join(j.dir, fmt.Sprintf("%d-%d.parquet", time.Now().UnixNano(), os.Getpid()))
	if err := os.WriteFile(name+".tmp", b, 0o644); err != nil {
		return objstore.Object{}, err
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return objstore.Object{}, err
	}
	return j.Store.Put(ctx, key, body, size, opts)
}

// child is an exporter in a process of its own.
type child struct {
	cmd *exec.Cmd
	log bytes.Buffer
}

// startChild runs the test binary as the host's exporter.
func (h *host) startChild(bucket, puts string) *child {
	h.w.t.Helper()
	return h.startChildWith(childSpec{Bucket: bucket, Puts: puts})
}

// startChildWith is startChild with everything that can be chosen; the host's
// directories and name are filled in where they are empty.
func (h *host) startChildWith(s childSpec) *child {
	h.w.t.Helper()
	s.Watch, s.State, s.Node = cmp.Or(s.Watch, h.settings.Watch), cmp.Or(s.State, h.settings.State), cmp.Or(s.Node, h.settings.Node)
	spec, err := json.Marshal(s)
	h.w.must(err)
	self, err := os.Executable()
	h.w.must(err)
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(spec))
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	h.w.must(c.cmd.Start())
	return c
}

// kill ends the process as the kernel does. A process that ended by itself
// before is an error with what it said.
func (c *child) kill() error {
	if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the exporter: %w\n%s", err, c.log.String())
	}
	return c.wait()
}

// wait waits for a process that was killed or kills itself.
func (c *child) wait() error {
	err := c.ended()
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return nil
	}
	return fmt.Errorf("the exporter ended by itself: %w\n%s", err, c.log.String())
}

// end asks the process to finish and waits for it.
func (c *child) end() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end the exporter: %w\n%s", err, c.log.String())
	}
	if err := c.ended(); err != nil {
		return fmt.Errorf("the exporter ended with %w\n%s", err, c.log.String())
	}
	return nil
}

// ended waits for the process. One that does not end is told to show what its
// goroutines do, which ends it too.
func (c *child) ended() error {
	quit := time.AfterFunc(2*patience, func() { _ = c.cmd.Process.Signal(syscall.SIGQUIT) })
	defer quit.Stop()
	return c.cmd.Wait()
}
