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
	route *route
	// watch ends with the session; it looks for new partitions.
	watch     sync.WaitGroup
	stopWatch context.CancelFunc

	mu sync.Mutex
	// said is what librdkafka said last of the connection's troubles, and
	// when.
	said   error
	saidAt time.Time
}

// openSession makes a producer.
func openSession(ctx context.Context, sink *Sink, board *board) (*session, error) {
	route, err := newRoute(sink.conf.values["partitioner"])
	if err != nil {
		return nil, err
	}
	s := &session{sink: sink, board: board, route: route, stopWatch: func() {}}
	s.token = newRefresher(ctx, sink.cfg.Tokens, s)
	// Events may come before the call returns; they wait for s.p.
	made := make(chan struct{})
	s.p, err = openProducer(sink.conf, sink.conf.values["bootstrap.servers"],
		func(events <-chan kafka.Event) { <-made; s.listen(events) }, s.log)
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
	s.stopWatch()
	s.watch.Wait()
	s.token.stop()
	s.p.close()
}

// listen handles what librdkafka says, in its order, until the producer is
// closed.
func (s *session) listen(events <-chan kafka.Event) {
	for e := range events {
		for e != nil {
			if m, ok := e.(*kafka.Message); ok {
				e = s.reports(m, events)
				continue
			}
			s.event(e)
			e = nil
		}
	}
}

func (s *session) event(e kafka.Event) {
	switch e := e.(type) {
	case kafka.Error:
		s.connection(e)
	case kafka.OAuthBearerTokenRefresh:
		s.token.wanted()
	}
}

// mostReports is how many reports are taken at once.
const mostReports = 256

// reports takes a delivery report and those that wait behind it. It returns
// the event that it met among them, nil when there was none.
func (s *session) reports(first *kafka.Message, events <-chan kafka.Event) (other kafka.Event) {
	left := min(len(events), mostReports)
	s.board.answers(arrivalOf(first), func() (arrival, bool) {
		if left == 0 {
			return arrival{}, false
		}
		left--
		e := <-events // it is there, nobody else takes from here
		m, ok := e.(*kafka.Message)
		if !ok {
			other = e
			return arrival{}, false
		}
		return arrivalOf(m), true
	})
	return other
}

// arrivalOf is what a delivery report says.
func arrivalOf(m *kafka.Message) arrival {
	a := arrival{part: m.TopicPartition.Partition}
	if err := m.TopicPartition.Error; err != nil {
		a.err, a.verdict = deliveryError(err), verdictOf(err)
	}
	return a
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
		s.say(errors.New(s.sink.conf.redact(unthreaded(l.Message))))
	}
	s.sink.cfg.Logger.Log(context.Background(), level(l.Level), "librdkafka", "facility", l.Tag, "line", s.sink.conf.redact(l.Message))
}

// unthreaded is a line of librdkafka's log without the name of the thread that
// stands before it unless log.thread.name is off.
func unthreaded(line string) string {
	if text, ok := strings.CutPrefix(line, "[thrd:"); ok {
		_, line, _ = strings.Cut(text, "]: ")
	}
	return line
}

// metadataTime bounds one question for metadata; it cannot be interrupted.
const metadataTime = 2 * time.Second

// prepare waits until the topic can be produced to. It gives up only with
// ctx or with the producer, so that brokers that come back are noticed at
// once.
func (s *session) prepare(ctx context.Context) error {
	delay := connectMin
	watching, stop := context.WithCancel(ctx)
	every := s.sink.conf.refresh()
	s.stopWatch = stop
	for {
		n, err := s.partitions()
		if err == nil {
			s.spread(n)
			s.watch.Go(func() { s.lookForPartitions(watching, every) })
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

// spread has messages go to n partitions.
func (s *session) spread(n int) {
	s.route.partitions.Store(uint32(n))
	s.sink.change(func(st *Stats) { st.Partitions = n })
}

// partitionsLag is left to librdkafka to take in, in a thread of its own, what
// it just answered.
const partitionsLag = 100 * time.Millisecond

// lookForPartitions asks for the topic's partitions as often as librdkafka
// does, so that streams spread to new ones without a restart.
func (s *session) lookForPartitions(ctx context.Context, every time.Duration) {
	for every > 0 && sleep(ctx, every) {
		n, err := s.partitions()
		if err != nil {
			s.sink.cfg.Logger.Debug("the topic's partitions cannot be looked up", "topic", s.sink.cfg.Topic, "err", err)
			continue
		}
		if was := int(s.route.partitions.Load()); n != was && sleep(ctx, partitionsLag) {
			s.sink.cfg.Logger.Info("the topic has another number of partitions", "topic", s.sink.cfg.Topic, "partitions", n, "before", was)
			s.spread(n)
		}
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
