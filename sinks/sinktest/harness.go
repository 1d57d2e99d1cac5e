package sinktest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/envelope/apply"
	"celldexport/sinks"
	"celldexport/sinks/delivery"
)

// Harness is a spool that a sink sends from, and what a consumer must come to
// hold. It is used by one goroutine.
type Harness struct {
	// Spool and Engine are those of the present life, nil before Begin.
	Spool  *delivery.Spool
	Engine *delivery.Engine
	// Last is the last unit of every stream.
	Last map[envelope.Stream]envelope.Position
	// Logs is what the engine logs, and the sink if it is made with Logger.
	Logs *Logs

	t      testing.TB
	dir    string
	epoch  uint64
	source *apply.State
	// lives are the watches of every state directory, the last one's is of
	// the present one.
	lives []*watch
	stop  context.CancelFunc
	done  chan error
}

// New makes a harness whose spool and engine are in a directory of t. They end
// with t at the latest.
func New(t testing.TB) *Harness {
	h := &Harness{
		t: t, dir: t.TempDir(), epoch: 3, source: apply.New(), lives: []*watch{newWatch(t)},
		Last: map[envelope.Stream]envelope.Position{}, Logs: new(Logs),
	}
	t.Cleanup(h.End)
	return h
}

// Logger writes to Logs.
func (h *Harness) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(h.Logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Begin starts spool and engine with a sink, again after End.
func (h *Harness) Begin(sink sinks.Sink) {
	h.t.Helper()
	dir := filepath.Join(h.dir, fmt.Sprint("life", len(h.lives)))
	spool := filepath.Join(dir, "spool")
	if err := os.MkdirAll(spool, 0o755); err != nil {
		h.t.Fatal(err)
	}
	var err error
	if h.Spool, err = delivery.OpenSpool(spool, delivery.Options{}); err != nil {
		h.t.Fatal(err)
	}
	h.Engine, err = delivery.New(delivery.Config{
		Spool: h.Spool, Sinks: []sinks.Sink{watched{sink, h.watch()}}, Dir: dir, Logger: h.Logger(), RestartMin: 10 * time.Millisecond,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	// As the exporter does: from then on no entry is looked up for whether
	// its stream is behind.
	if _, err = h.Engine.Lagging(); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.stop, h.done = cancel, make(chan error, 1)
	go func(engine *delivery.Engine) { h.done <- engine.Run(ctx) }(h.Engine)
}

// End stops everything as a process that ends would: nothing is flushed. A
// sink that does not end in time is an error.
func (h *Harness) End() {
	h.t.Helper()
	if h.stop == nil {
		return
	}
	began := time.Now()
	h.stop()
	h.stop = nil
	select {
	case err := <-h.done:
		if err != nil {
			h.t.Error(err)
		}
	case <-time.After(Within):
		h.t.Fatalf("the engine does not end within %v", Within)
	}
	if took := time.Since(began); took > endWithin {
		h.t.Errorf("ending took %v", took)
	}
	if err := h.Engine.Close(); err != nil {
		h.t.Error(err)
	}
	if err := h.Spool.Close(); err != nil {
		h.t.Error(err)
	}
}

// NewLife is that of a node whose state directory is lost: the next Begin
// starts with an empty one, and streams go on in a new epoch.
func (h *Harness) NewLife() {
	h.End()
	h.lives = append(h.lives, newWatch(h.t))
	h.epoch++
}

func (h *Harness) watch() *watch { return h.lives[len(h.lives)-1] }

// Flush waits until everything is delivered and certified.
func (h *Harness) Flush() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), Within)
	defer cancel()
	if err := h.Engine.Flush(ctx); err != nil {
		h.t.Fatalf("%v; sink: %+v\n%s", err, h.Status(), h.Logs)
	}
}

// Status is how the sink fares.
func (h *Harness) Status() delivery.SinkStatus {
	h.t.Helper()
	list, err := h.Engine.Status()
	if err != nil {
		h.t.Fatal(err)
	}
	return list[0]
}

// Logs keeps log lines.
type Logs struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

// Write implements io.Writer; it does not fail.
func (l *Logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

// String is all that was logged.
func (l *Logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// Wait waits until a line holds text.
func (l *Logs) Wait(t testing.TB, text string) {
	t.Helper()
	Eventually(t, "a log line with "+text, func() bool { return strings.Contains(l.String(), text) })
}
