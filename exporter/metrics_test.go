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
	t.Parallel()
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

// What the blob-stream sink did is told when it is one of the sinks: counters
// that have moved, and retries only after something went wrong.
func TestBlobStreamMetrics(t *testing.T) {
	t.Parallel()
	p := blobStreamPlace(t)
	w, a := brokersBeside(t, p)
	registry := prometheus.NewPedanticRegistry()
	a.rig = func(o *exporter.Options) { o.Registry = registry }
	value := func(name string) float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if m := f.GetMetric(); f.GetName() == "celld_export_blob_stream_"+name && len(m) == 1 && len(m[0].GetLabel()) == 0 {
				return m[0].GetCounter().GetValue() + m[0].GetGauge().GetValue()
			}
		}
		t.Fatalf("there is no metric %s without labels", name)
		return 0
	}
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.run()
	a.sync()
	a.settled()
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	if n := value("records_total"); n < 5 || value("bytes_total") < 100*n || value("batches_total") < 1 || value("requests_total") < 1 || value("brokers") != 2 {
		t.Errorf("records %v, bytes %v, batches %v, requests %v, brokers %v", n, value("bytes_total"), value("batches_total"), value("requests_total"), value("brokers"))
	}
	if n := value("retries_total") + value("undelivered_records_total") + value("refused_records_total"); n != 0 {
		t.Errorf("%v things went wrong that did not", n)
	}
	p.down()
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	w.until("records are undelivered", func() bool { return value("undelivered_records_total") > 0 && value("retries_total") > 0 })
	p.up()
	a.settled()
	a.halt()
	p.equal(w, c)
}
