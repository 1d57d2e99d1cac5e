package exporter_test

import (
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or, in a process that a test started to be killed,
// an exporter.
func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		os.Exit(childMain(spec))
	}
	goleak.VerifyTestMain(m)
}

// seed is what a random test begins with: EXPORTD_SEED, or its own.
func seed(t *testing.T, own uint64) uint64 {
	t.Helper()
	text := os.Getenv("EXPORTD_SEED")
	if text == "" {
		return own
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("EXPORTD_SEED=%q is not a number", text)
	}
	return n
}
