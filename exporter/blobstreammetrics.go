package exporter

import (
	"github.com/prometheus/client_golang/prometheus"

	"celldexport/sinks/blobstream"
)

// blobStreamMetrics are what the blob-stream sink did since the start, asked
// when they are gathered.
type blobStreamMetrics struct {
	stats func() blobstream.Stats

	records, bytes, batches, requests, retries, undelivered, refused, brokers *prometheus.Desc
}

func newBlobStreamMetrics(stats func() blobstream.Stats) *blobStreamMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("celld_export_blob_stream_"+name, help, nil, nil)
	}
	return &blobStreamMetrics{
		stats:       stats,
		records:     desc("records_total", "Records that brokers have stored."),
		bytes:       desc("bytes_total", "Bytes of the records that brokers have stored."),
		batches:     desc("batches_total", "Batches that brokers have stored, each of one partition."),
		requests:    desc("requests_total", "Produce requests sent, answered or not."),
		retries:     desc("retries_total", "Batches sent again."),
		undelivered: desc("undelivered_records_total", "Records whose retry_ms ran out, once for each time; they are sent on."),
		refused:     desc("refused_records_total", "Records too large for any request, each told by a gap."),
		brokers:     desc("brokers", "Brokers that the sink knows of."),
	}
}

// Describe is of prometheus.Collector.
func (m *blobStreamMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.records, m.bytes, m.batches, m.requests, m.retries, m.undelivered, m.refused, m.brokers} {
		ch <- d
	}
}

// Collect is of prometheus.Collector.
func (m *blobStreamMetrics) Collect(ch chan<- prometheus.Metric) {
	st := m.stats()
	count := func(d *prometheus.Desc, n int64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n))
	}
	count(m.records, st.Records)
	count(m.bytes, st.Bytes)
	count(m.batches, st.Batches)
	count(m.requests, st.Requests)
	count(m.retries, st.Retries)
	count(m.undelivered, st.Undelivered)
	count(m.refused, st.Refused)
	ch <- prometheus.MustNewConstMetric(m.brokers, prometheus.GaugeValue, float64(st.Brokers))
}
