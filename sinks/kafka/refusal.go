//go:build cgo

package kafka

import (
	"errors"
	"fmt"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// verdictOf tells whether an error is about the message itself, or about the
// batch that it was in: the same message, sent again alone, tells which.
func verdictOf(err error) verdict {
	var e kafka.Error
	if !errors.As(err, &e) {
		return noVerdict
	}
	switch e.Code() {
	case kafka.ErrMsgSizeTooLarge, kafka.ErrRecordListTooLarge:
		return refusedSize
	case kafka.ErrInvalidTimestamp, kafka.ErrPolicyViolation, kafka.ErrInvalidRecord:
		return refusedMessage
	}
	return noVerdict
}

// refusalReason says why a message was refused and what would have to change.
// Consumers read it in the gap, so it names no host.
func refusalReason(err error, bytes int64, limits topicLimits, needed int64) string {
	var e kafka.Error
	if !errors.As(err, &e) {
		return fmt.Sprintf("the brokers refuse a message of %d bytes: %v", bytes, err)
	}
	needed = max(needed, bytes)
	switch e.Code() {
	case kafka.ErrMsgSizeTooLarge:
		return fmt.Sprintf("a message of %d bytes is larger than the topic's max.message.bytes%s allows; set it to %d or more", bytes, limits.size(), needed)
	case kafka.ErrRecordListTooLarge:
		return fmt.Sprintf("a message of %d bytes is larger than a segment of the topic; set its segment.bytes to %d or more", bytes, needed)
	case kafka.ErrInvalidTimestamp:
		return "the topic refuses the commit time as the message's timestamp; see its message.timestamp.before.max.ms and message.timestamp.after.max.ms"
	case kafka.ErrPolicyViolation:
		return "a policy of the brokers refuses the message; see what is set up for the topic there, and of its settings those by which brokers check a message: " + checkedBy
	case kafka.ErrInvalidRecord:
		return "the brokers refuse the message as invalid; see the settings of the topic by which they check one: " + checkedBy
	}
	return "the brokers refuse the message: " + e.Code().String()
}

// checkedBy are the settings of a topic by which brokers judge a message. The
// last two are those of brokers that check schemas.
const checkedBy = "max.message.bytes, cleanup.policy, message.timestamp.before.max.ms, message.timestamp.after.max.ms, " +
	"confluent.key.schema.validation, confluent.value.schema.validation"

// localReason says why the client itself does not take a message.
func localReason(bytes int64, limit string) string {
	return fmt.Sprintf("a message of %d bytes is larger than the client's message.max.bytes (%s); set it in the file of kafka.properties, and the topic's max.message.bytes", bytes, limit)
}

// queueReason says why the client can never hold a message.
func queueReason(bytes, limit int64) string {
	return fmt.Sprintf("a message of %d bytes is larger than all that the client may hold (%d); set queue.buffering.max.kbytes in the file of kafka.properties to %d or more, or leave it out", bytes, limit, (bytes+1023)>>10)
}

// deliveryError is the reason of a session's end when a message failed.
func deliveryError(err error) error {
	var e kafka.Error
	if errors.As(err, &e) && (e.Code() == kafka.ErrPurgeQueue || e.Code() == kafka.ErrPurgeInflight) {
		return errors.New("the producer was told to give up")
	}
	return fmt.Errorf("a message was not delivered: %w", err)
}
