//go:build cgo

package kafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"celldexport/internal/kafkaprops"
)

// reliedOn are the properties that the sink's promises rest on. What
// librdkafka made of them is read back, whatever was written.
func reliedOn() []string {
	return []string{
		"acks", "enable.idempotence", "enable.gapless.guarantee", "delivery.report.only.error", "allow.auto.create.topics",
		"message.timeout.ms", "message.max.bytes", "partitioner", "queue.buffering.max.kbytes", "queue.buffering.max.messages",
		"topic.metadata.refresh.interval.ms", "reconnect.backoff.max.ms",
	}
}

// never are properties that nothing may set, in a file or otherwise.
func never() []string { return []string{"transactional.id", "test.mock.num.brokers"} }

// readBackTime bounds the wait for what librdkafka says of its configuration,
// which it does while the producer is made.
const readBackTime = 5 * time.Second

// try makes a producer and throws it away, without a word to any broker:
// librdkafka says what it does not take, and what it made of the rest. All
// that is wrong with the file is of type [kafkaprops.Errors].
func (c *conf) try() error {
	found, err := c.inForce()
	if err != nil {
		return c.blame(err)
	}
	return c.compare(found)
}

// inForce is what librdkafka makes of the configuration: the value of every
// property that was set, by its one name.
func (c *conf) inForce() (map[string]string, error) {
	trial := &conf{values: maps.Clone(c.values), secrets: c.secrets}
	// So librdkafka logs its configuration, with secrets hidden.
	trial.values["debug"] = strings.Trim(c.values["debug"]+",conf", ",")
	back := &readBack{values: map[string]string{}, grown: make(chan struct{}, 1)}
	p, err := openProducer(trial, "", func(events <-chan kafka.Event) {
		for range events {
			continue
		}
	}, back.line)
	if err != nil {
		return nil, err
	}
	defer p.close()
	return back.wait(reliedOn(), readBackTime), nil
}

// compare holds what librdkafka made of the configuration against what was
// meant.
func (c *conf) compare(found map[string]string) error {
	var errs []error
	for _, name := range reliedOn() {
		if want, got := kafkaprops.Normal(name, c.values[name]), found[name]; got != want {
			errs = append(errs, c.problem(name, fmt.Sprintf("librdkafka takes it for %q, not %q", got, want)))
		}
	}
	for _, name := range never() {
		if got, ok := found[name]; ok {
			errs = append(errs, c.problem(name, fmt.Sprintf("librdkafka takes it for %q, and the sink does without", got)))
		}
	}
	return joined(errs)
}

// blame finds the lines of the file that an error of librdkafka is about.
func (c *conf) blame(err error) error {
	text := c.redact(err.Error())
	var named []string
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r != '.' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		named = append(named, kafkaprops.Canonical(strings.Trim(word, ".")))
	}
	var errs []error
	for _, p := range c.file {
		if slices.Contains(named, kafkaprops.Canonical(p.Name)) {
			errs = append(errs, c.problem(kafkaprops.Canonical(p.Name), text))
		}
	}
	if len(errs) == 0 {
		errs = []error{c.problem("", text)}
	}
	return joined(errs)
}

// problem is about a property, at the line of the file that sets it.
func (c *conf) problem(name, reason string) error {
	e := &kafkaprops.Error{File: c.path, Name: name, Reason: reason}
	for _, p := range c.file {
		if kafkaprops.Canonical(p.Name) == name {
			e.Name, e.Line = p.Name, p.Line
		}
	}
	if e.Line == 0 && (name != "" || c.path == "") {
		return fmt.Errorf("the sink's own properties: %s: %s", name, reason)
	}
	return e
}

// joined is one error of all, of type [kafkaprops.Errors] when all lie in the
// file.
func joined(errs []error) error {
	var list kafkaprops.Errors
	for _, err := range errs {
		var one *kafkaprops.Error
		if !errors.As(err, &one) {
			return errors.Join(errs...)
		}
		list = append(list, one)
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// readBack takes librdkafka's configuration from its log.
type readBack struct {
	mu     sync.Mutex
	values map[string]string
	grown  chan struct{}
}

// line takes one line of the log.
func (b *readBack) line(l kafka.LogEvent) {
	if l.Tag != "CONF" {
		return
	}
	name, value, ok := strings.Cut(strings.TrimSpace(unthreaded(l.Message)), " = ")
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values[kafkaprops.Canonical(name)] = value
	select {
	case b.grown <- struct{}{}:
	default:
	}
}

// wait returns what was said once all names were, or time is over.
func (b *readBack) wait(names []string, most time.Duration) map[string]string {
	over := time.After(most)
	for {
		b.mu.Lock()
		missing := slices.ContainsFunc(names, func(name string) bool { _, ok := b.values[name]; return !ok })
		found := maps.Clone(b.values)
		b.mu.Unlock()
		if !missing {
			return found
		}
		select {
		case <-b.grown:
		case <-over:
			return found
		}
	}
}
