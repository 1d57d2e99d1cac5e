package exporter_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
	"celldexport/sinks"
	"celldexport/sinks/bucket"
)

// otherSink is a second sink of another name and place.
type otherSink struct {
	*bucket.Sink
	name  string
	store *objstore.Fault
}

func (o *otherSink) Name() string { return o.name }

func newOther(t *testing.T, name string) *otherSink {
	t.Helper()
	return otherOver(t, name, objstore.NewFault(objstore.NewMemory()))
}

// otherOver is one that finds in its place what an earlier one stored.
func otherOver(t *testing.T, name string, store *objstore.Fault) *otherSink {
	t.Helper()
	o := &otherSink{name: name, store: store}
	var err error
	o.Sink, err = bucket.New(bucket.Config{
		Store: o.store, Node: "node-a", FlushInterval: 30 * time.Millisecond, FlushBytes: 64 << 10, QueueBytes: 1 << 20,
		RetryMin: 10 * time.Millisecond, RetryMax: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// down makes its place refuse everything until the function returned is called.
func (o *otherSink) down() (up func()) {
	return o.store.Add(objstore.Rule{Op: objstore.OpPut, Before: errors.New("503: no room at the inn")})
}

// equal holds what the sink stored against the cells.
func (o *otherSink) equal(w *world, cells ...*celldsim.Cell) *consumer.Consumer {
	w.t.Helper()
	c, err := consumer.Load(w.t.Context(), o.store)
	w.must(err)
	for _, cell := range cells {
		diffs, err := c.Compare(w.t.Context(), consumer.SourceOf(cell))
		w.must(err)
		for _, d := range append(diffs, c.Certified(consumer.SourceOf(cell))...) {
			w.t.Errorf("sink %s: %s", o.name, d)
		}
	}
	for _, d := range c.Phantoms(w.survived) {
		w.t.Errorf("sink %s: %s", o.name, d)
	}
	if gaps, err := c.State.Gaps(); err != nil || len(gaps) > 0 {
		w.t.Errorf("sink %s: gaps %+v, %v", o.name, gaps, err)
	}
	return c
}

// settled waits until every sink has everything and no stream is behind.
func (h *host) settled() {
	h.w.t.Helper()
	h.w.until("every sink has everything", func() bool {
		for _, s := range h.e.Status().Sinks {
			if s.Detached || s.Behind > 0 || s.BacklogEntries > 0 {
				return false
			}
		}
		return true
	})
}

// A sink whose place is down while the spool is full is detached: the others
// go on, disk stays bounded, and when it is back it gets what it was handed
// and then each stream that it missed as a whole. Nothing is lost and the
// certificates of all sinks are true.
func TestSinkIsDetachedAndComesBack(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, celldsim.V06)
			a := w.host("node-a")
			a.settings.Export.SpoolBytes = 3 << 20
			other := newOther(t, "other")
			// A stop in between gives the sink that is down no long time.
			a.rig = func(o *exporter.Options) { o.More, o.Shutdown = []sinks.Sink{other}, 5*time.Second }
			busy, quiet := a.activate("busy"), a.activate("quiet")
			w.write(busy, `CREATE TABLE t(k INTEGER PRIMARY KEY, v BLOB)`, `CREATE TABLE brief(x)`, `CREATE TABLE old(x)`)
			w.write(quiet, createItems, insertTwo)
			a.run()
			a.sync()
			a.settled()
			up := other.down()
			detached := func() bool { return a.e.Status().Sinks[1].Detached }
			most := int64(0)
			write := func(n int) {
				for range n {
					w.write(busy, `REPLACE INTO t VALUES(abs(random()) % 50, randomblob(60000))`)
				}
				a.sync()
				most = max(most, a.e.Status().Spool.Bytes)
			}
			for i := 0; !detached(); i++ {
				if i > 60 {
					t.Fatalf("the sink is not detached: %+v", a.e.Status())
				}
				write(10)
			}
			w.write(busy, `DROP TABLE brief`, `ALTER TABLE old RENAME TO new`)
			write(40) // the spool goes round without the sink
			if restart {
				a.halt()
				a.run()
				a.sync()
				if !detached() {
					t.Fatal("a restart attaches a sink that has not what it was handed")
				}
			}
			write(10)
			w.until("the first sink has everything", func() bool { return a.e.Status().Sinks[0].BacklogEntries == 0 })
			if limit := a.settings.Export.SpoolBytes + 3<<20; most > limit {
				t.Errorf("the spool took %d bytes, more than %d", most, limit)
			}
			up()
			write(5)
			a.settled()
			w.write(quiet, `INSERT INTO items VALUES('c',3)`)
			write(3)
			a.settled()
			a.halt()
			w.equal(busy, quiet)
			c := other.equal(w, busy, quiet)
			bases := 0
			for _, r := range c.Records {
				if end, ok := r.Body.(*envelope.SnapshotEnd); ok && end.Scope == envelope.ScopeStream {
					if bases++; r.Stream.Cell != busy.Scope() {
						t.Errorf("a stream that missed nothing is re-based: %s", r.Stream)
					}
				}
			}
			if bases == 0 {
				t.Error("the stream that missed something was not re-based")
			}
			for _, r := range w.consumer().Records {
				if _, ok := r.Body.(*envelope.SnapshotEnd); ok && r.Body.(*envelope.SnapshotEnd).Scope == envelope.ScopeStream {
					t.Error("a re-base of one sink went to another")
				}
			}
		})
	}
}

// A sink that is added later gets every open stream as a whole, without a
// link, and goes on from there; a cell that sleeps comes with its next wake.
func TestSinkIsAddedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	var cells []*celldsim.Cell
	for i := range 12 {
		c := a.activate(fmt.Sprint("cell ", i))
		w.write(c, createItems, insertTwo, fmt.Sprintf(`INSERT INTO items VALUES('n%d',%d)`, i, i))
		cells = append(cells, c)
	}
	asleep := a.activate("asleep")
	w.write(asleep, createItems, insertTwo)
	a.run()
	a.sync()
	w.must(a.node.Evict(t.Context(), asleep.Scope(), true))
	a.sync()
	a.halt()
	other := newOther(t, "other")
	a.rig = func(o *exporter.Options) { o.More = []sinks.Sink{other} }
	a.run()
	w.until("the new sink has every open stream", func() bool {
		s := a.e.Status().Sinks[1]
		return s.Behind == 1 && s.BacklogEntries == 0
	})
	for _, c := range cells {
		w.write(c, `UPDATE items SET qty = qty + 1`)
	}
	asleep = a.activate("asleep")
	w.write(asleep, `DELETE FROM items WHERE sku = 'a'`)
	a.sync()
	a.settled()
	a.halt()
	all := append(cells, asleep)
	w.equal(all...)
	c := other.equal(w, all...)
	for _, r := range c.Records {
		if l, ok := r.Body.(*envelope.Link); ok {
			t.Errorf("the new sink got a link: %+v", l)
		}
		if m, ok := r.Body.(*envelope.Watermark); ok && m.From == nil && m.Records == 0 {
			t.Errorf("a watermark over nothing: %+v", m)
		}
	}
}

// With --once a sink that was added has everything before the process ends.
func TestOnceFillsANewSink(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	other := newOther(t, "other")
	a.rig = func(o *exporter.Options) { o.More = []sinks.Sink{other} }
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	other.equal(w, c)
}
