// Package kafka is the sink that sends each record as one message to a Kafka
// topic: the record's JSON as the value, its stream as the key, the commit
// time as the timestamp.
//
// The client is librdkafka, which needs cgo; a build without it has a sink
// that refuses to be made and says so.
//
// Order and loss. An entry is acknowledged to the queue when the brokers have
// acknowledged all of its messages with all replicas in sync. Within one
// producer session the idempotent producer keeps the order of a partition,
// and a message that fails stops everything behind it: the session ends and a
// new one sends again, from the spool, from the first message that is not
// acknowledged. A message that the brokers do not acknowledge within
// [Config.Retry] ends the session likewise. Only a record that the brokers
// refuse for what it is, sent alone, is given up; the queue tells the readers.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"celldexport/internal/kafkaprops"
	"celldexport/sinks/kafka/mskiam"
)

// SinkName is the sink's name in settings.
const SinkName = "kafka"

// Config is what the sink works with.
type Config struct {
	// Brokers are bootstrap servers, each host:port.
	Brokers []string
	// Topic must exist; the sink never makes it.
	Topic string
	// Properties is the path of a file of librdkafka properties, "" for none.
	Properties string
	// IAM signs in to Amazon MSK with AWS credentials.
	IAM bool
	// Tokens replaces the source of tokens that IAM implies, for tests.
	Tokens TokenSource
	// ClientID names this client to the brokers, "celldexport" by default.
	ClientID string
	// Retry is how long a record may stay unacknowledged before it counts as
	// undelivered and is sent again, 30 s by default.
	Retry time.Duration
	// MaxRecordBytes is the size above which records are split, 1 MiB by
	// default. Topic and client must take 64 KiB more.
	MaxRecordBytes int64
	// QueueBytes is the memory the sink may take, 256 MiB by default: half of
	// it for messages under way.
	QueueBytes int64
	// Logger reports why nothing is delivered, and when it is again; nil
	// discards.
	Logger *slog.Logger
	// Now is the clock, time.Now by default.
	Now func() time.Time
}

// TokenSource makes tokens to sign in with.
type TokenSource interface {
	// Token makes a new token. The error says what is missing.
	Token(ctx context.Context) (mskiam.Token, error)
}

func (c Config) withDefaults() Config {
	if c.ClientID == "" {
		c.ClientID = "celldexport"
	}
	if c.Retry <= 0 {
		c.Retry = 30 * time.Second
	}
	if c.MaxRecordBytes <= 0 {
		c.MaxRecordBytes = 1 << 20
	}
	if c.QueueBytes <= 0 {
		c.QueueBytes = 256 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c *Config) check() error {
	if len(c.Brokers) == 0 {
		return errors.New("kafka sink: no brokers")
	}
	if c.Topic == "" {
		return errors.New("kafka sink: no topic")
	}
	return nil
}

// properties reads the file of properties and judges it.
func (c *Config) properties() ([]kafkaprops.Property, error) {
	list, err := kafkaprops.Load(c.Properties, c.rules())
	if err != nil {
		return nil, fmt.Errorf("kafka sink: %w", err)
	}
	return list, nil
}

func (c *Config) rules() kafkaprops.Rules {
	return kafkaprops.Rules{MaxRecordBytes: c.MaxRecordBytes, IAM: c.IAM}
}

// needed is what the topic's max.message.bytes should be at least.
func (c *Config) needed() int64 { return c.MaxRecordBytes + kafkaprops.Headroom }

// window is how many bytes of messages may be under way.
func (c *Config) window() int64 { return max(1, c.QueueBytes/2) }

// entriesHeld bounds the entries that are taken and not acknowledged, which
// matters when one partition is stuck while others go on.
func (c *Config) entriesHeld() int { return int(min(max(c.QueueBytes/4096, 256), 65536)) }
