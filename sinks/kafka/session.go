//go:build cgo

package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// session is one producer from its making to its first failure.
type session struct {
	sink  *Sink
	board *board
	p     *producer
	token *refresher

	mu sync.Mutex
	// said is what librdkafka said last of the connection's troubles, and
	// when.
	said   error
	saidAt time.Time
}

// openSession makes a producer.
func openSession(ctx context.Context, sink *Sink, board *board) (*session, error) {
	s := &session{sink: sink, board: board}
	s.token = newRefresher(ctx, sink.cfg.Tokens, s)
	var err error
	// Events may come before the call returns; they wait for s.p.
	made := make(chan struct{})
	s.p, err = openProducer(sink.conf, sink.conf.values["bootstrap.servers"],
		func(e kafka.Event) { <-made; s.event(e) }, s.log)
	close(made)
	if err != nil {
		return nil, err
	}
	sink.change(func(st *Stats) { st.Sessions++ })
	sink.opened(s)
	return s, nil
}

// close ends the producer. What it held is not acknowledged.
func (s *session) close() {
	s.token.stop()
	s.p.close()
}

// event handles what librdkafka says, in its order.
func (s *session) event(e kafka.Event) {
	switch e := e.(type) {
	case *kafka.Message:
		s.report(e)
	case kafka.Error:
		s.connection(e)
	case kafka.OAuthBearerTokenRefresh:
		s.token.wanted()
	}
}

// report takes a delivery report.
func (s *session) report(m *kafka.Message) {
	t, ok := m.Opaque.(*ticket)
	if !ok {
		return
	}
	err := m.TopicPartition.Error
	if err == nil {
		s.board.answer(t, nil, noVerdict)
		return
	}
	s.board.answer(t, deliveryError(err), verdictOf(err))
}

// connection notes an error that concerns no single message.
func (s *session) connection(e kafka.Error) {
	err := errors.New(s.sink.conf.redact(e.Error()))
	if e.IsFatal() {
		s.board.abort(fmt.Errorf("the producer failed for good: %w", err))
		return
	}
	if e.Code() == kafka.ErrAllBrokersDown {
		return // the errors of the single brokers say why
	}
	s.say(err)
	if s.board.view().open > 0 {
		s.sink.trouble(err)
	}
}

// fresh is how long what was said of a connection explains a failure.
const fresh = time.Minute

// explain adds what librdkafka said last of its connections to an error that
// only says that they do not work.
func (s *session) explain(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if missing := s.token.failure(); missing != nil {
		return fmt.Errorf("%w: %w", err, missing)
	}
	if s.said == nil || s.sink.cfg.Now().Sub(s.saidAt) > fresh {
		return err
	}
	return fmt.Errorf("%w: %w", err, s.said)
}

// say keeps what librdkafka said of a connection.
func (s *session) say(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said, s.saidAt = err, s.sink.cfg.Now()
}

// log takes a line of librdkafka's log. A connection that the other side
// closed is told there only.
func (s *session) log(l kafka.LogEvent) {
	if l.Tag == "FAIL" {
		_, text, _ := strings.Cut(l.Message, "]: ")
		s.say(errors.New(s.sink.conf.redact(text)))
	}
	s.sink.cfg.Logger.Log(context.Background(), level(l.Level), "librdkafka", "facility", l.Tag, "line", s.sink.conf.redact(l.Message))
}

// metadataTime bounds one question for metadata; it cannot be interrupted.
const metadataTime = 2 * time.Second

// prepare waits until the topic can be produced to. It gives up only with
// ctx or with the producer, so that brokers that come back are noticed at
// once.
func (s *session) prepare(ctx context.Context) error {
	delay := connectMin
	for {
		n, err := s.partitions()
		if err == nil {
			s.sink.change(func(st *Stats) { st.Partitions = n })
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if failed := s.board.view().failed; failed != nil {
			return failed
		}
		s.sink.trouble(err)
		if !sleep(ctx, delay) {
			return ctx.Err()
		}
		delay = min(2*delay, connectMax)
	}
}

// partitions asks for the topic's metadata.
func (s *session) partitions() (int, error) {
	topic := s.sink.cfg.Topic
	md, err := s.p.GetMetadata(&topic, false, int(metadataTime.Milliseconds()))
	if err != nil {
		return 0, s.explain(fmt.Errorf("ask %s for topic %q: %w", strings.Join(s.sink.cfg.Brokers, ", "), topic, err))
	}
	t, ok := md.Topics[topic]
	if !ok {
		return 0, fmt.Errorf("the brokers say nothing of topic %q", topic)
	}
	switch code := t.Error.Code(); {
	case code == kafka.ErrUnknownTopicOrPart || code == kafka.ErrUnknownTopic:
		return 0, fmt.Errorf("topic %q does not exist: make it first, the sink never does", topic)
	case code == kafka.ErrTopicAuthorizationFailed:
		return 0, fmt.Errorf("topic %q: the brokers do not allow this client to describe it", topic)
	case code != kafka.ErrNoError && code != kafka.ErrLeaderNotAvailable:
		return 0, fmt.Errorf("topic %q: %w", topic, t.Error)
	case len(t.Partitions) == 0:
		return 0, fmt.Errorf("topic %q has no partitions yet", topic)
	}
	return len(t.Partitions), nil
}
