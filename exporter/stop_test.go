package exporter_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"celldexport/exporter"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
	"celldexport/ltxtail"
	"celldexport/sinks"
)

// said is what the exporters log from a moment on.
func (w *world) said() func() string {
	before := len(w.log.String())
	return func() string { return w.log.String()[before:] }
}

// tells fails unless the log has a line with all of the words.
func (w *world) tells(log string, words ...string) {
	w.t.Helper()
	for line := range strings.Lines(log) {
		found := true
		for _, word := range words {
			found = found && strings.Contains(line, word)
		}
		if found {
			return
		}
	}
	w.t.Errorf("no line of the log has %q:\n%s", words, log)
}

// hang has calls of one kind wait for the end of their context.
func (w *world) hang(op string, key func(string) bool) {
	w.fault.Add(objstore.Rule{Op: op, Key: key, Wait: func(ctx context.Context, _, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}})
}

// capture captures a transaction that the bucket does not get.
func capture(w *world, c *celldsim.Cell, sql string) {
	w.t.Helper()
	w.must(c.Exec(sql))
	_, err := c.Capture()
	w.must(err)
}

// haltWithin stops the exporter and fails when that takes longer.
func (h *host) haltWithin(most time.Duration) {
	h.w.t.Helper()
	begin := time.Now()
	h.halt()
	if took := time.Since(begin); took > most {
		h.w.t.Errorf("the stop took %v, more than %v", took, most)
	}
}

// A stream that is asked about ever more seldom, since the bucket did not
// cover it for long, is asked about when the process stops.
func TestStopProvesWhatIsInBackOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.rig = func(o *exporter.Options) { o.Shutdown = patience }
	c := a.activate("one")
	w.write(c, createItems)
	a.run()
	a.sync()
	capture(w, c, `INSERT INTO items VALUES ('late', 1)`)
	w.until("it is found pending", func() bool { return a.e.Status().Streams[exporter.StatePending] > 0 })
	// Looked at after 1, 2, 4 ... 32 rounds; the next time is after 60 more.
	begun := a.e.Status().Rounds
	w.until("its back-off is the longest", func() bool { return a.e.Status().Rounds > begun+66 })
	w.must(c.Upload(t.Context()))
	said := w.said()
	a.halt()
	w.equal(c)
	if log := said(); strings.Contains(log, "left") {
		t.Errorf("nothing is left, yet: %s", log)
	}
}

// What a stop leaves is logged: how much of it and why, twenty streams by
// name, and never a value of a row.
func TestStopSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	const cells, more = 23, 2
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.run()
	var all []*celldsim.Cell
	for i := range cells {
		c := a.activate(fmt.Sprint("cell", i))
		w.write(c, createItems)
		all = append(all, c)
	}
	a.sync()
	for _, c := range all {
		for i := range more {
			capture(w, c, fmt.Sprintf(`INSERT INTO items VALUES ('a-secret-%d', 1)`, i))
		}
	}
	w.until("all are pending", func() bool { return a.e.Status().Streams[exporter.StatePending] == cells })
	said := w.said()
	a.halt()
	log := said()
	w.tells(log, "streams are left", "streams=23", "units=46", "states.pending=23")
	w.tells(log, "more streams are left", "streams=3")
	w.tells(log, "stream is left", "epoch=1", "units=2", "state=pending", "txid 3 is not covered by the bucket yet")
	named := 0
	for _, c := range all {
		named += strings.Count(log, c.Scope()+" ")
	}
	if named != 20 {
		t.Errorf("%d streams are named, want 20", named)
	}
	if strings.Contains(log, "a-secret") {
		t.Error("the log has a row's value")
	}
	for _, c := range all {
		w.must(c.Upload(t.Context()))
	}
	a.run()
	a.sync()
	a.halt()
	w.equal(all...)
}

// A bucket that does not answer holds a stop up no longer than its time, and
// the log says what is left and why.
func TestStopWithASilentBucket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.rig = func(o *exporter.Options) { o.Interval, o.Shutdown = time.Hour, 5*time.Second }
	c := a.activate("one")
	w.write(c, createItems)
	a.run()
	w.until("the first round is over", func() bool { return a.e.Status().Rounds > 0 })
	w.write(c, insertTwo)
	w.hang("", nil)
	said := w.said()
	a.haltWithin(20 * time.Second)
	w.tells(said(), "the last round could not do all of its work", "read control plane record", "deadline exceeded")
	w.tells(said(), "stream is left", c.Scope(), "units=1")
	w.fault.Clear()
	a.rig = nil
	a.run()
	a.sync()
	a.halt()
	w.equal(c)
}

// A few cells that do not answer take no more than their share of a stop: the
// others are proven, delivered and certified.
func TestStopPassesSilentCells(t *testing.T) {
	t.Parallel()
	const cells, silent = 90, 10
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.rig = func(o *exporter.Options) { o.Interval, o.Shutdown = time.Hour, patience }
	a.run()
	w.until("the first round is over", func() bool { return a.e.Status().Rounds > 0 })
	var all []*celldsim.Cell
	quiet := make(map[string]bool)
	for i := range cells {
		c := a.activate(fmt.Sprint("cell", i))
		w.write(c, createItems, insertTwo)
		all = append(all, c)
		quiet[celld.OwnKey(c.Scope())] = i < silent
	}
	w.hang(objstore.OpGet, func(key string) bool { return quiet[key] })
	said := w.said()
	a.haltWithin(patience)
	w.equal(all[silent:]...)
	w.tells(said(), "streams are left", fmt.Sprintf("streams=%d", silent))
	w.tells(said(), "stream is left", all[0].Scope(), "no time left for it", "read ownership record")
	w.fault.Clear()
	a.rig = nil
	a.run()
	a.sync()
	a.halt()
	w.equal(all...)
}

// A backlog that takes several rounds, and a cell that left meanwhile, are
// finished by the stop.
func TestStopFinishesABacklog(t *testing.T) {
	t.Parallel()
	const units = 300
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.rig = func(o *exporter.Options) { o.Interval, o.Shutdown = time.Hour, patience }
	c, gone := a.activate("one"), a.activate("gone")
	w.write(c, createItems)
	w.write(gone, createItems)
	a.run()
	w.until("the first round is over", func() bool { return a.e.Status().Rounds > 0 })
	for i := range units {
		capture(w, c, fmt.Sprintf(`INSERT INTO items VALUES ('k%d', %d)`, i, i))
	}
	w.must(c.Upload(t.Context()))
	w.write(gone, insertTwo)
	w.must(a.node.Evict(t.Context(), gone.Scope(), true))
	e := a.e
	a.halt()
	got := w.equal(c)
	if s := story(got, gone.Scope(), 1); !strings.HasSuffix(s, "3 rows items/1 II") {
		t.Errorf("of the cell that left there is: %s", s)
	}
	if n := e.Status().Streams[exporter.StateEnded]; n != 1 {
		t.Errorf("%d streams are closed, want that of the cell that left", n)
	}
}

// silentFS is a node's directory that stops to answer.
type silentFS struct {
	ltxtail.OS
	mu   sync.Mutex
	back chan struct{}
	// asked is how many calls wait, opens whether one of them opens a file.
	asked int
	opens bool
}

// silence has every call wait until the function returned is called.
func (f *silentFS) silence() (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.back, f.asked, f.opens = make(chan struct{}), 0, false
	back := f.back
	return sync.OnceFunc(func() {
		f.mu.Lock()
		f.back = nil
		f.mu.Unlock()
		close(back)
	})
}

func (f *silentFS) wait() {
	f.mu.Lock()
	back := f.back
	f.asked++
	f.mu.Unlock()
	if back != nil {
		<-back
	}
}

func (f *silentFS) waiting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked > 0
}

func (f *silentFS) opening() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opens
}

func (f *silentFS) Open(name string) (ltxtail.ReadFile, error) {
	f.mu.Lock()
	f.opens = true
	f.mu.Unlock()
	f.wait()
	return f.OS.Open(name)
}

func (f *silentFS) Stat(name string) (fs.FileInfo, error) { f.wait(); return f.OS.Stat(name) }
func (f *silentFS) ReadDir(name string) ([]fs.DirEntry, error) {
	f.wait()
	return f.OS.ReadDir(name)
}

// A directory that does not answer the last walk is given up; what is spooled
// goes out, and the rest at the next start.
func TestStopWithASilentDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a, other, dir := w.host("node-a"), newOther(t, "other"), new(silentFS)
	a.fs = dir
	a.rig = func(o *exporter.Options) {
		o.Interval, o.Shutdown, o.More = time.Hour, 4*time.Second, []sinks.Sink{other}
	}
	c := a.activate("one")
	w.write(c, createItems)
	a.run()
	w.until("the first round is over", func() bool { return a.e.Status().Rounds > 0 })
	end := dir.silence()
	defer end()
	w.write(c, insertTwo)
	said, e := w.said(), a.e
	a.haltWithin(15 * time.Second)
	w.tells(said(), "the watch directory does not answer", "goes out at the next start")
	stuck := e.Stuck() // when an event told of the file, and a round hangs in opening it
	end()
	if stuck {
		w.must(e.Unstick())
	}
	a.rig = func(o *exporter.Options) { o.More = []sinks.Sink{other} }
	a.run()
	a.sync()
	a.settled()
	a.halt()
	w.equal(c)
	other.equal(w, c)
}

// A walk that hangs holds up no round. A file that does not open holds up the
// round, but since before the stop it does not keep the sinks from what is
// spooled; the process ends, and the next start takes up what it left.
func TestStopWhileTheDirectoryIsSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a, other, dir := w.host("node-a"), newOther(t, "other"), new(silentFS)
	a.fs = dir
	a.rig = func(o *exporter.Options) { o.Shutdown, o.More = 15*time.Second, []sinks.Sink{other} }
	c := a.activate("one")
	busy := a.activate("busy")
	w.write(c, createItems)
	w.write(busy, createItems)
	a.run()
	a.sync()
	a.settled()
	up := other.down()
	w.write(c, insertTwo)
	a.sync()
	end := dir.silence()
	defer end()
	late := a.activate("late")
	w.write(late, createItems, insertTwo)
	w.until("a walk hangs", dir.waiting)
	rounds := a.e.Status().Rounds
	w.until("rounds go on", func() bool { return a.e.Status().Rounds > rounds+2 })
	w.write(busy, insertTwo)
	w.until("a file does not open", dir.opening)
	rounds = a.e.Status().Rounds
	time.Sleep(100 * time.Millisecond) // several rounds' time: they hang too
	if n := a.e.Status().Rounds; n > rounds+1 {
		t.Fatalf("rounds go on, %d since a file does not open", n-rounds)
	}
	said, e := w.said(), a.e
	go func() {
		for t.Context().Err() == nil && !strings.Contains(said(), "a disk does not answer") {
			time.Sleep(10 * time.Millisecond)
		}
		up()
	}()
	a.haltWithin(30 * time.Second)
	w.tells(said(), "a disk does not answer", "goes out at the next start")
	other.equal(w, c)
	end()
	w.must(e.Unstick())
	a.run()
	a.sync()
	a.settled()
	a.halt()
	w.equal(c, busy, late)
	other.equal(w, c, busy, late)
}
