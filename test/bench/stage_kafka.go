//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	confluent "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"celldexport/envelope"
	"celldexport/sinks"
	"celldexport/sinks/kafka"
)

// kafkaStage has the Kafka sink send records to a broker in another process;
// the floor hands the same messages, made beforehand, to the same client with
// the same settings.
func kafkaStage(ctx context.Context, b *bench) (lines []Line, err error) {
	at, err := startBroker(ctx, "kafka")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	records, _ := someRecords(brokerRecords)
	sink, err := newKafkaSink(at.address)
	if err != nil {
		return nil, err
	}
	messages, sent := kafkaMessages(records)
	bare, err := newBareProducer(at.address, messages)
	if err != nil {
		return nil, err
	}
	defer bare.close()
	c := sinkContest{
		stage: "kafka", floor: "bare Produce loop, messages made beforehand", ours: "kafka sink", records: records, goal: 1.15, bytes: sent, waits: true,
		on:   fmt.Sprintf("%d messages, %s, 4 partitions, broker in another process", brokerRecords, size(int64(sent))),
		bare: func() error { return bare.produce(ctx) },
		sink: sink,
	}
	return c.run(ctx, b.effort)
}

// newKafkaSink sends to one broker.
func newKafkaSink(address string) (sinks.Sink, error) {
	return kafka.New(kafka.Config{Brokers: []string{address}, Topic: benchTopic})
}

// kafkaMessages are the records as the sink sends them.
func kafkaMessages(records []envelope.Encoded) (messages []confluent.Message, sent int) {
	topic := benchTopic
	for i := range records {
		r := &records[i]
		m := confluent.Message{
			TopicPartition: confluent.TopicPartition{Topic: &topic, Partition: confluent.PartitionAny},
			Key:            r.Stream.AppendKey(nil), Value: r.AppendJSON(nil), Timestamp: time.UnixMilli(r.CommittedAt),
			Headers: []confluent.Header{
				{Key: "celld-kind", Value: []byte(r.Kind)},
				{Key: "celld-schema-version", Value: []byte(kafka.SchemaVersion)},
				{Key: "content-type", Value: []byte("application/json")},
			},
		}
		messages = append(messages, m)
		sent += len(m.Value)
	}
	return messages, sent
}

// bareProducer is the client with nothing around it.
type bareProducer struct {
	*confluent.Producer
	messages []confluent.Message
	// reports gets what became of each message, read gives the end of reading.
	reports chan error
	read    chan struct{}
}

// newBareProducer sets the client as the sink does.
func newBareProducer(address string, messages []confluent.Message) (*bareProducer, error) {
	p, err := confluent.NewProducer(&confluent.ConfigMap{
		"bootstrap.servers": address, "acks": "all", "enable.idempotence": true, "enable.gapless.guarantee": true,
		"compression.type": "lz4", "linger.ms": 5, "allow.auto.create.topics": false, "message.max.bytes": 64 << 20,
		"queue.buffering.max.kbytes": 192 << 10, "queue.buffering.max.messages": 0,
		"log_level": 2, "go.delivery.report.fields": "none", "go.events.channel.size": 16384, "go.produce.channel.size": 1,
	})
	if err != nil {
		return nil, fmt.Errorf("make a bare producer: %w", err)
	}
	b := &bareProducer{Producer: p, messages: messages, reports: make(chan error, 1), read: make(chan struct{})}
	go b.listen()
	return b, nil
}

// listen counts reports until the producer is closed.
func (b *bareProducer) listen() {
	defer close(b.read)
	count := 0
	var failed error
	for e := range b.Events() {
		m, ok := e.(*confluent.Message)
		if !ok {
			continue
		}
		failed = errors.Join(failed, m.TopicPartition.Error)
		if count++; count == len(b.messages) {
			b.reports <- failed
			count, failed = 0, nil
		}
	}
}

// produce sends every message and waits for all reports.
func (b *bareProducer) produce(ctx context.Context) error {
	for i := range b.messages {
		for {
			err := b.Produce(&b.messages[i], nil)
			var own confluent.Error
			if err == nil {
				break
			}
			if !errors.As(err, &own) || own.Code() != confluent.ErrQueueFull {
				return fmt.Errorf("produce: %w", err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	select {
	case err := <-b.reports:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *bareProducer) close() {
	b.Close()
	<-b.read
}
