//go:build cgo

package demo

import (
	"strings"
	"testing"
)

// The same through Kafka: a broker in this process, the real client.
func TestDemoThroughKafka(t *testing.T) {
	t.Parallel()
	equal, out := play(t, Options{Sink: "kafka"})
	if !equal || !strings.HasSuffix(out, "consumer equals source, certified to head\n") {
		t.Errorf("the demo ends with: %s", out)
	}
}
