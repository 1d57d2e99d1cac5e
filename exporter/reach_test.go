package exporter_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"celldexport/exporter"
	"celldexport/internal/config"
)

// reached asks the brokers that settings name.
func reached(t *testing.T, change func(*config.Settings)) (lines []string, trouble string) {
	t.Helper()
	s := config.Default()
	change(s)
	begin := time.Now()
	lines, err := exporter.ReachBrokers(t.Context(), s)
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	if err != nil {
		trouble = err.Error()
	}
	return lines, trouble
}

// deafPort accepts connections and never answers.
func deafPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// Each blob-stream broker is told by its name, those that answer and those
// that do not, and nothing is stored by asking.
func TestReachBlobStreamBrokers(t *testing.T) {
	t.Parallel()
	p := blobStreamPlace(t)
	use := func(s *config.Settings) {
		s.Export.Sinks = []string{config.SinkBlobStream}
		p.use(s)
	}
	lines, trouble := reached(t, use)
	slices.Sort(lines)
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "blob-stream: broker broker-a at 127.0.0.1:") || trouble != "" {
		t.Errorf("%q, %s", lines, trouble)
	}
	deaf := deafPort(t)
	lines, trouble = reached(t, func(s *config.Settings) {
		use(s)
		s.BlobStream.Brokers = append(s.BlobStream.Brokers, "broker-c=127.0.0.1:1", "broker-d="+deaf)
	})
	if len(lines) != 2 || !strings.Contains(trouble, "blob-stream: broker broker-c at 127.0.0.1:1: ") ||
		!strings.Contains(trouble, "connection refused") || !strings.Contains(trouble, "blob-stream: broker broker-d at "+deaf) {
		t.Errorf("%q, %s", lines, trouble)
	}
	if n := len(p.records()); n != 0 {
		t.Errorf("%d records were stored by asking", n)
	}
	if lines, trouble = reached(t, func(s *config.Settings) { p.use(s) }); len(lines) != 0 || trouble != "" {
		t.Errorf("brokers of a sink that is not named: %q, %s", lines, trouble)
	}
}
