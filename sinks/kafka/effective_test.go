//go:build cgo

package kafka

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"celldexport/internal/kafkaprops"
)

// Should the rules take what they must not, librdkafka's own account of its
// configuration still tells, with the line that is to blame.
func TestWhatIsInForceIsReadBack(t *testing.T) {
	t.Parallel()
	cfg := Config{Brokers: []string{"127.0.0.1:1"}, Topic: testTopic, Properties: "kafka.properties"}.withDefaults()
	for line, want := range map[string]string{
		"message.max.bytes=2000_000":                   `librdkafka takes it for "2000", not "2000_000"`,
		"message.max.bytes=4294969296":                 `librdkafka takes it for "2000", not "4294969296"`,
		"queue.buffering.max.kbytes=010000":            `librdkafka takes it for "4096", not "010000"`,
		"topic.metadata.refresh.interval.ms=9s":        `librdkafka takes it for "9", not "9s"`,
		"test.mock.num.brokers=1":                      `librdkafka takes it for "1", and the sink does without`,
		"max.in.flight=6":                              "`max.in.flight` must be set <= 5",
		"retries=0":                                    "`retries` must be set >= 1",
		"compression.codec=foo":                        `Invalid value "foo"`,
		"no.such.property=1":                           "No such configuration property",
		"ssl.ca.location=/none\nsecurity.protocol=ssl": "ssl.ca.location failed",
	} {
		list, problems := kafkaprops.Parse([]byte("\n\n" + line))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		err := newConf(&cfg, list).try()
		var found kafkaprops.Errors
		if !errors.As(err, &found) || len(found) != 1 || !strings.Contains(found[0].Reason, want) ||
			found[0].File != "kafka.properties" || found[0].Line != 3 || found[0].Name != list[0].Name {
			t.Errorf("%q: %v", line, err)
		}
	}
	// Alone in a file or not, every spelling of the same is one property.
	list, _ := kafkaprops.Parse([]byte("topic.acks=1\nrequest.required.acks=all\nlog.thread.name=false\ndebug=broker"))
	if err := newConf(&cfg, list).try(); err != nil {
		t.Errorf("the last of two lines counts, and not: %v", err)
	}
	// What nobody wrote is a fault of the sink's own.
	c := newConf(&cfg, nil)
	good := map[string]string{}
	for _, name := range reliedOn() {
		good[name] = kafkaprops.Normal(name, c.values[name])
	}
	if err := c.compare(good); err != nil {
		t.Error(err)
	}
	for _, name := range never() {
		bad := maps.Clone(good)
		bad[name] = "x"
		if err := c.compare(bad); err == nil || !strings.Contains(err.Error(), "the sink's own properties: "+name+":") {
			t.Errorf("with %s: %v", name, err)
		}
	}
	for _, name := range reliedOn() {
		bad := maps.Clone(good)
		delete(bad, name)
		if err := c.compare(bad); err == nil || !strings.Contains(err.Error(), "the sink's own properties: "+name+":") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// Everything that is wrong with a file comes from New with its line, and no
// secret does.
func TestNewTellsTheLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"linger.ms=1\ntopic.acks=1":                                     ":2: topic.acks: ",
		"linger.ms=1\nmax.in.flight=6":                                  ":2: max.in.flight: ",
		"security.protocol=ssl\nssl.key.pem=hunter2":                    ":2: ssl.key.pem: ",
		"security.protocol=ssl\nssl.keystore.location=/none/hunter.p12": ":2: ssl.keystore.location: ",
		"sasl.mechanism=FOO\nsecurity.protocol=sasl_ssl":                ":1: sasl.mechanism: ",
	} {
		path := properties(t, text)
		_, err := New(Config{Brokers: []string{"127.0.0.1:1"}, Topic: testTopic, Properties: path})
		if err == nil || !strings.Contains(err.Error(), "kafka sink: "+path+want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
