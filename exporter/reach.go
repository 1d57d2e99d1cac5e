package exporter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"celldexport/internal/config"
	"celldexport/sinks/blobstream"
	"celldexport/sinks/kafka"
)

// JudgeSinks has the sinks' clients judge the settings, which finds what only
// they know of, and asks no broker. Each line of the error is one problem.
func JudgeSinks(settings *config.Settings) error {
	if !settings.HasSink(config.SinkKafka) || len(settings.Kafka.Brokers) == 0 {
		return nil
	}
	k := &kit{settings: settings, log: slog.New(slog.DiscardHandler), now: time.Now}
	return kafka.Judge(k.kafkaConfig())
}

// ReachBrokers asks the brokers of the sinks that the settings name whether
// they would take records, and sends none. It returns a line for each answer
// that is well, and everything that is not in one error.
func ReachBrokers(ctx context.Context, settings *config.Settings) ([]string, error) {
	k := &kit{settings: settings, log: slog.New(slog.DiscardHandler), now: time.Now}
	var lines []string
	var errs []error
	if settings.HasSink(config.SinkKafka) && len(settings.Kafka.Brokers) > 0 {
		found, err := k.reachKafka(ctx)
		lines, errs = append(lines, found...), append(errs, err)
	}
	if settings.HasSink(config.SinkBlobStream) && len(settings.BlobStream.Brokers) > 0 {
		found, err := k.reachBlobStream(ctx)
		lines, errs = append(lines, found...), append(errs, err)
	}
	return lines, errors.Join(errs...)
}

func (k *kit) reachKafka(ctx context.Context) ([]string, error) {
	topic, err := kafka.Check(ctx, k.kafkaConfig())
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	line := fmt.Sprintf("kafka: topic %s has %d partitions", topic.Name, topic.Partitions)
	var errs []error
	switch {
	case topic.MaxMessageBytes == 0:
		line += "; this client may not read its configuration, so max.message.bytes is not checked"
	case topic.MaxMessageBytes < topic.Needed:
		errs = append(errs, fmt.Errorf("kafka: topic %s: max.message.bytes is %d, max_record_bytes needs %d: larger records would be refused and become gaps",
			topic.Name, topic.MaxMessageBytes, topic.Needed))
	default:
		line += fmt.Sprintf(" and takes messages of %d bytes", topic.MaxMessageBytes)
	}
	if topic.Compacted {
		errs = append(errs, fmt.Errorf("kafka: topic %s is compacted: of each stream only the last record would stay; set cleanup.policy=delete", topic.Name))
	}
	return []string{line}, errors.Join(errs...)
}

func (k *kit) reachBlobStream(ctx context.Context) ([]string, error) {
	cfg, err := k.blobStreamConfig()
	if err != nil {
		return nil, err
	}
	answers, err := blobstream.Check(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("blob-stream: %w", err)
	}
	var lines []string
	var errs []error
	for _, a := range answers {
		if a.Err != nil {
			errs = append(errs, fmt.Errorf("blob-stream: broker %s at %s: %w", a.ID, a.Address, a.Err))
			continue
		}
		lines = append(lines, fmt.Sprintf("blob-stream: broker %s at %s answers", a.ID, a.Address))
	}
	return lines, errors.Join(errs...)
}
