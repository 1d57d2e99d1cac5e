//go:build cgo

package kafka

import (
	"strconv"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"celldexport/internal/kafkaprops"
)

// conf is the configuration of the producer: the sink's own settings, then
// the file's over them.
type conf struct {
	values map[string]string
	// secrets are values that must never be shown.
	secrets []string
	// file are the properties of the file at path, as they stand there.
	file []kafkaprops.Property
	path string
}

const (
	// forever stands for no limit in milliseconds. librdkafka's own 0 would do
	// as well, but is cut down to 32 bits where requests get their deadline.
	forever = 1<<31 - 1
	// clientLimit is how large a message of the client may be unless the file
	// says otherwise: well below what a broker takes as one request
	// (socket.request.max.bytes, 100 MiB), beyond which it hangs up without a
	// reason. What lies between a topic's limit and this is the topic's to
	// refuse.
	clientLimit = 64 << 20
	// eventsHeld is the buffer between librdkafka and the reader of events.
	eventsHeld = 16384
)

func newConf(cfg *Config, file []kafkaprops.Property) *conf {
	c := &conf{file: file, path: cfg.Properties, values: map[string]string{
		"bootstrap.servers":                  strings.Join(cfg.Brokers, ","),
		"client.id":                          cfg.ClientID,
		"acks":                               "all",
		"enable.idempotence":                 "true",
		"enable.gapless.guarantee":           "true",
		"compression.type":                   "lz4",
		"linger.ms":                          "5",
		"delivery.report.only.error":         "false",
		"partitioner":                        "consistent_random",
		"allow.auto.create.topics":           "false",
		"message.max.bytes":                  strconv.FormatInt(max(cfg.needed(), clientLimit), 10),
		"message.timeout.ms":                 strconv.Itoa(forever),
		"reconnect.backoff.ms":               "50",
		"reconnect.backoff.max.ms":           strconv.FormatInt(reconnectMax(cfg.Retry).Milliseconds(), 10),
		"socket.keepalive.enable":            "true",
		"topic.metadata.refresh.interval.ms": "60000",
	}}
	if cfg.IAM {
		c.values["security.protocol"] = "SASL_SSL"
		c.values["sasl.mechanism"] = "OAUTHBEARER"
	}
	for _, p := range file {
		c.values[kafkaprops.Canonical(p.Name)] = kafkaprops.Normal(p.Name, p.Value)
		if kafkaprops.Secret(p.Name) && p.Value != "" {
			c.secrets = append(c.secrets, p.Value)
		}
	}
	c.bound(cfg)
	return c
}

// bound sets the producer's queue, unless the file does: room for what may be
// under way, and for the largest message.
func (c *conf) bound(cfg *Config) {
	kib := min((cfg.window()+c.number("message.max.bytes", clientLimit))>>10+1024, 1<<31-1)
	c.defaultTo("queue.buffering.max.kbytes", strconv.FormatInt(kib, 10))
	c.defaultTo("queue.buffering.max.messages", "0")
}

func (c *conf) defaultTo(name, value string) {
	if _, ok := c.values[name]; !ok {
		c.values[name] = value
	}
}

// reconnectMax keeps the pauses between attempts to connect well below the
// time that a record may take: with librdkafka's own ten seconds, brokers
// that came back would be noticed after the records were given up for
// undelivered, and the next ones too.
func reconnectMax(retry time.Duration) time.Duration {
	return min(max(retry/8, 50*time.Millisecond), 500*time.Millisecond)
}

// configMap is what a producer is made with.
func (c *conf) configMap(logs chan kafka.LogEvent) kafka.ConfigMap {
	m := kafka.ConfigMap{
		"go.delivery.report.fields": "none",
		"go.events.channel.size":    eventsHeld,
		"go.produce.channel.size":   1,
		"go.logs.channel.enable":    true,
		"go.logs.channel":           logs,
	}
	for name, value := range c.values {
		m[name] = value
	}
	return m
}

// number is the value of a property, or what it is by default.
func (c *conf) number(name string, byDefault int64) int64 {
	if n, ok := kafkaprops.Number(c.values[name]); ok {
		return n
	}
	return byDefault
}

// refresh is how often the topic's metadata is asked for, 0 for never.
func (c *conf) refresh() time.Duration {
	return time.Duration(max(c.number("topic.metadata.refresh.interval.ms", 0), 0)) * time.Millisecond
}

// redact takes secrets out of what librdkafka says.
func (c *conf) redact(text string) string {
	for _, secret := range c.secrets {
		text = strings.ReplaceAll(text, secret, "(hidden)")
	}
	return text
}

// batchDefault is librdkafka's batch.size.
const batchDefault = 1000000

// batch is how many bytes of messages go into one batch. One message always
// does.
func (c *conf) batch() int64 { return c.number("batch.size", batchDefault) }

// shrink makes batches smaller, so that the topic takes them whatever it
// allows for one message. It reports whether that changes anything.
func (c *conf) shrink(bytes int64) bool {
	bytes = max(bytes, 1)
	if bytes >= c.batch() {
		return false
	}
	c.values["batch.size"] = strconv.FormatInt(bytes, 10)
	return true
}

// limit is the largest message the client takes.
func (c *conf) limit() string { return c.values["message.max.bytes"] }

// queueDefault is librdkafka's queue.buffering.max.kbytes.
const queueDefault = 1 << 20

// queue is how many bytes of values the client holds at most. A message whose
// value alone is more than that can never be handed over.
func (c *conf) queue() int64 { return c.number("queue.buffering.max.kbytes", queueDefault) << 10 }
