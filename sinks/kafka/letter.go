//go:build cgo

package kafka

import (
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"celldexport/envelope"
)

// SchemaVersion is the version of the record format in the header
// celld-schema-version.
const SchemaVersion = "v0-unstable"

// letter writes messages, one after the other in the same memory: librdkafka
// copies what it is given.
type letter struct {
	message kafka.Message
	topic   string
	kind    []byte
	headers [3]kafka.Header
}

// newLetter addresses messages to a topic.
func newLetter(topic string) *letter {
	l := &letter{topic: topic}
	l.headers = [3]kafka.Header{
		{Key: "celld-kind"},
		{Key: "celld-schema-version", Value: []byte(SchemaVersion)},
		{Key: "content-type", Value: []byte("application/json")},
	}
	l.message.TopicPartition.Topic = &l.topic
	l.message.Headers = l.headers[:]
	return l
}

// write makes the message of a record: its JSON as the value, its stream as
// the key, the commit time as the timestamp, and headers by which consumers
// route without parsing. The partition is the caller's to set. The message is
// valid until the next call.
func (l *letter) write(rec *envelope.Encoded) *kafka.Message {
	m := &l.message
	m.Key = rec.Stream.AppendKey(m.Key[:0])
	m.Value = rec.AppendJSON(m.Value[:0])
	l.kind = append(l.kind[:0], rec.Kind...)
	l.headers[0].Value = l.kind
	m.Timestamp = timestamp(rec.CommittedAt)
	return m
}

// latest is the last millisecond that a time in nanoseconds can hold, which
// is what the client computes with.
const latest = 1<<63/1_000_000 - 1

// timestamp is a commit time as a message's timestamp. One that no topic
// could hold is left to the brokers, who then take their own time.
func timestamp(ms int64) time.Time {
	if ms <= 0 || ms > latest {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
