package exporter_test

import (
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"celldexport/exporter"
	"celldexport/internal/celldsim"
	"celldexport/ltxtail"
)

// slowRoot holds up the first reading of the watch directory until it is let
// go, and says when it has come.
type slowRoot struct {
	ltxtail.OS
	root    string
	once    sync.Once
	reached chan struct{}
	gate    chan struct{}
}

func (f *slowRoot) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == f.root {
		select {
		case f.reached <- struct{}{}:
		default:
		}
		<-f.gate
	}
	return f.OS.ReadDir(name)
}

func (f *slowRoot) open() { f.once.Do(func() { close(f.gate) }) }

// A first walk that ends while the round before it is being filed is still
// followed by a round at once, not after a whole interval.
func TestRoundFollowsFirstWalk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	root := &slowRoot{root: a.settings.Watch, reached: make(chan struct{}, 1), gate: make(chan struct{})}
	defer root.open()
	a.fs = root
	var armed atomic.Bool
	walked := make(chan bool, 1)
	a.rig = func(o *exporter.Options) {
		o.Interval, o.Shutdown = time.Hour, patience // no second round comes by itself
		o.Now = func() time.Time {
			// While nothing was walked, the clock is read for the account of
			// a round that did not take place.
			if armed.CompareAndSwap(true, false) {
				root.open()
				// The clock's reader must get its answer whatever comes.
				for end := time.Now().Add(patience); exporter.Walks(a.e) == 0 && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
				walked <- exporter.Walks(a.e) > 0
			}
			return time.Now()
		}
	}
	a.run()
	w.until("a round was put off", func() bool { return !a.e.Ticked().IsZero() })
	// The walk reads the clock before it reads the directory: a wait in there
	// would be for itself.
	await(t, "the walk's reading of the directory", root.reached)
	armed.Store(true)
	if !await(t, "a reading of the clock", walked) {
		t.Fatal("the directory was not walked while the clock was read")
	}
	w.until("the first round is over", func() bool { return a.e.Status().Rounds > 0 })
	a.halt()
	w.equal(c)
}
