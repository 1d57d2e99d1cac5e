package exporter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celldexport/internal/config"
	"celldexport/internal/objstore"
	"celldexport/sinks"
	"celldexport/sinks/blobstream"
	"celldexport/sinks/blobstream/discover"
	"celldexport/sinks/blobstream/route"
	"celldexport/sinks/bucket"
	"celldexport/sinks/delivery"
	"celldexport/sinks/kafka"
)

// openDelivery makes the sinks that the settings name and attaches them to
// the spool, and more beside them. export is the bucket sink's store.
func (e *Exporter) openDelivery(export objstore.Store, more []sinks.Sink) error {
	var list []sinks.Sink
	for _, name := range e.settings.Export.Sinks {
		sink, err := e.newSink(name, export)
		if err != nil {
			return err
		}
		list = append(list, sink)
	}
	list = append(list, more...)
	var err error
	e.delivery, err = delivery.New(delivery.Config{
		Spool: e.spool, Sinks: list, Dir: e.dir.Delivery(), Now: e.now, Logger: e.log,
		WatermarkEvery: watermarkEvery(e.settings), Failed: e.fail,
	})
	if err != nil {
		return err
	}
	e.sinks = list
	e.retention = &retention{kit: e.kit, engine: e.delivery, store: export}
	e.makeRoom = e.delivery.MakeRoom
	return nil
}

// lowLatency is the shortest interval of rounds.
const lowLatency = 250 * time.Millisecond

// quick reports whether a sink is named that takes records as they come.
func quick(s *config.Settings) bool {
	return s.HasSink(config.SinkKafka) || s.HasSink(config.SinkBlobStream)
}

// pace is the interval of rounds: that of the bucket sink's objects, or short
// when a sink takes records as they come.
func pace(s *config.Settings) time.Duration {
	if quick(s) {
		return min(s.Export.Flush, lowLatency)
	}
	return s.Export.Flush
}

// watermarkEvery spaces the watermarks of sinks that acknowledge all the time;
// the bucket sink's come with its objects.
func watermarkEvery(s *config.Settings) time.Duration {
	if quick(s) {
		return s.Export.Flush
	}
	return 0
}

// registerSinks publishes what the sinks tell of themselves, and for how long
// something does not go on.
func registerSinks(e *Exporter, registry prometheus.Registerer) {
	registry.MustRegister(newSinkMetrics(e.delivery.Status, e.now), newStallMetrics(e.report.ages, e.now))
	for _, s := range e.sinks {
		if s, ok := s.(*blobstream.Sink); ok {
			registry.MustRegister(newBlobStreamMetrics(s.Stats))
		}
	}
}

// newSink makes one sink from the settings.
func (k *kit) newSink(name string, export objstore.Store) (sinks.Sink, error) {
	switch name {
	case config.SinkBucket:
		return k.bucketSink(export)
	case config.SinkKafka:
		return kafka.New(k.kafkaConfig())
	case config.SinkBlobStream:
		cfg, err := k.blobStreamConfig()
		if err != nil {
			return nil, err
		}
		return blobstream.New(cfg)
	}
	return nil, fmt.Errorf("the %s sink is not in this build", name)
}

func (k *kit) bucketSink(export objstore.Store) (sinks.Sink, error) {
	x := k.settings.Export
	return bucket.New(bucket.Config{
		Store: export, Node: k.settings.Node, FlushInterval: x.Flush, FlushBytes: x.FlushBytes, QueueBytes: x.QueueBytes,
		Now: k.now, Retention: x.Retention.String(),
	})
}

func (k *kit) kafkaConfig() kafka.Config {
	x, b := k.settings.Export, k.settings.Kafka
	return kafka.Config{
		Brokers: b.Brokers, Topic: x.Topic, Properties: b.Properties, IAM: b.Auth == config.AuthMSKIAM,
		ClientID: "exportd-" + k.settings.Node, Retry: x.Retry, MaxRecordBytes: x.MaxRecordBytes, QueueBytes: x.QueueBytes,
		Logger: k.log, Now: k.now,
	}
}

func (k *kit) blobStreamConfig() (blobstream.Config, error) {
	x, b := k.settings.Export, k.settings.BlobStream
	source, err := discover.Parse(b.Brokers)
	if err != nil {
		return blobstream.Config{}, fmt.Errorf("blob-stream sink: %w", err)
	}
	shape := route.Shape{Topic: x.Topic, Partitions: b.Partitions, Writers: uint32(max(1, len(b.Zones)))}
	if len(b.Zones) > 0 {
		zone := cmp.Or(b.WriterID, b.Zone)
		writer := slices.Index(b.Zones, zone)
		if writer < 0 {
			return blobstream.Config{}, fmt.Errorf("blob-stream sink: zone %q is none of %v", zone, b.Zones)
		}
		shape.Writer = uint32(writer)
	}
	return blobstream.Config{
		Shape: shape, Source: source, Retry: x.Retry, QueueBytes: x.QueueBytes, Logger: k.log, Now: k.now,
	}, nil
}
