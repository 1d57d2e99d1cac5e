//go:build cgo

package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"celldexport/internal/kafkaprops"
	"celldexport/sinks"
	"celldexport/sinks/kafka/mskiam"
)

// Sink is the Kafka sink.
type Sink struct {
	cfg  Config
	conf *conf
	// opened is called with every new session; tests take hold of it there.
	opened func(*session)

	mu    sync.Mutex
	stats Stats
	// told is the trouble that was logged last, and when.
	told   string
	toldAt time.Time
}

// Stats is what the sink did since it was made.
type Stats struct {
	// Messages were acknowledged by the brokers.
	Messages int64
	// Sessions counts producers, Stalls the sessions that ended because the
	// brokers did not acknowledge in time, Refused the records given up.
	Sessions, Stalls, Refused int64
	// Partitions is how many the topic has, 0 while that is not known.
	Partitions int
	// Trouble is why nothing is delivered at the moment, since TroubleSince;
	// "" when nothing is wrong.
	Trouble      string
	TroubleSince time.Time
}

var _ sinks.Sink = (*Sink)(nil)

// New reads the properties and makes the sink. It does not reach for the
// brokers. All that is wrong with the properties comes in one error.
func New(cfg Config) (*Sink, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	list, err := cfg.properties()
	if err != nil {
		return nil, err
	}
	if cfg.IAM && cfg.Tokens == nil {
		cfg.Tokens = &mskiam.Source{Brokers: cfg.Brokers}
	}
	s := &Sink{cfg: cfg, conf: newConf(&cfg, list), opened: func(*session) {}}
	if err := s.conf.try(); err != nil {
		return nil, fmt.Errorf("kafka sink: %w", err)
	}
	if _, err := newRoute(s.conf.values["partitioner"]); err != nil {
		return nil, fmt.Errorf("kafka sink: %w", err)
	}
	return s, nil
}

// Judge says all that is wrong with the properties, also what librdkafka alone
// knows, and reaches for nobody. What lies in the file is of type
// [kafkaprops.Errors].
func Judge(cfg Config) error {
	cfg = cfg.withDefaults()
	list, err := kafkaprops.Load(cfg.Properties, cfg.rules())
	if err != nil {
		return err
	}
	return newConf(&cfg, list).try()
}

// Name is "kafka".
func (s *Sink) Name() string { return SinkName }

// Stats tells what the sink did so far.
func (s *Sink) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Report is the sink's state in a few words, and why nothing is delivered.
func (s *Sink) Report() (state, lastError string) {
	st := s.Stats()
	switch {
	case st.Trouble != "":
		return "not delivering since " + st.TroubleSince.UTC().Format(time.RFC3339), st.Trouble
	case st.Partitions == 0:
		return "connecting", ""
	default:
		return fmt.Sprintf("topic %s, %d partitions, %d messages delivered", s.cfg.Topic, st.Partitions, st.Messages), ""
	}
}

// change updates the stats.
func (s *Sink) change(f func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.stats)
}

// retold is how long the same trouble, or one that changes its wording all
// the time, is not logged again.
const retold = 30 * time.Second

// trouble notes why nothing is delivered and logs it, now and then.
func (s *Sink) trouble(err error) {
	now := s.cfg.Now()
	s.mu.Lock()
	if s.stats.Trouble == "" {
		s.stats.TroubleSince = now
	}
	s.stats.Trouble = err.Error()
	quiet := s.told != "" && now.Sub(s.toldAt) < retold
	if !quiet {
		s.told, s.toldAt = err.Error(), now
	}
	since := s.stats.TroubleSince
	s.mu.Unlock()
	if !quiet {
		s.cfg.Logger.Warn("kafka does not take records; they wait in the spool", "topic", s.cfg.Topic, "err", err, "since", since)
	}
}

// well notes that records are delivered again.
func (s *Sink) well() {
	now := s.cfg.Now()
	s.mu.Lock()
	since, was := s.stats.TroubleSince, s.stats.Trouble != ""
	s.stats.Trouble, s.stats.TroubleSince = "", time.Time{}
	told := s.told != ""
	s.told = ""
	s.mu.Unlock()
	if was && told {
		s.cfg.Logger.Info("kafka takes records again", "topic", s.cfg.Topic, "after", now.Sub(since).Round(time.Millisecond))
	}
}

// connectMin and connectMax bound the wait between attempts to reach the
// brokers.
const (
	connectMin = time.Second
	connectMax = 30 * time.Second
)

// Run sends until ctx ends; see [sinks.Sink]. Brokers that cannot be reached,
// a topic that is missing and a producer that failed are waited for.
func (s *Sink) Run(ctx context.Context, queue sinks.Queue) error {
	r := newRun(s, queue)
	delay := connectMin
	for {
		before, stalls := r.board.view().answered, s.Stats().Stalls
		err := r.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var own *queueError
		if errors.As(err, &own) {
			return own.err
		}
		switch {
		case r.board.view().answered > before || errors.Is(err, errRefused):
			delay, r.patience = connectMin, s.cfg.Retry
		case s.Stats().Stalls > stalls:
			r.patience = min(2*r.patience, mostPatience*s.cfg.Retry)
		}
		if errors.Is(err, errRefused) {
			continue
		}
		if err != nil {
			s.trouble(err)
		}
		if !sleep(ctx, delay) {
			return nil
		}
		delay = min(2*delay, connectMax)
	}
}

// queueError is a failure of the queue or of what it gave, which no broker
// can help with.
type queueError struct{ err error }

func (q *queueError) Error() string { return q.err.Error() }
func (q *queueError) Unwrap() error { return q.err }

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// level is the level of a line that librdkafka logs: what it says of broken
// connections comes as an error event too, so that its own lines are for
// those who look closely.
func level(syslog int) slog.Level {
	if syslog <= 2 {
		return slog.LevelError
	}
	return slog.LevelDebug
}
