package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"celldexport/exporter"
	"celldexport/internal/celldsim"
	"celldexport/internal/config"
	"celldexport/internal/objstore"
)

const (
	rigClass  = "Cart"
	rigScript = "shop"
	rigNode   = "node-a"
)

// rig is a simulated node with its bucket in one directory, for stages that
// measure the whole exporter beside it.
type rig struct {
	dir   string
	store objstore.Store
	fleet *celldsim.Fleet
	node  *celldsim.Node
}

// newRig makes a node with a bucket of files.
func newRig(ctx context.Context, dir string) (*rig, error) {
	bucket := filepath.Join(dir, "bucket")
	if err := os.MkdirAll(bucket, 0o755); err != nil {
		return nil, err
	}
	store, err := objstore.NewFile(bucket)
	if err != nil {
		return nil, err
	}
	return newRigOn(ctx, dir, store)
}

func newRigOn(ctx context.Context, dir string, store objstore.Store) (*rig, error) {
	r := &rig{dir: dir, store: store}
	if err := os.MkdirAll(filepath.Join(dir, "watch"), 0o755); err != nil {
		return nil, err
	}
	var err error
	r.fleet, err = celldsim.New(ctx, celldsim.Config{
		Bucket: r.store, Script: rigScript, Classes: []string{rigClass}, Now: time.Now, Seed: 1, TruncatePages: -1,
	})
	if err != nil {
		return nil, err
	}
	if r.node, err = r.fleet.Node(ctx, rigNode, filepath.Join(dir, "watch")); err != nil {
		return nil, errors.Join(err, r.fleet.Close())
	}
	return r, nil
}

// cell makes a cell with one table.
func (r *rig) cell(ctx context.Context, name string, statements ...string) (*celldsim.Cell, error) {
	c, err := r.node.Activate(ctx, r.fleet.CellID(rigClass, name), name)
	if err != nil {
		return nil, err
	}
	for _, s := range statements {
		if err := c.Exec(s); err != nil {
			return nil, err
		}
	}
	return c, ship(ctx, c)
}

// ship captures and uploads what was committed.
func ship(ctx context.Context, c *celldsim.Cell) error {
	if _, err := c.Capture(); err != nil {
		return err
	}
	return c.Upload(ctx)
}

// settingsFor are the settings of an exporter over a rig's directory.
func settingsFor(dir string) *config.Settings {
	s := config.Default()
	s.Watch, s.State, s.Node = filepath.Join(dir, "watch"), filepath.Join(dir, "state"), rigNode
	s.Bucket, s.Script = "file://"+filepath.Join(dir, "bucket"), rigScript
	s.Export.Enabled = true
	s.Export.QueueBytes = 64 << 20
	s.Export.Flush = time.Second
	return s
}

// running is an exporter in this process.
type running struct {
	*exporter.Exporter
	stop context.CancelFunc
	done chan error
}

// start runs an exporter over the rig until halt.
func start(ctx context.Context, o exporter.Options) (*running, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	}
	e, err := exporter.New(ctx, o)
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(ctx)
	r := &running{Exporter: e, stop: stop, done: make(chan error, 1)}
	go func() { r.done <- errors.Join(e.Run(run), e.Close()) }()
	return r, nil
}

func (r *running) halt() error {
	r.stop()
	return <-r.done
}

// settled waits until n streams are exported and every sink has everything.
func (r *running) settled(ctx context.Context, n int) error {
	for {
		s := r.Status()
		if s.Streams[exporter.StateExported] >= n && len(s.Sinks) > 0 && s.Sinks[0].BacklogEntries == 0 {
			return nil
		}
		if s.Failure != "" {
			return errors.New(s.Failure)
		}
		select {
		case err := <-r.done:
			r.done <- err
			return fmt.Errorf("the exporter ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %d of %d streams exported: %v", ctx.Err(), s.Streams[exporter.StateExported], n, s.Trouble)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// onceTime bounds an exporter that only exports what is there.
const onceTime = 20 * time.Minute

// runSidecar is the child process of stages that need an exporter in a
// process of its own: over what is there, then it says the most memory it
// took, in bytes; or until it is interrupted, then it says "ready" when it
// follows the directory.
func runSidecar(ctx context.Context, dir string, once bool, out io.Writer) error {
	o := exporter.Options{Settings: settingsFor(dir)}
	if once {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
		e, err := exporter.New(ctx, o)
		if err != nil {
			return err
		}
		left, err := e.Once(ctx, onceTime)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("not exported: %v", left)
		}
		peak, errPeak := statusBytes("VmHWM:")
		fmt.Fprintln(out, peak)
		return errors.Join(err, errPeak, e.Close())
	}
	r, err := start(context.WithoutCancel(ctx), o)
	if err != nil {
		return err
	}
	for r.Unready() != "" && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Fprintln(out, "ready")
	<-ctx.Done()
	return r.halt()
}
