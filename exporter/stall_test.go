package exporter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celldexport/diffpage/shadow"
	"celldexport/exporter"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/ledger"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
	"celldexport/sinks/delivery"
)

// gauges are the gauges without labels, and those of streams by state, as they
// are gathered.
func gauges(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "celld_export_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			if m.GetGauge() != nil {
				got[name] = m.GetGauge().GetValue()
			}
		}
	}
	return got
}

// What stops all streams is the state of those that have something to do, with
// a reason and an age; /readyz says so after a while, and all of it passes.
func TestWhatStopsAllStreamsIsTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, key string }{
		{"control.json", celld.ControlKey},
		{"node object", ledger.NodeKey("node-a")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, celldsim.V06)
			a := w.host("node-a")
			var ahead atomic.Int64
			registry := prometheus.NewPedanticRegistry()
			a.rig = func(o *exporter.Options) {
				o.Registry = registry
				o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			}
			c := a.activate("one")
			w.write(c, createItems, insertTwo)
			a.run()
			a.sync()
			a.settled()
			w.fault.Add(objstore.Rule{Op: objstore.OpGet, Key: func(k string) bool { return k == tt.key }, Before: errors.New("503 SlowDown")})
			w.write(c, `INSERT INTO items VALUES('c',3)`)
			s := a.status("the stream waits", func(s exporter.Summary) bool { return s.Streams[exporter.StateWaiting] == 1 && s.RoundError != "" })
			if len(s.Trouble) != 1 || !strings.Contains(s.Trouble[0].Status.Reason, "503 SlowDown") || s.RoundErrorSince.IsZero() || s.Oldest[exporter.StateWaiting].IsZero() {
				t.Errorf("the trouble: %+v, round error since %v", s.Trouble, s.RoundErrorSince)
			}
			if why := a.e.Unready(); why != "" {
				t.Errorf("not ready after a moment: %s", why)
			}
			ahead.Store(int64(2 * time.Minute))
			if why := a.e.Unready(); !strings.Contains(why, "503 SlowDown") {
				t.Errorf("ready after two minutes: %q", why)
			}
			got := gauges(t, registry)
			if got["round_error_age_seconds"] < 120 || got["oldest_stream_age_seconds waiting"] < 120 || got["oldest_stream_age_seconds failed"] != 0 || got["delivery_failed"] != 0 {
				t.Errorf("gauges: %v", got)
			}
			w.fault.Clear()
			a.sync()
			a.settled()
			if s, why := a.e.Status(), a.e.Unready(); why != "" || s.RoundError != "" || !s.RoundErrorSince.IsZero() || len(s.Oldest) > 0 {
				t.Errorf("after it is mended: ready %q, %+v", why, s)
			}
			if got := gauges(t, registry); got["round_error_age_seconds"] != 0 || got["oldest_stream_age_seconds waiting"] != 0 || got["streams exported"] != 1 {
				t.Errorf("gauges after it is mended: %v", got)
			}
			if n := strings.Count(w.log.String(), "the round failed"); n != 1 {
				t.Errorf("said %d times", n)
			}
			a.halt()
			w.equal(c)
		})
	}
}

// dripStore gives the bodies of some objects a byte at a time, or not at all.
type dripStore struct {
	objstore.Store
	slow func(key string) bool
	// hangs stops the bytes until its close of back, stuck says that a reader
	// has come to that.
	hangs, stuck atomic.Bool
	back         chan struct{}
	given        atomic.Int64
}

func (d *dripStore) Get(ctx context.Context, key string, o objstore.GetOptions) (io.ReadCloser, objstore.Object, error) {
	body, obj, err := d.Store.Get(ctx, key, o)
	if err != nil || !d.slow(key) {
		return body, obj, err
	}
	return drip{body, d}, obj, nil
}

type drip struct {
	io.ReadCloser
	d *dripStore
}

func (r drip) Read(b []byte) (int, error) {
	if r.d.hangs.Load() {
		r.d.stuck.Store(true)
		<-r.d.back
	}
	select {
	case <-r.d.back:
		return r.ReadCloser.Read(b)
	case <-time.After(20 * time.Millisecond):
	}
	r.d.given.Add(1)
	return r.ReadCloser.Read(b[:min(1, len(b))])
}

// A round that takes long because an object is large or slow is alive as long
// as bytes come in, and is not once they stop.
func TestLongRoundIsAlive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	w.must(c.Exec(`INSERT INTO items VALUES('c',3)`))
	txids, err := c.Capture()
	w.must(err)
	key := celld.LTXKey(c.Scope(), c.Epoch(), 0, txids[0], txids[0])
	d := &dripStore{slow: func(k string) bool { return k == key }, back: make(chan struct{})}
	goOn := sync.OnceFunc(func() { close(d.back) })
	defer goOn()
	a.rig = func(o *exporter.Options) { d.Store, o.Fleet = o.Fleet, d }
	// The object alone has the transaction.
	path := filepath.Join(c.LTXDir(), ltxfile.FileName(txids[0], txids[0]))
	w.must(c.Upload(t.Context()))
	w.must(os.Remove(path))
	w.write(c, `INSERT INTO items VALUES('d',4)`)
	a.run()
	w.until("the object is being read", func() bool { return d.given.Load() > 2 })
	rounds, ticked := a.e.Status().Rounds, a.e.Ticked()
	for range 3 {
		w.until("the round shows that it is alive", func() bool { return a.e.Ticked().After(ticked) })
		ticked = a.e.Ticked()
	}
	if n := a.e.Status().Rounds; n != rounds {
		t.Fatalf("%d rounds went by, the object was to hold up one", n-rounds)
	}
	d.hangs.Store(true)
	w.until("no byte comes any more", d.stuck.Load)
	ticked = a.e.Ticked()
	time.Sleep(300 * time.Millisecond)
	if now := a.e.Ticked(); now.After(ticked) {
		t.Errorf("a round that is stuck counts as alive: it moved at %v, and at %v", ticked, now)
	}
	goOn()
	a.sync()
	a.settled()
	a.halt()
	w.equal(c)
}

// Running out of file descriptors holds up the stream that needs one, with a
// reason, and passes by itself.
func TestOutOfDescriptors(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		for _, what := range []string{"shadow", "spool"} {
			t.Run(fmt.Sprint(what, " ", errno), func(t *testing.T) { outOfDescriptors(t, what, errno) })
		}
	}
}

func outOfDescriptors(t *testing.T, what string, errno syscall.Errno) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.settings.Export.SpoolBytes = 8 << 20 // segments of a megabyte
	var none atomic.Bool
	open := func(path string) error {
		if none.Load() {
			return &os.PathError{Op: "open", Path: path, Err: errno}
		}
		return nil
	}
	a.rig = func(o *exporter.Options) {
		if what == "spool" {
			o.Spool = openFS{delivery.DiskFS(), open}
			return
		}
		o.Shadow = func(path string, f shadow.File) (shadow.File, error) { return f, open(path) }
	}
	other := a.activate("other")
	w.write(other, createItems, insertTwo)
	a.run()
	a.sync()
	a.settled()
	if what == "spool" {
		// It fills the segment: the next entry of all begins another.
		none.Store(true)
		w.write(other, `CREATE TABLE big(x)`)
		for range 3 {
			w.write(other, `INSERT INTO big VALUES(hex(randomblob(250000)))`)
		}
	}
	none.Store(true)
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	s := a.status("a stream waits", func(s exporter.Summary) bool { return s.Streams[exporter.StateWaiting] > 0 })
	if what == "shadow" && (len(s.Trouble) != 1 || s.Trouble[0].Cell != c.Scope()) || !slices.ContainsFunc(s.Trouble, func(st exporter.StreamStatus) bool { return strings.Contains(st.Status.Reason, errno.Error()) }) {
		t.Errorf("trouble: %+v", s.Trouble)
	}
	if what == "shadow" { // the other's is open
		w.write(other, `INSERT INTO items VALUES('c',3)`)
		w.until("the other stream goes on", func() bool { return a.e.Status().Spool.Last > s.Spool.Last })
	}
	time.Sleep(100 * time.Millisecond)
	if s := a.e.Status(); s.DeliveryFailed {
		t.Errorf("it counts as a failure of the state volume: %s", s.Failure)
	}
	none.Store(false)
	a.sync()
	a.settled()
	a.halt()
	w.equal(c, other)
}

// openFS is a spool's file system that may refuse to open files.
type openFS struct {
	delivery.FS
	open func(path string) error
}

func (f openFS) Create(name string) (delivery.File, error) {
	if err := f.open(name); err != nil {
		return nil, err
	}
	return f.FS.Create(name)
}

func (f openFS) Open(name string) (delivery.File, error) {
	if err := f.open(name); err != nil {
		return nil, err
	}
	return f.FS.Open(name)
}
