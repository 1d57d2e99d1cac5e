// Package config reads the exporter's settings: one YAML file, the
// environment over it, command line flags over both.
//
// Three rules shape it. Nothing is guessed: an unknown key, a number with a
// stray unit, a list with an empty item is an error, and an empty value means
// unset wherever it stands. Everything is told at once: all that is wrong
// comes in one error, each problem with its file, line, column, key, value and
// what is allowed instead. And settings can be staged: single values are
// checked also while the export is off, rules between values only once it is
// on, so turning it on is the only step that can find them.
package config

import (
	"slices"
	"strconv"
	"time"
)

// Settings is everything that can be set. Its nesting is that of the file.
type Settings struct {
	// Watch is the node's state directory. It is only read.
	Watch string
	// State is the exporter's own directory.
	State string
	// Node is the node's id, as celld knows it.
	Node string
	// Bucket is the fleet bucket: s3://NAME[/PREFIX] or file:///DIR.
	Bucket string
	// Endpoint is the object store's address, "" for AWS itself.
	Endpoint string
	// Region is the object store's region, "" when not set.
	Region string
	// Listen is the host:port that the HTTP server listens on.
	Listen string
	// Script names the script of every cell, "" to take it from the fleet's
	// deployments.
	Script string

	Export     Export
	Kafka      Kafka
	BlobStream BlobStream
}

// Export is the section "export": what is exported and within which bounds.
type Export struct {
	// Enabled turns the export on.
	Enabled bool
	// Sinks names the sinks, in the order given and without repeats.
	Sinks []string
	// Classes lists the exported classes; empty means the default set:
	// application classes, D1 databases and KV namespaces.
	Classes []string
	// DenyTables lists tables that are never exported.
	DenyTables []Table
	// Bucket is where the bucket sink writes, "" for the fleet bucket.
	Bucket string
	// MaxTxBytes is the memory of one unit's diff before it spills to disk.
	MaxTxBytes int64
	// MaxRecordBytes is the size above which a record is split.
	MaxRecordBytes int64
	// QueueBytes is the memory between the diff and the sinks.
	QueueBytes int64
	// SpoolBytes is the disk between the diff and the sinks.
	SpoolBytes int64
	// CacheBytes is the disk for databases of cells that left the node.
	CacheBytes int64
	// Flush is the bucket sink's flush interval and the watermarks' cadence.
	Flush time.Duration
	// FlushBytes is how much is buffered before an early flush.
	FlushBytes int64
	// Retention is how long the bucket sink keeps its objects.
	Retention Retention
	// Topic is the topic of the message sinks.
	Topic string
	// Retry is how long a record may stay unacknowledged before it counts as
	// undelivered.
	Retry time.Duration
	// Reconcile is the reconciler's interval; the exporter only checks it.
	Reconcile time.Duration
}

// Kafka is the section "kafka".
type Kafka struct {
	// Brokers are bootstrap servers, each host:port.
	Brokers []string
	// Properties is the path of a file of client properties.
	Properties string
	// Auth is "none" or "aws-msk-iam".
	Auth string
}

// BlobStream is the section "blob_stream".
type BlobStream struct {
	// Brokers are NODE_ID=host:port, or one k8s://NAMESPACE/SERVICE.
	Brokers []string
	// Partitions is the topic's partition count, 0 when not set.
	Partitions uint32
	// Zones are the topic's writer zones in writer order.
	Zones []string
	// Zone is this node's zone.
	Zone string
	// WriterID is the zone this node produces as, when it is not Zone.
	WriterID string
}

// Table names a table of a class, as the export names it.
type Table struct {
	Class, Name string
}

// String is the table as it is written in settings: Class.table.
func (t Table) String() string { return t.Class + "." + t.Name }

// MarshalText writes the table as it is written in settings.
func (t Table) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Retention is a number of days; 0 keeps objects without limit.
type Retention int

// String is the retention as it is written in settings: none or <n>d.
func (r Retention) String() string {
	if r == 0 {
		return "none"
	}
	return strconv.Itoa(int(r)) + "d"
}

// The sinks that settings may name.
const (
	SinkBucket     = "bucket"
	SinkKafka      = "kafka"
	SinkBlobStream = "blob-stream"
)

// The ways to sign in to Kafka.
const (
	// AuthNone leaves signing in to the properties file.
	AuthNone = "none"
	// AuthMSKIAM signs in to Amazon MSK with the node's AWS credentials.
	AuthMSKIAM = "aws-msk-iam"
)

// Default returns the settings that hold where nothing is set. The export is
// off, and watch, state, node and bucket are empty: they have no default.
func Default() *Settings {
	return &Settings{
		Listen: "127.0.0.1:9464",
		Export: Export{
			Sinks:          []string{SinkBucket},
			MaxTxBytes:     4 << 20,
			MaxRecordBytes: 1 << 20,
			QueueBytes:     256 << 20,
			SpoolBytes:     4 << 30,
			CacheBytes:     2 << 30,
			Flush:          10 * time.Second,
			FlushBytes:     8 << 20,
			Topic:          "celld-changes",
			Retry:          30 * time.Second,
			Reconcile:      24 * time.Hour,
		},
		Kafka: Kafka{Auth: AuthNone},
	}
}

// ExportBucket is the bucket that the bucket sink writes to.
func (s *Settings) ExportBucket() string {
	if s.Export.Bucket != "" {
		return s.Export.Bucket
	}
	return s.Bucket
}

// HasSink reports whether the sink is named in the settings.
func (s *Settings) HasSink(name string) bool {
	return slices.Contains(s.Export.Sinks, name)
}
