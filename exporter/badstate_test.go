package exporter_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"celldexport/exporter"
	"celldexport/exporter/state"
	"celldexport/internal/celldsim"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
	"celldexport/sinks/delivery"
)

// fullFS is a spool's file system with a switch that makes it full.
type fullFS struct {
	delivery.FS
	full func() error
}

type fullFile struct {
	delivery.File
	full func() error
}

func (f fullFS) Create(name string) (delivery.File, error) {
	if err := f.full(); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name)
	return fullFile{file, f.full}, err
}

func (f fullFS) Open(name string) (delivery.File, error) {
	file, err := f.FS.Open(name)
	return fullFile{file, f.full}, err
}

func (f fullFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.full(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, off)
}

func (f fullFile) Sync() error {
	if err := f.full(); err != nil {
		return err
	}
	return f.File.Sync()
}

// A state volume that fails stops the export where it is, shows it, and a
// restart after it was mended takes up from what is durable.
func TestStateVolumeFails(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("write: %w", syscall.ENOSPC)
	steps := []exporter.Step{exporter.StepSpooled, exporter.StepPages, exporter.StepSynced, exporter.StepDocuments, exporter.StepApplied}
	for _, step := range steps {
		t.Run(string(step), func(t *testing.T) {
			t.Parallel()
			stateFails(t, func(o *exporter.Options, failing *failing) {
				o.Step = func(s exporter.Step) error {
					if s == step {
						return failing.error(full)
					}
					return nil
				}
			})
		})
	}
	t.Run("spool", func(t *testing.T) {
		t.Parallel()
		stateFails(t, func(o *exporter.Options, failing *failing) {
			o.Spool = fullFS{delivery.DiskFS(), func() error { return failing.error(full) }}
		})
	})
	t.Run("read-only", func(t *testing.T) {
		t.Parallel()
		readOnly := fmt.Errorf("write: %w", syscall.EROFS)
		stateFails(t, func(o *exporter.Options, failing *failing) {
			o.Spool = fullFS{delivery.DiskFS(), func() error { return failing.error(readOnly) }}
			o.Step = func(exporter.Step) error { return failing.error(readOnly) }
		})
	})
}

// A state volume that fails where only the sinks' goroutines use it, with
// watermarks and acknowledgements, is shown as soon as one that fails under a
// unit, and said once.
func TestStateVolumeFailsUnderDelivery(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"write", "sync"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, celldsim.V03)
			a := w.host("node-a")
			a.settings.Export.Flush = 5 * time.Second
			c := a.activate("one")
			w.write(c, createItems, insertTwo)
			f := &failing{on: make(chan struct{})}
			a.rig = func(o *exporter.Options) {
				o.Spool = failingFS{delivery.DiskFS(), func(at string) error {
					if at != op {
						return nil
					}
					return f.error(fmt.Errorf("%s: %w", at, syscall.EIO))
				}}
				export := objstore.NewFault(w.store)
				export.Add(objstore.Rule{Op: objstore.OpPut, Times: 1, Key: func(k string) bool { return strings.HasPrefix(k, "export/changes/") }, Wait: func(context.Context, string, string) error {
					close(f.on)
					return nil
				}})
				o.Export = export
			}
			a.run()
			a.status("the first round is over", func(s exporter.Summary) bool { return s.Rounds > 0 })
			s := a.status("its state volume fails", func(s exporter.Summary) bool { return s.DeliveryFailed })
			if !strings.Contains(s.Failure, op) || s.FailedSince.IsZero() {
				t.Errorf("the failure: %q since %v", s.Failure, s.FailedSince)
			}
			if why := a.e.Unready(); !strings.Contains(why, s.Failure) {
				t.Errorf("ready: %q", why)
			}
			time.Sleep(2500 * time.Millisecond) // two more attempts
			rounds := a.e.Status().Rounds
			w.write(c, `INSERT INTO items VALUES('c',3)`)
			e := a.e
			_ = a.dropped()
			if n := e.Status().Rounds - rounds; n > 0 {
				t.Errorf("%d rounds after the failure", n)
			}
			if log := w.log.String(); strings.Count(log, "the state directory fails") != 1 || strings.Count(log, "watermarks cannot be spooled") > 1 {
				t.Errorf("the failure is not said once:\n%s", log)
			}
			if left := a.once(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			w.equal(c)
		})
	}
}

// failingFS is a spool's file system whose files fail, by operation.
type failingFS struct {
	delivery.FS
	fail func(op string) error
}

type failingFile struct {
	delivery.File
	fail func(op string) error
}

func (f failingFS) Create(name string) (delivery.File, error) {
	file, err := f.FS.Create(name)
	return failingFile{file, f.fail}, err
}

func (f failingFS) Open(name string) (delivery.File, error) {
	file, err := f.FS.Open(name)
	return failingFile{file, f.fail}, err
}

func (f failingFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.fail("write"); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, off)
}

func (f failingFile) Sync() error {
	if err := f.fail("sync"); err != nil {
		return err
	}
	return f.File.Sync()
}

// failing is a switch.
type failing struct{ on chan struct{} }

func (f *failing) error(err error) error {
	select {
	case <-f.on:
		return err
	default:
		return nil
	}
}

func stateFails(t *testing.T, rig func(*exporter.Options, *failing)) {
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	f := &failing{on: make(chan struct{})}
	a.rig = func(o *exporter.Options) { rig(o, f) }
	a.run()
	a.sync()
	close(f.on)
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	s := a.status("its state volume fails", func(s exporter.Summary) bool { return s.DeliveryFailed })
	if s.Failure == "" {
		t.Error("the failure is not named")
	}
	w.write(c, `INSERT INTO items VALUES('d',4)`)
	_ = a.dropped()
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	w.equal(c)
}

// A state directory that cannot be written is refused at the start.
func TestReadOnlyStateAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	w.must(os.WriteFile(a.settings.State, []byte("a file"), 0o600))
	_, err := a.open()
	if err == nil || !strings.Contains(err.Error(), a.settings.State) {
		t.Errorf("a state directory that is a file: %v", err)
	}
}

// Two exporters on one state directory: the second names the first.
func TestStateInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	a.run()
	_, err := a.open()
	if !errors.Is(err, state.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("a second exporter: %v", err)
	}
}

// A state directory of a newer program is left alone.
func TestNewerState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems)
	a.once()
	db, err := sql.Open("sqlite", filepath.Join(a.settings.State, "state.db"))
	w.must(err)
	_, err = db.Exec(`UPDATE meta SET value = '99' WHERE key = 'format'`)
	w.must(errors.Join(err, db.Close()))
	if _, err := a.open(); !errors.Is(err, state.ErrNewer) || !strings.Contains(err.Error(), "format 99") {
		t.Errorf("a newer state directory: %v", err)
	}
}

// A state directory is its node's: a slip in the node's name does not make it
// count as lost.
func TestStateOfAnotherNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems)
	a.once()
	a.settings.Node = "node-b"
	if _, err := a.open(); err == nil || !strings.Contains(err.Error(), `of node "node-a"`) || !strings.Contains(err.Error(), "CELLD_NODE") {
		t.Errorf("the directory of another node: %v", err)
	}
	a.settings.Node = "node-a"
	w.write(c, insertTwo)
	a.once()
	if w.equal(c); strings.Contains(w.log.String(), "re-base") {
		t.Error("it counts as lost")
	}
}

// Two nodes of one name, or a copy of a node's state that is started beside
// it: the one that started first sees it and ends.
func TestTwoNodesOfOneName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.run()
	a.sync()
	twin := &host{w: w, node: a.node, settings: new(*a.settings)}
	twin.settings.State = filepath.Join(quickDir(t), "state")
	twin.run()
	defer twin.halt()
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	select {
	case err := <-a.done:
		if err == nil || !strings.Contains(err.Error(), ledger.NodeKey("node-a")) {
			t.Errorf("the first of two exporters of one name ends with: %v", err)
		}
	case <-time.After(patience):
		w.stalled("the first of two exporters of one name goes on")
	}
	w.must(a.e.Close())
	a.e = nil
	twin.sync()
	twin.settled()
	w.same(c)
}

// Stopping in the middle of a round is no failure of the state directory.
func TestStopInMidRound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	a.rig = func(o *exporter.Options) {
		o.Step = func(exporter.Step) error {
			stop()
			return nil
		}
	}
	e, err := a.open()
	w.must(err)
	w.must(e.Run(ctx))
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Error("no round came to a step")
	}
	if s := e.Status(); s.DeliveryFailed {
		t.Errorf("a stop counts as a failure: %s", s.Failure)
	}
	w.must(e.Close())
	a.rig = nil
	a.once()
	w.equal(c)
}
