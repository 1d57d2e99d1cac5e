package exporter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stallMetrics tell for how long something does not go on. They are worked out
// when they are gathered: they grow also while no round comes round.
type stallMetrics struct {
	ages func() ages
	now  func() time.Time

	failed, round, ticked, streams *prometheus.Desc
}

func newStallMetrics(of func() ages, now func() time.Time) *stallMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("celld_export_"+name, help, labels, nil)
	}
	return &stallMetrics{
		ages: of, now: now,
		failed:  desc("delivery_failed", "1 since the state directory failed and export stopped."),
		round:   desc("round_error_age_seconds", "Age of the first of the rounds in a row that failed, so that no stream goes on; 0 when the last one went through."),
		ticked:  desc("round_age_seconds", "Time since the last round, whatever came of it."),
		streams: desc("oldest_stream_age_seconds", "How long the longest of the streams that do not go on is in its state, 0 when there is none.", "state"),
	}
}

// Describe is of prometheus.Collector.
func (m *stallMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.failed, m.round, m.ticked, m.streams} {
		ch <- d
	}
}

// Collect is of prometheus.Collector.
func (m *stallMetrics) Collect(ch chan<- prometheus.Metric) {
	a, now := m.ages(), m.now()
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	age := func(since time.Time) float64 {
		if since.IsZero() {
			return 0
		}
		return max(0, now.Sub(since)).Seconds()
	}
	send(m.failed, truth(!a.failed.IsZero()))
	send(m.round, age(a.round))
	send(m.ticked, age(a.ticked))
	for _, st := range []State{StatePending, StateWaiting, StateFull, StateFailed} {
		send(m.streams, age(a.streams[st]), string(st))
	}
}
