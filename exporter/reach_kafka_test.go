//go:build cgo

package exporter_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"celldexport/internal/config"
)

// What is wrong with brokers or topic is named, with what to set, and no
// secret is.
func TestReachKafkaBrokers(t *testing.T) {
	t.Parallel()
	cluster := func(opts ...kfake.Opt) *kfake.Cluster {
		c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		for topic, conf := range map[string]map[string]string{
			"good": {"max.message.bytes": "2000000"}, "small": {"max.message.bytes": "1000012"},
			"compacted": {"max.message.bytes": "2000000", "cleanup.policy": "compact"},
		} {
			if err := c.CreateTopic(topic, 3, conf); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	open := cluster()
	guarded := cluster(kfake.EnableSASL(), kfake.Superuser("PLAIN", "celld", "right"))
	properties := filepath.Join(t.TempDir(), "kafka.properties")
	if err := os.WriteFile(properties, []byte("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=celld\nsasl.password=wrong-hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		topic, line, trouble string
		kafka                config.Kafka
	}{
		"good":        {topic: "good", kafka: config.Kafka{Brokers: open.ListenAddrs()}, line: "kafka: topic good has 3 partitions and takes messages of 2000000 bytes"},
		"small":       {topic: "small", kafka: config.Kafka{Brokers: open.ListenAddrs()}, line: "has 3 partitions", trouble: "kafka: topic small: max.message.bytes is 1000012, max_record_bytes needs 1114112"},
		"compacted":   {topic: "compacted", kafka: config.Kafka{Brokers: open.ListenAddrs()}, line: "has 3 partitions", trouble: "set cleanup.policy=delete"},
		"missing":     {topic: "missing", kafka: config.Kafka{Brokers: open.ListenAddrs()}, trouble: `kafka: topic "missing" does not exist: make it first`},
		"nobody":      {topic: "good", kafka: config.Kafka{Brokers: []string{"127.0.0.1:1"}}, trouble: "onnection refused"},
		"deaf":        {topic: "good", kafka: config.Kafka{Brokers: []string{deafPort(t)}}, trouble: "kafka: ask 127.0.0.1:"},
		"kept out":    {topic: "good", kafka: config.Kafka{Brokers: guarded.ListenAddrs(), Properties: properties}, trouble: "uthentication"},
		"wrong files": {topic: "good", kafka: config.Kafka{Brokers: open.ListenAddrs(), Properties: properties + ".none"}, trouble: "kafka.properties.none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines, trouble := reached(t, func(s *config.Settings) {
				s.Export.Sinks, s.Export.Topic, s.Kafka = []string{config.SinkKafka}, test.topic, test.kafka
				s.Kafka.Auth = config.AuthNone
			})
			if got := strings.Join(lines, "\n"); (got == "") != (test.line == "") || !strings.Contains(got, test.line) ||
				(trouble == "") != (test.trouble == "") || !strings.Contains(trouble, test.trouble) {
				t.Errorf("told: %q, trouble: %s", got, trouble)
			}
			if strings.Contains(trouble, "hunter2") {
				t.Error("the password is told")
			}
		})
	}
}
