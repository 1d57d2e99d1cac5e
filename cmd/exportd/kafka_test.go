//go:build cgo

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withKafka are the variables of an export to Kafka, with a file of
// properties.
func withKafka(t *testing.T, text string) (environ []string, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "kafka.properties")
	write(t, file, text)
	return append(on(t), "CELLD_EXPORT_SINK=kafka", "CELLD_EXPORT_KAFKA_BROKERS=127.0.0.1:1", "CELLD_EXPORT_KAFKA_PROPERTIES="+file), file
}

// Without a word to any broker, check-config tells of the file of properties
// what the rules refuse and what only the client knows, with its line.
func TestCheckConfigJudgesKafkaProperties(t *testing.T) {
	for text, want := range map[string]string{
		"\ntopic.acks=1\nno.such.property=1":                     ":2: kafka.properties: topic.acks: \"1\" is less than all",
		"\nsecurity.protocol=ssl\nssl.ca.location=/none/hunter2": ":3: ssl.ca.location: ",
		"\n\nmax.in.flight=6":                                    ":3: max.in.flight: ",
	} {
		environ, file := withKafka(t, text)
		b := newBench(environ...)
		if code := b.main(t.Context(), []string{"check-config"}); code != 2 || !strings.Contains(b.err.String(), file+want) {
			t.Errorf("%q: exit %d: %s%s", text, code, &b.out, &b.err)
		}
		b = newBench(append(environ, "CELLD_EXPORT=0")...)
		if code := b.main(t.Context(), []string{"check-config"}); code != 0 || !strings.Contains(b.err.String(), "once the export is on: "+file+want) {
			t.Errorf("%q, off: exit %d: %s%s", text, code, &b.out, &b.err)
		}
	}
	environ, _ := withKafka(t, "linger.ms=1")
	b := newBench(environ...)
	if code := b.main(t.Context(), []string{"check-config"}); code != 0 || !strings.Contains(b.out.String(), "settings are valid, export is on") {
		t.Errorf("exit %d: %s%s", code, &b.out, &b.err)
	}
}

// A program that was built without cgo is whole but for the Kafka sink, which
// it refuses, with what to do about it.
func TestBuildWithoutCgo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a program is built")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("the program cannot be built here: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run := func(name string, environ []string, args ...string) (string, error) {
		c := exec.CommandContext(ctx, name, args...)
		c.Env = environ
		out, err := c.CombinedOutput()
		return string(out), err
	}
	bare := append(os.Environ(), "CGO_ENABLED=0")
	program := filepath.Join(t.TempDir(), "exportd")
	for _, args := range [][]string{
		{"build", "-o", program, "."},
		{"test", "-count=1", "celldexport/sinks/kafka", "celldexport/internal/kafkaprops"},
	} {
		if out, err := run(goTool, bare, args...); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if out, err := run(program, on(t), "check-config"); err != nil || !strings.Contains(out, "settings are valid") {
		t.Errorf("without the sink: %v\n%s", err, out)
	}
	environ, _ := withKafka(t, "linger.ms=1")
	for _, verb := range []string{"check-config", "run"} {
		out, err := run(program, environ, verb)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "CGO_ENABLED=1") {
			t.Errorf("%s with the sink: %v\n%s", verb, err, out)
		}
	}
}
