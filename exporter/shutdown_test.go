package exporter_test

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"celldexport/exporter"
	"celldexport/internal/celldsim"
	"celldexport/sinks"
)

// A stop takes the directory up once more, proves, delivers and certifies it:
// what was written just before is there and nothing is left for later.
func TestStopDeliversWhatIsOnDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	// No round comes by itself, and the last one has all the time it takes.
	a.rig = func(o *exporter.Options) { o.Interval, o.Shutdown = time.Hour, patience }
	c := a.activate("one")
	a.run()
	w.until("the first round is over", func() bool { return a.e.Status().Rounds > 0 })
	w.write(c, createItems, insertTwo)
	a.halt()
	w.equal(c)
}

// A place that is gone when the process stops holds it up no longer than the
// deadline; what it lacks is said, and goes out at the next start, once.
func TestStopWithoutAPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	other := newOther(t, "other")
	var said bytes.Buffer
	a.rig = func(o *exporter.Options) {
		o.More, o.Shutdown = []sinks.Sink{other}, 5*time.Second
		o.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(&said, io.Discard), nil))
	}
	c := a.activate("one")
	w.write(c, createItems)
	a.run()
	a.sync()
	a.settled()
	up := other.down()
	w.write(c, insertTwo)
	a.sync()
	begin := time.Now()
	a.halt()
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if text := said.String(); !strings.Contains(text, "goes out at the next start") || !strings.Contains(text, "sink other has acknowledged") {
		t.Errorf("the log does not say what is left:\n%s", text)
	}
	w.equal(c)
	up()
	a.run()
	a.settled()
	a.halt()
	other.equal(w, c)
}
