package exporter_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"celldexport/exporter"
	"celldexport/internal/celldsim"
)

// Names and units are as Prometheus asks, sinks are told apart, and no cell is
// named: there may be any number of them.
func TestMetrics(t *testing.T) {
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	registry := prometheus.NewPedanticRegistry()
	a.rig = func(o *exporter.Options) { o.Registry = registry }
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.run()
	a.sync()
	a.settled()
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{
		"celld_export_dropped_records_total": false, "celld_export_gaps_total": false, "celld_export_queue_bytes": false,
		"celld_export_sink_cursor": false, "celld_export_sink_backlog_bytes": false, "celld_export_oldest_undelivered_age_seconds": false,
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "celld_export_") {
			t.Errorf("metric %s", f.GetName())
		}
		if _, ok := want[f.GetName()]; ok {
			want[f.GetName()] = true
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if strings.Contains(l.GetValue(), c.Scope()) || strings.Contains(l.GetValue(), "Cart") {
					t.Errorf("metric %s names a cell: %v", f.GetName(), l)
				}
			}
		}
	}
	for name, found := range want {
		if !found {
			t.Errorf("no metric %s", name)
		}
	}
	a.halt()
}
