package exporter_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"celldexport/diffpage/shadow"
	"celldexport/exporter"
	"celldexport/internal/objstore"
	"celldexport/sinks/delivery"
)

// crashPoint is where, and at which passing of it, a process kills itself.
type crashPoint struct {
	Name string
	N    int64
}

// The points beside the exporter's own steps.
const (
	atSpoolWrite     = "in the spool write"
	atSpoolSync      = "before the spool's sync"
	atSpoolRemove    = "before a spool file goes"
	atWatermark      = "watermark spooled"
	atLedgerBefore   = "before the ledger's CAS"
	atLedgerAfter    = "after the ledger's CAS"
	atNodeAfter      = "after the node object's CAS"
	atObjectRead     = "between objects of a restore"
	atDeliverBefore  = "before a sink's PUT"
	atAcknowledgment = "before a sink's acknowledgement"
	atPageTorn       = "in a page of a shadow"
	atPageNext       = "between pages of a shadow"
)

func crashPoints() []string {
	return []string{
		atSpoolWrite, atSpoolSync, atSpoolRemove, atPageTorn, atPageNext, atWatermark, atLedgerBefore, atLedgerAfter, atNodeAfter, atObjectRead,
		atDeliverBefore, atAcknowledgment,
		string(exporter.StepSpooled), string(exporter.StepPages), string(exporter.StepSynced),
		string(exporter.StepDocuments), string(exporter.StepApplied), string(exporter.StepObsolete),
		string(exporter.StepEnter), string(exporter.StepBase), string(exporter.StepSnapshot),
		string(exporter.StepOwners),
	}
}

// crasher kills its process at a point.
type crasher struct {
	at     crashPoint
	passed atomic.Int64
}

func (c *crasher) due(point string) bool {
	return point == c.at.Name && c.passed.Add(1) == c.at.N
}

func (c *crasher) pass(point string) {
	if c.due(point) {
		c.die()
	}
}

func (c *crasher) die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // does not return
	select {}
}

func (c *crasher) step(s exporter.Step) error {
	c.pass(string(s))
	return nil
}

// shadow has the points in the pages of shadows.
func (c *crasher) shadow(_ string, f shadow.File) (shadow.File, error) {
	return crashShadow{f, c}, nil
}

type crashShadow struct {
	shadow.File
	c *crasher
}

func (f crashShadow) WriteAt(b []byte, off int64) (int, error) {
	if f.c.due(atPageTorn) {
		_, _ = f.File.WriteAt(b[:len(b)/2], off)
		f.c.die()
	}
	n, err := f.File.WriteAt(b, off)
	f.c.pass(atPageNext)
	return n, err
}

// crashStore has the points around calls of a bucket.
type crashStore struct {
	objstore.Store
	c *crasher
}

func (s crashStore) Get(ctx context.Context, key string, o objstore.GetOptions) (io.ReadCloser, objstore.Object, error) {
	if strings.HasSuffix(key, ".ltx") && o.Offset == 0 {
		s.c.pass(atObjectRead)
	}
	return s.Store.Get(ctx, key, o)
}

func (s crashStore) Put(ctx context.Context, key string, body io.ReaderAt, size int64, o objstore.PutOptions) (objstore.Object, error) {
	before, after := "", ""
	switch {
	case strings.HasPrefix(key, "exportd/ledger/"):
		before, after = atLedgerBefore, atLedgerAfter
	case strings.HasPrefix(key, "exportd/nodes/"):
		after = atNodeAfter
	case strings.HasPrefix(key, "export/changes/"):
		before, after = atDeliverBefore, atAcknowledgment
	}
	s.c.pass(before)
	obj, err := s.Store.Put(ctx, key, body, size, o)
	s.c.pass(after)
	return obj, err
}

// crashFS has the points in the spool's files.
type crashFS struct {
	delivery.FS
	c *crasher
}

type crashFile struct {
	delivery.File
	c *crasher
}

func (f crashFS) Create(name string) (delivery.File, error) {
	file, err := f.FS.Create(name)
	return crashFile{file, f.c}, err
}

func (f crashFS) Open(name string) (delivery.File, error) {
	file, err := f.FS.Open(name)
	return crashFile{file, f.c}, err
}

func (f crashFS) Remove(name string) error {
	f.c.pass(atSpoolRemove)
	return f.FS.Remove(name)
}

func (f crashFile) WriteAt(b []byte, off int64) (int, error) {
	if f.c.due(atSpoolWrite) {
		_, _ = f.File.WriteAt(b[:len(b)/2], off) // torn
		f.c.die()
	}
	n, err := f.File.WriteAt(b, off)
	if bytes.Contains(b, []byte(`"kind":"watermark"`)) {
		f.c.pass(atWatermark)
	}
	return n, err
}

func (f crashFile) Sync() error {
	f.c.pass(atSpoolSync)
	return f.File.Sync()
}

// meanwhile is what happens to a cell while no exporter runs: nothing, its
// files go, or they are left in the bucket in wider ones alone.
func (v *victim) meanwhile(i int) {
	v.t.Helper()
	c := v.cells[i]
	scope, name := c.Scope(), fmt.Sprint("cell", i)
	switch v.rand.IntN(5) {
	case 0: // gone
		v.must(v.h.node.Evict(v.t.Context(), scope, v.rand.IntN(2) == 0))
	case 1: // only wider
		_, err := c.Capture()
		v.must(err)
		v.must(c.UploadMerged(v.t.Context()))
		_, _, err = c.Compact(v.t.Context(), 256)
		v.must(err)
		v.must(v.h.node.Evict(v.t.Context(), scope, true))
	case 2: // handed off with one image of everything
		v.must(v.h.node.Handoff(v.t.Context(), scope, true))
	case 3: // abandoned
		v.must(v.h.node.AbandonEviction(v.t.Context(), scope))
		return
	default:
		return
	}
	v.cells[i] = v.h.activate(name)
}

// crash runs an exporter that kills itself at a point. It reports whether the
// point was reached in time.
func (v *victim) crash(at crashPoint, within time.Duration) bool {
	v.t.Helper()
	spec := childSpec{Bucket: v.bucket, Puts: v.puts, Crash: at}
	if at.Name == string(exporter.StepOwners) {
		// More cells than shadows may be open, so that some are closed.
		spec.Files = 40
		for len(v.cells) < 12 {
			v.addCell()
		}
	}
	c := v.h.startChildWith(spec)
	ended := make(chan error, 1)
	go func() { ended <- c.wait() }()
	timeout := time.After(within)
	for {
		select {
		case err := <-ended:
			v.must(err)
			return true
		case <-timeout:
			_ = c.cmd.Process.Kill() // it may just have ended
			v.must(<-ended)
			return false
		case <-time.After(5 * time.Millisecond):
			v.step()
		}
	}
}

// The exporter kills itself at every named point, the first time and a later
// time it comes there, and what happens to the cells' files before it is
// started again differs.
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	v := newVictim(t, seed(t, 11))
	reached := make(map[string]bool)
	points := crashPoints()
	for last := range 2 {
		v.rand.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
		for _, point := range points {
			at := crashPoint{point, 1 + v.rand.Int64N(3)}
			switch point {
			case atNodeAfter, string(exporter.StepDocuments), string(exporter.StepApplied), string(exporter.StepObsolete):
				at.N = 1 // few, or one, in a life
			case string(exporter.StepBase):
				at.N = 1
				v.addCell()
			}
			wait := 10 * time.Second
			if reached[point] {
				wait = time.Second
			} else if last > 0 {
				wait = patience
			}
			if v.crash(at, wait) {
				reached[point] = true
			}
			for i := range v.cells {
				v.meanwhile(i)
			}
		}
	}
	v.finish()
	got := v.equal(v.cells...)
	v.whole(got)
	v.identical()
	for _, point := range points {
		if !reached[point] {
			t.Errorf("no exporter died at: %s", point)
		}
	}
}
