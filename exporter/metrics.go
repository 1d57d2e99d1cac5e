package exporter

import (
	"github.com/prometheus/client_golang/prometheus"

	"celldexport/envelope/rowset"
)

// metrics are the export's numbers. None carries a cell's name.
type metrics struct {
	queueBytes, pendingCommits, certifiable prometheus.Gauge
	streams                                 *prometheus.GaugeVec
	disk                                    disk
	records, rebases, restoredBytes, nulls  prometheus.Counter
	rows                                    *prometheus.CounterVec
	bulk                                    prometheus.Counter
	outgoing                                outgoing
	traffic                                 traffic
}

// disk is what is seen of the node's directory.
type disk struct{ watched, unreadable, pendingFiles, facets, polling prometheus.Gauge }

// traffic is what the buckets are asked and what moves from and to them.
type traffic struct{ requests, bytes *prometheus.CounterVec }

// outgoing counts what is done for single sinks.
type outgoing struct {
	expired, gaps prometheus.Counter
	rebases       *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "celld_export_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "celld_export_" + name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "celld_export_" + name, Help: help}, labels)
	}
	m := &metrics{
		queueBytes:     gauge("queue_bytes", "Bytes in the spool that a sink has not acknowledged."),
		pendingCommits: gauge("pending_commits", "Streams that wait for their durability proof."),
		certifiable:    gauge("uncertified_streams", "Streams whose epoch cannot be certified any more because the state directory was lost."),
		streams:        prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "celld_export_streams", Help: "Streams by state."}, []string{"state"}),
		records:        counter("records_total", "Records spooled, fragments counted once."),
		rebases:        counter("rebases_total", "Streams sent as a whole because continuity could not be shown."),
		restoredBytes:  counter("restored_bytes_total", "Bytes read from the bucket to restore databases."),
		nulls:          counter("null_key_rows_total", "Rows left out because their declared key holds NULL."),
		rows:           vec("rows_total", "Row changes spooled by operation.", "op"),
		bulk:           counter("bulk_total", "Table generations named by a bulk record."),
		disk: disk{
			watched:      gauge("watched_directories", "Directories that are watched."),
			unreadable:   gauge("unreadable_directories", "Directories that the last walk could not read or that do not answer."),
			pendingFiles: gauge("pending_files", "LTX files on the node's disk that are not exported."),
			facets:       gauge("facet_directories", "Facet directories seen; facets are not exported by this build."),
			polling:      gauge("polling", "1 while directories cannot be watched and are polled."),
		},
		outgoing: outgoing{
			expired: counter("expired_objects_total", "Export objects deleted because they are older than the retention."),
			gaps:    counter("gaps_total", "Gap records spooled."),
			rebases: vec("sink_rebases_total", "Streams sent as a whole to one sink that lacked them.", "sink"),
		},
		traffic: traffic{
			requests: vec("bucket_requests_total", "Requests to the buckets by operation and outcome.", "bucket", "op", "outcome"),
			bytes:    vec("bucket_bytes_total", "Bytes moved from and to the buckets.", "bucket", "op"),
		},
	}
	if reg != nil {
		reg.MustRegister(m.queueBytes, m.pendingCommits, m.certifiable, m.streams, m.disk.watched, m.disk.unreadable, m.disk.pendingFiles, m.disk.facets, m.disk.polling,
			m.records, m.rebases, m.restoredBytes, m.nulls, m.rows, m.bulk, m.outgoing.expired, m.outgoing.gaps, m.outgoing.rebases, m.traffic.requests, m.traffic.bytes)
	}
	return m
}

// request observes the calls to one bucket.
func (m *metrics) request(bucket string) func(op, outcome string, bytes int64) {
	return func(op, outcome string, bytes int64) {
		m.traffic.requests.WithLabelValues(bucket, op, outcome).Inc()
		m.traffic.bytes.WithLabelValues(bucket, op).Add(float64(bytes))
	}
}

// unit counts what a unit or snapshot became.
func (m *metrics) unit(s rowset.Stats) {
	m.records.Add(float64(s.Records))
	m.rows.WithLabelValues("insert").Add(float64(s.Inserts))
	m.rows.WithLabelValues("update").Add(float64(s.Updates))
	m.rows.WithLabelValues("delete").Add(float64(s.Deletes))
	m.rows.WithLabelValues("snapshot").Add(float64(s.Snapshot))
	m.nulls.Add(float64(s.NullKeys))
	m.bulk.Add(float64(len(s.Bulk) + len(s.Incomplete)))
}

// observe sets the gauges from a summary.
func (m *metrics) observe(s *Summary) {
	m.queueBytes.Set(float64(s.Spool.Bytes))
	m.pendingCommits.Set(float64(s.Streams[StatePending]))
	m.certifiable.Set(float64(len(s.Uncertified)))
	for _, st := range []State{StateExported, StatePending, StateWaiting, StateFenced, StateEnded, StateFull, StateFailed} {
		m.streams.WithLabelValues(string(st)).Set(float64(s.Streams[st]))
	}
	m.disk.watched.Set(float64(s.Watch.Watched))
	m.disk.unreadable.Set(float64(s.Watch.Unreadable))
	m.disk.pendingFiles.Set(float64(s.Watch.Pending))
	m.disk.facets.Set(float64(s.Watch.Facets))
	m.disk.polling.Set(0)
	if s.Watch.Polling {
		m.disk.polling.Set(1)
	}
}
