//go:build cgo

package kafkaprops

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// The properties are those of the library that is built in.
func TestLibraryVersion(t *testing.T) {
	if _, version := kafka.LibraryVersion(); version != Library {
		t.Errorf("librdkafka is %s, its properties are known of %s: compare them with what rd_kafka_conf_properties_show lists now", version, Library)
	}
}

// outside is how librdkafka names the bounds of a number.
var outside = regexp.MustCompile(`is outside allowed range (-?\d+)\.\.(-?\d+)`)

// Every name is one that librdkafka knows, with the prefix of topics where
// that may stand, and refuses a bad value of: the bounds of numbers are those
// that it tells then.
func TestLibraryKnowsEveryName(t *testing.T) {
	t.Parallel()
	names := map[string]property{}
	for name, p := range properties {
		names[name] = p
		if p.topic && !strings.HasPrefix(name, topicPrefix) {
			names[topicPrefix+name] = p
		}
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, 16)
	for name, p := range names {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			// Text of any kind is taken; what becomes of it does not matter here.
			value := map[kind]string{boolean: "yes", enum: "foo", flags: "foo", integer: "-99999999", number: "-9"}[p.kind]
			err := made(kafka.ConfigMap{name: value})
			switch {
			case err != nil && strings.Contains(err.Error(), "No such configuration property"):
				t.Errorf("%s is not known to librdkafka", name)
			case err == nil && p.kind != text:
				t.Errorf("%s takes %q", name, value)
			case p.kind == integer:
				if m := outside.FindStringSubmatch(err.Error()); m == nil || m[1] != fmt.Sprint(p.least) || m[2] != fmt.Sprint(p.most) {
					t.Errorf("%s: %v, and not %d to %d", name, err, p.least, p.most)
				}
			}
		})
	}
	group.Wait()
	for _, name := range []string{"topic.client.id", "topic.topic.acks", "ACKS", "no.such.property"} {
		if err := made(kafka.ConfigMap{name: "x"}); err == nil || !strings.Contains(err.Error(), "No such configuration property") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// made makes a producer and ends it.
func made(m kafka.ConfigMap) error {
	if _, ok := m["log_level"]; !ok {
		m["log_level"] = "0"
	}
	p, err := kafka.NewProducer(&m)
	if err == nil {
		p.Close()
	}
	return err
}

// What the rules take is in force as it is written: librdkafka is given every
// number at both its ends, in decimal and hexadecimal digits, and every truth
// value and word in other letters, and says what it made of them.
func TestLibraryReadsWhatIsTaken(t *testing.T) {
	t.Parallel()
	rounds := []func(p property) string{
		func(p property) string { return spelled(p, strconv.FormatInt(p.least, 10), "T", 0) },
		func(p property) string { return spelled(p, strconv.FormatInt(p.most, 10), "f", 1) },
		func(p property) string { return spelled(p, fmt.Sprintf("0X%X", p.most), "TRUE", 2) },
		func(p property) string { return spelled(p, fmt.Sprintf("0x%x", max(p.least, 1)), "0", 3) },
	}
	for n, value := range rounds {
		m, want := kafka.ConfigMap{"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}, map[string]string{}
		for name, p := range properties {
			if p.as != "" || untold(name) || p.kind == text || p.kind == flags {
				continue
			}
			v := value(p)
			if reason, _ := p.refuse(v); reason != "" {
				t.Errorf("%s=%s: %s", name, v, reason)
			}
			m[name], want[name] = v, Normal(name, v)
		}
		got := inForce(t, m, len(want))
		for name, v := range want {
			if got[name] != v {
				t.Errorf("round %d: %s=%v is in force as %q, want %q", n, name, m[name], got[name], v)
			}
		}
	}
}

// What the sink's promises rest on is read as meant in every spelling that is
// taken.
func TestLibraryReadsPromises(t *testing.T) {
	t.Parallel()
	for _, m := range []kafka.ConfigMap{
		{"acks": "all", "enable.idempotence": "T", "enable.gapless.guarantee": "1"},
		{"acks": "ALL", "enable.idempotence": "TRUE", "enable.gapless.guarantee": "t"},
		{"acks": "-1", "enable.idempotence": "1", "enable.gapless.guarantee": "True"},
	} {
		want := map[string]string{"acks": "-1", "enable.idempotence": "true", "enable.gapless.guarantee": "true"}
		for name := range want {
			value := m[name].(string)
			if problems := (Rules{}).Check([]Property{{Name: name, Value: value, Line: 1}}); len(problems) > 0 || Normal(name, value) != want[name] {
				t.Errorf("%s=%s: %v, normally %s", name, value, problems, Normal(name, value))
			}
		}
		got := inForce(t, m, len(want))
		for name, v := range want {
			if got[name] != v {
				t.Errorf("%s=%v is in force as %q", name, m[name], got[name])
			}
		}
	}
}

// untold names what librdkafka's binding sets itself, what ends the process's
// logs, what has several words for one thing, and what other properties
// decide or have a say in.
func untold(name string) bool {
	switch name {
	case "enabled_events", "log.queue", "log_level", "internal.termination.signal", "auto.offset.reset", "api.version.request",
		"acks", "enable.idempotence", "enable.gapless.guarantee":
		return true
	}
	return strings.HasPrefix(name, topicPrefix) && properties[name].topic // named like one of the client
}

// spelled is a value: the number, the truth value, or word n.
func spelled(p property, number, truth string, n int) string {
	switch p.kind {
	case boolean:
		return truth
	case enum:
		words := strings.Fields(p.words)
		return strings.ToUpper(words[n%len(words)])
	case integer:
		return number
	}
	return "0.5"
}

// inForce is what librdkafka says of its configuration.
func inForce(t *testing.T, m kafka.ConfigMap, most int) map[string]string {
	t.Helper()
	logs := make(chan kafka.LogEvent, 2000)
	m["go.logs.channel.enable"], m["go.logs.channel"], m["debug"] = true, logs, "conf"
	p, err := kafka.NewProducer(&m)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	got := map[string]string{}
	for over := time.After(5 * time.Second); ; {
		select {
		case l := <-logs:
			line := l.Message
			if _, after, ok := strings.Cut(line, "]: "); ok {
				line = after // the thread's name stood there
			}
			if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok && l.Tag == "CONF" {
				got[Canonical(name)] = value
			}
		case <-time.After(500 * time.Millisecond):
			if len(got) >= most {
				return got
			}
		case <-over:
			return got
		}
	}
}
