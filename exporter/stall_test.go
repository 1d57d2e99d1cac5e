package exporter_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celldexport/exporter"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
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
	for _, tt := range []struct{ name, key string }{
		{"control.json", celld.ControlKey},
		{"node object", ledger.NodeKey("node-a")},
	} {
		t.Run(tt.name, func(t *testing.T) {
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
