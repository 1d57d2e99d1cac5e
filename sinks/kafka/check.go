//go:build cgo

package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

const (
	// checkTime is how long brokers that cannot be reached are tried: long
	// enough for a token to be made and for the reason to be known.
	checkTime = 8 * time.Second
	// checkPause is the wait between two questions.
	checkPause = 250 * time.Millisecond
)

// Check asks the brokers for the topic, signed in as the sink would be, and
// sends nothing. The error says why the sink could not begin: what is wrong
// with the properties, why the brokers cannot be reached or do not let the
// client in, or that the topic is missing. It takes seconds when brokers do
// not answer.
func Check(ctx context.Context, cfg Config) (Topic, error) {
	s, err := New(cfg)
	if err != nil {
		return Topic{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	session, err := openSession(ctx, s, newBoard(s.cfg.Now))
	if err != nil {
		return Topic{}, err
	}
	defer session.close()
	for {
		n, err := session.partitions()
		if err == nil {
			limits := session.limits(context.WithoutCancel(ctx))
			return Topic{
				Name: s.cfg.Topic, Partitions: n, MaxMessageBytes: limits.maxMessage, Needed: s.cfg.needed(), Compacted: limits.compacted,
			}, nil
		}
		var broken kafka.Error
		if answered := !errors.As(err, &broken); answered || !sleep(ctx, checkPause) {
			return Topic{}, err
		}
	}
}
