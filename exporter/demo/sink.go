package demo

import (
	"context"
	"fmt"

	"celldexport/exporter/consumer"
	"celldexport/exporter/demo/broker"
	"celldexport/internal/config"
)

// partitions is more than one, so that streams spread.
const partitions = 4

// openSink prepares where the export goes.
func (sc *scene) openSink() error {
	switch sc.o.Sink {
	case "", config.SinkBucket:
		return nil
	case config.SinkKafka:
		var err error
		if sc.broker, err = broker.Start(config.Default().Export.Topic, partitions); err == nil {
			sc.report.say("demo: a Kafka broker in this process listens on %v, its topic has %d partitions", sc.broker.Addrs(), partitions)
		}
		return err
	}
	return fmt.Errorf("the demo exports to %s or %s, not to %q", config.SinkBucket, config.SinkKafka, sc.o.Sink)
}

// consume has a consumer read what the export left.
func (sc *scene) consume(ctx context.Context) (*consumer.Consumer, error) {
	if sc.broker == nil {
		return consumer.Load(ctx, sc.bucket)
	}
	records, err := sc.broker.Read(ctx)
	if err != nil {
		return nil, err
	}
	c := &consumer.Consumer{Records: records}
	return c, c.Apply()
}
