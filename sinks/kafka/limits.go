//go:build cgo

package kafka

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// topicLimits is what the topic's configuration says, as far as this client
// may read it.
type topicLimits struct {
	// maxMessage is max.message.bytes, 0 when it is not known.
	maxMessage int64
	compacted  bool
	// kept is how long messages are kept from their commit time on, 0 when
	// that is not known, has no limit, or counts from when they arrive.
	kept time.Duration
}

// size is the limit as messages show it.
func (t topicLimits) size() string {
	if t.maxMessage == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d)", t.maxMessage)
}

// limitsTime bounds the question for the topic's configuration.
const limitsTime = 3 * time.Second

// limits reads the topic's configuration. Whoever may write to a topic need
// not be allowed to read it, so an error is no trouble.
func (s *session) limits(ctx context.Context) topicLimits {
	var found topicLimits
	admin, err := kafka.NewAdminClientFromProducer(s.p.Producer)
	if err != nil {
		return found
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(ctx, limitsTime)
	defer cancel()
	results, err := admin.DescribeConfigs(ctx,
		[]kafka.ConfigResource{{Type: kafka.ResourceTopic, Name: s.sink.cfg.Topic}}, kafka.SetAdminRequestTimeout(limitsTime))
	if err != nil {
		s.sink.cfg.Logger.Debug("the topic's configuration cannot be read", "topic", s.sink.cfg.Topic, "err", err)
		return found
	}
	for _, r := range results {
		if n, err := strconv.ParseInt(r.Config["max.message.bytes"].Value, 10, 64); err == nil {
			found.maxMessage = n
		}
		if r.Config["message.timestamp.type"].Value == "CreateTime" {
			if ms, err := strconv.ParseInt(r.Config["retention.ms"].Value, 10, 64); err == nil {
				found.kept = time.Duration(max(0, min(ms, math.MaxInt64/int64(time.Millisecond)))) * time.Millisecond
			}
		}
		found.compacted = found.compacted || strings.Contains(r.Config["cleanup.policy"].Value, "compact")
	}
	return found
}

// warn tells of limits that will lose records.
func (s *session) warn(t topicLimits) {
	log, cfg := s.sink.cfg.Logger, &s.sink.cfg
	if queue := s.sink.conf.queue(); queue < cfg.needed() {
		log.Warn("queue.buffering.max.kbytes is less than a record may take: the client cannot hold larger ones, and they will become gaps",
			"bytes", queue, "needed", cfg.needed())
	}
	if t.maxMessage > 0 && t.maxMessage < cfg.needed() {
		log.Warn("the topic's max.message.bytes is less than a record may take: larger ones will be refused and become gaps",
			"topic", cfg.Topic, "max.message.bytes", t.maxMessage, "needed", cfg.needed())
	}
	if t.kept > 0 {
		log.Warn("the topic keeps messages by their commit time: what waited for longer, and snapshots of cells that have not changed for longer, may be deleted before they are read; set message.timestamp.type=LogAppendTime, or retention.ms=-1",
			"topic", cfg.Topic, "retention.ms", t.kept.Milliseconds())
	}
	if t.compacted {
		log.Warn("the topic is compacted: records of one stream share a key, so all but the last will be deleted; set cleanup.policy=delete",
			"topic", cfg.Topic)
	}
}
