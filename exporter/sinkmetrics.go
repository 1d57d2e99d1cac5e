package exporter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celldexport/sinks/delivery"
)

// sinkMetrics tell how far each sink is, asked when they are gathered.
type sinkMetrics struct {
	status func() ([]delivery.SinkStatus, error)
	now    func() time.Time

	cursor, entries, bytes, age, records, watermarks, dropped, behind, detached, restarts, running *prometheus.Desc
}

func newSinkMetrics(status func() ([]delivery.SinkStatus, error), now func() time.Time) *sinkMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("celld_export_"+name, help, []string{"sink"}, nil)
	}
	return &sinkMetrics{
		status: status, now: now,
		cursor:     desc("sink_cursor", "Last spool entry that the sink has acknowledged."),
		entries:    desc("sink_backlog_entries", "Spool entries that the sink has not acknowledged."),
		bytes:      desc("sink_backlog_bytes", "Encoded size of records that the sink has not acknowledged."),
		age:        desc("oldest_undelivered_age_seconds", "Age of the oldest spool entry that the sink has not acknowledged, 0 when there is none."),
		records:    desc("delivered_records_total", "Records that the sink has acknowledged, fragments counted one by one."),
		watermarks: desc("delivered_watermarks_total", "Watermarks that the sink has acknowledged."),
		dropped:    desc("dropped_records_total", "Records that the sink's place refused for good."),
		behind:     desc("sink_behind_streams", "Streams that wait to be sent to the sink as a whole."),
		detached:   desc("sink_detached", "1 while the spool goes on without the sink, because it was full and only this sink held it up."),
		restarts:   desc("sink_restarts_total", "How often the sink stopped with an error and was started again."),
		running:    desc("sink_running", "1 while the sink runs, 0 while it waits to be started again."),
	}
}

// Describe is of prometheus.Collector.
func (m *sinkMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.cursor, m.entries, m.bytes, m.age, m.records, m.watermarks, m.dropped, m.behind, m.detached, m.restarts, m.running,
	} {
		ch <- d
	}
}

// Collect is of prometheus.Collector.
func (m *sinkMetrics) Collect(ch chan<- prometheus.Metric) {
	list, err := m.status()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(m.cursor, err)
		return
	}
	for i := range list {
		st := &list[i]
		send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
			ch <- prometheus.MustNewConstMetric(d, kind, v, st.Name)
		}
		age := time.Duration(0)
		if !st.Oldest.IsZero() {
			age = max(0, m.now().Sub(st.Oldest))
		}
		send(m.cursor, prometheus.GaugeValue, float64(st.Cursor))
		send(m.entries, prometheus.GaugeValue, float64(st.BacklogEntries))
		send(m.bytes, prometheus.GaugeValue, float64(st.BacklogBytes))
		send(m.age, prometheus.GaugeValue, age.Seconds())
		send(m.records, prometheus.CounterValue, float64(st.Records))
		send(m.watermarks, prometheus.CounterValue, float64(st.Watermarks))
		send(m.dropped, prometheus.CounterValue, float64(st.Dropped))
		send(m.behind, prometheus.GaugeValue, float64(st.Behind))
		send(m.detached, prometheus.GaugeValue, truth(st.Detached))
		send(m.restarts, prometheus.CounterValue, float64(st.Restarts))
		send(m.running, prometheus.GaugeValue, truth(st.Running))
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
