package exporter_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/exporter"
	"celldexport/internal/celldsim"
	"celldexport/internal/config"
	"celldexport/internal/objstore"
	"celldexport/sinks/delivery"
)

// sinkNamed is how one sink fares.
func (h *host) sinkNamed(name string) delivery.SinkStatus {
	h.w.t.Helper()
	for _, s := range h.e.Status().Sinks {
		if s.Name == name {
			return s
		}
	}
	h.w.t.Fatalf("there is no sink %s", name)
	return delivery.SinkStatus{}
}

// brokersBeside has a node export to the bucket and to a place.
func brokersBeside(t *testing.T, p *place) (*world, *host) {
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.settings.Export.SpoolBytes = 3 << 20
	a.settings.Export.QueueBytes = 1 << 20
	a.settings.Export.Retry = 2 * time.Second
	a.settings.Export.Sinks = []string{config.SinkBucket, p.sink}
	p.use(a.settings)
	a.rig = func(o *exporter.Options) { o.Shutdown = 5 * time.Second }
	return w, a
}

const (
	createBlobs = `CREATE TABLE t(k INTEGER PRIMARY KEY, v BLOB)`
	replaceBlob = `REPLACE INTO t VALUES(abs(random()) % 50, randomblob(60000))`
)

// Brokers beside the bucket go away until the spool is full and the bucket has
// all of it: their sink is detached and everything else goes on. When they are
// back the stream that the sink missed comes whole, in that sink only, the
// other goes on as it was, and both sinks' certificates are true.
func TestBrokersAreDetachedAndComeBack(t *testing.T) {
	t.Parallel()
	for name, open := range places() {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", name, restart), func(t *testing.T) {
				t.Parallel()
				p := open(t)
				w, a := brokersBeside(t, p)
				busy, quiet := a.activate("busy"), a.activate("quiet")
				w.write(busy, createBlobs)
				w.write(quiet, createItems, insertTwo)
				a.run()
				a.sync()
				a.settled()
				p.down()
				most := int64(0)
				write := func(n int) {
					for range n {
						w.write(busy, replaceBlob)
					}
					a.sync()
					most = max(most, a.e.Status().Spool.Bytes)
				}
				for i := 0; !a.sinkNamed(name).Detached; i++ {
					if i > 60 {
						t.Fatalf("the sink is not detached: %+v", a.e.Status())
					}
					write(10)
				}
				write(40) // the spool goes round without the sink
				if restart {
					a.halt()
					a.run()
					a.sync()
					if !a.sinkNamed(name).Detached {
						t.Fatal("a restart attaches a sink that has not what it was handed")
					}
					write(10)
				}
				w.until("the bucket has everything", func() bool { return a.sinkNamed(config.SinkBucket).BacklogEntries == 0 })
				if limit := a.settings.Export.SpoolBytes + 3<<20; most > limit {
					t.Errorf("the spool took %d bytes, more than %d", most, limit)
				}
				p.up()
				write(5)
				a.settled()
				w.write(quiet, `INSERT INTO items VALUES('c',3)`)
				write(3)
				a.settled()
				if st := a.sinkNamed(name); st.Dropped != 0 {
					t.Errorf("%d records are dropped", st.Dropped)
				}
				a.halt()
				sound(w, config.SinkBucket, w.consumer(), busy, quiet)
				if n := wholes(w.consumer()); len(n) != 0 {
					t.Errorf("a re-base of one sink went to the bucket: %v", n)
				}
				if n := wholes(p.equal(w, busy, quiet)); n[busy.Scope()] == 0 || n[quiet.Scope()] != 0 {
					t.Errorf("whole streams by cell %v, want some of %s alone", n, busy.Scope())
				}
			})
		}
	}
}

// A sink of brokers is added to a node that exports already, taken away, and
// added once more. First it gets every open stream whole, its watermarks from
// null and no link; then it is not waited for; then it gets whole what went
// on without it, and its chains go on from their own last watermarks.
func TestBrokersAreAddedAndRemoved(t *testing.T) {
	t.Parallel()
	for name, open := range places() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t)
			w, a := brokersBeside(t, p)
			a.settings.Export.SpoolBytes = 32 << 20 // nothing is to fill it
			both := a.settings.Export.Sinks
			var cells []*celldsim.Cell
			for i := range 6 {
				c := a.activate(fmt.Sprint("cell ", i))
				w.write(c, createItems, insertTwo, fmt.Sprintf(`INSERT INTO items VALUES('n%d',%d)`, i, i))
				cells = append(cells, c)
			}
			lives := func(sinks []string, statements ...string) {
				a.settings.Export.Sinks = sinks
				a.run()
				for _, c := range cells {
					w.write(c, statements...)
				}
				a.sync()
				a.settled()
				a.halt()
			}
			alone := []string{config.SinkBucket}
			lives(alone, `UPDATE items SET qty = qty + 1`)
			lives(both, `UPDATE items SET qty = qty + 10`)
			first := p.equal(w, cells...)
			for _, r := range first.Records {
				if l, ok := r.Body.(*envelope.Link); ok {
					t.Errorf("the new sink got a link of an epoch that was under way: %+v", l)
				}
			}
			if n := wholes(first); len(n) != len(cells) {
				t.Errorf("whole streams by cell %v, want each of %d", n, len(cells))
			}
			// A short absence leaves what it missed in the spool.
			lives(alone, `INSERT INTO items VALUES('alone',1)`, `DELETE FROM items WHERE sku = 'alone'`)
			lives(both, `UPDATE items SET qty = qty + 20`)
			if n := wholes(p.equal(w, cells...)); len(n) != len(cells) {
				t.Errorf("whole streams by cell %v after a short absence, want no other", n)
			}
			large := fmt.Sprintf(`INSERT INTO items VALUES(hex(randomblob(%d)),1)`, 100_000)
			lives(alone, large, large, large)
			if used := spoolFiles(t, a.settings.State); used > 5<<20 {
				t.Errorf("the spool keeps %d bytes for a sink that has everything it was handed", used)
			}
			lives(both, `UPDATE items SET qty = qty + 100`)
			last := p.equal(w, cells...)
			for cell, n := range wholes(last) {
				if n != 2 {
					t.Errorf("cell %s came whole %d times, want twice", cell, n)
				}
			}
			sound(w, config.SinkBucket, w.consumer(), cells...)
			if n := wholes(w.consumer()); len(n) != 0 {
				t.Errorf("a re-base of one sink went to the bucket: %v", n)
			}
		})
	}
}

// Brokers store what they get and their answers are lost; then their sink is
// taken out of the settings, and later named again. What it was handed was
// kept for it, so what was stored unheard is counted: the epoch that was under
// way is certified to its head, and the state tells meanwhile what is kept.
func TestRemovedBrokersResolveWhatTheyWereHanded(t *testing.T) {
	t.Parallel()
	for name, open := range places() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t)
			w, a := brokersBeside(t, p)
			a.settings.Export.SpoolBytes = 32 << 20
			both := a.settings.Export.Sinks
			c, quiet := a.activate("one"), a.activate("quiet")
			w.write(c, createItems, insertTwo)
			w.write(quiet, createItems, insertTwo)
			a.run()
			a.sync()
			a.settled()
			stored := p.stored()
			p.mute()
			w.write(c, `INSERT INTO items VALUES('unheard',1)`, `UPDATE items SET qty = qty + 1`)
			a.sync()
			w.until("the brokers have stored what nobody hears of", func() bool { return p.stored() > stored })
			p.down()
			a.halt()
			large := fmt.Sprintf(`INSERT INTO items VALUES(hex(randomblob(%d)),1)`, 100_000)
			a.settings.Export.Sinks = []string{config.SinkBucket}
			for range 2 {
				a.run()
				w.write(c, large, large, large, large, large, large, large, large)
				a.sync()
				a.settled()
				if kept := a.e.Status().Removed; len(kept) != 1 || kept[0].Name != name || kept[0].Entries == 0 {
					t.Errorf("kept for removed sinks: %+v", kept)
				}
				a.halt()
			}
			p.up()
			a.settings.Export.Sinks = both
			a.run()
			w.write(c, `DELETE FROM items WHERE sku = 'unheard'`)
			a.sync()
			a.settled()
			if kept := a.e.Status().Removed; len(kept) != 0 {
				t.Errorf("kept for sinks that are back: %+v", kept)
			}
			w.write(quiet, `INSERT INTO items VALUES('c',3)`)
			a.sync()
			a.settled()
			a.halt()
			sound(w, config.SinkBucket, w.consumer(), c, quiet)
			p.equal(w, c, quiet)
		})
	}
}

// spoolFiles is what the spool takes on disk.
func spoolFiles(t *testing.T, state string) (bytes int64) {
	t.Helper()
	entries, err := os.ReadDir(state + "/spool")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
	}
	return bytes
}

// The only sink has no brokers while many times the spool is written: reading
// stops at the bound, disk and memory stay, and when they are back everything
// goes out, with no gap, nothing dropped and certificates to the heads.
func TestOutageOfTheOnlySink(t *testing.T) {
	for name, open := range places() {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			files, err := objstore.NewFile(quickDir(t))
			if err != nil {
				t.Fatal(err)
			}
			w := newWorldOn(t, files, celldsim.V06)
			a := w.host("node-a")
			a.settings.Export.SpoolBytes, a.settings.Export.QueueBytes = 3<<20, 1<<20
			a.settings.Export.Retry = time.Second
			a.settings.Export.Sinks = []string{p.sink}
			p.use(a.settings)
			busy, quiet := a.activate("busy"), a.activate("quiet")
			w.write(busy, createBlobs)
			w.write(quiet, createItems, insertTwo)
			a.run()
			a.sync()
			a.settled()
			p.down()
			full := func() bool { return a.e.Status().Streams[exporter.StateFull] > 0 }
			for i := 0; !full(); i++ {
				if i > 300 {
					t.Fatalf("reading does not stop: %+v", a.e.Status())
				}
				spooled := a.e.Status().Spool.Last
				w.write(busy, replaceBlob)
				w.until("it is spooled, or the spool is full", func() bool { return a.e.Status().Spool.Last > spooled || full() })
			}
			before, most := heap(), int64(0)
			for range 6 { // 72 units of 60 KB each are a spool and more
				for range 12 {
					w.write(busy, replaceBlob)
				}
				w.write(quiet, `UPDATE items SET qty = qty + 1`)
				rounds := a.e.Status().Rounds
				w.until("some rounds are over", func() bool { return a.e.Status().Rounds > rounds+3 })
				most = max(most, a.e.Status().Spool.Bytes, spoolFiles(t, a.settings.State))
			}
			if limit := a.settings.Export.SpoolBytes + 2<<20; most > limit {
				t.Errorf("the spool took %d bytes, more than %d", most, limit)
			}
			if grown := heap() - before; grown > 4<<20 {
				t.Errorf("the heap grew by %d bytes while nothing could be delivered", grown)
			}
			w.until("the sink says what is the matter", func() bool { return a.sinkNamed(name).LastError != "" })
			if st := a.sinkNamed(name); !full() || st.Detached || st.Dropped != 0 {
				t.Errorf("reading went on, or something is given up: %+v", st)
			}
			p.up()
			a.sync()
			a.settled()
			if st := a.sinkNamed(name); st.Dropped != 0 {
				t.Errorf("%d records are dropped", st.Dropped)
			}
			a.halt()
			if n := wholes(p.equal(w, busy, quiet)); len(n) != 0 {
				t.Errorf("streams came whole, with one sink nothing is skipped: %v", n)
			}
		})
	}
}

// heap is what is live in memory.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
