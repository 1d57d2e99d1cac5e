package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"celldexport/cmd/internal/cli"
	"celldexport/internal/config"
)

// monitor answers the HTTP requests: probes, metrics and state. None of its
// answers waits for a bucket or a broker, and /livez does not depend on one:
// a restart would not bring it back.
type monitor struct {
	settings *config.Settings
	registry *prometheus.Registry
	now      func() time.Time
	started  time.Time
	// engine is nil until the exporter has started.
	engine atomic.Pointer[attached]
}

// attached is an exporter and when it was started: it has not ticked before
// its first round is over.
type attached struct {
	engine
	since time.Time
}

func newMonitor(settings *config.Settings, registry *prometheus.Registry) *monitor {
	return &monitor{settings: settings, registry: registry, now: time.Now, started: time.Now()}
}

// attach makes the exporter visible.
func (m *monitor) attach(e engine) { m.engine.Store(&attached{engine: e, since: m.now()}) }

// server has bounds on every step of a request, so that no client can hold a
// connection for ever.
func (m *monitor) server() *http.Server {
	return &http.Server{
		Handler:           m.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

func (m *monitor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) { answer(w, r, m.live()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answer(w, r, m.ready()) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /state", m.state)
	mux.HandleFunc("GET /{$}", index)
	return mux
}

// check is one line of a probe.
type check struct {
	name string
	ok   bool
	note string
}

// patience is how long the loop may go without moving before the process
// counts as stuck: without coming round and without anything done inside a
// round. Rounds follow the flush interval.
func (m *monitor) patience() time.Duration {
	return max(2*time.Minute, 6*m.settings.Export.Flush)
}

func (m *monitor) live() []check {
	e := m.engine.Load()
	switch {
	case !m.settings.Export.Enabled:
		return []check{{"loop", true, "export disabled"}}
	case e == nil:
		return []check{{"loop", true, "starting"}}
	}
	last := e.Ticked()
	if last.Before(e.since) {
		last = e.since
	}
	silent := m.now().Sub(last)
	return []check{{"loop", silent <= m.patience(), fmt.Sprintf("last moved %s ago", silent.Round(time.Second))}}
}

func (m *monitor) ready() []check {
	e := m.engine.Load()
	settings := check{"settings", true, "valid"}
	switch {
	case !m.settings.Export.Enabled:
		return []check{settings, {"export", true, "disabled"}}
	case e == nil:
		note := fmt.Sprintf("starting for %s: opens the state directory and reads the fleet bucket",
			m.now().Sub(m.started).Round(time.Second))
		return []check{settings, {"export", false, note}}
	}
	if why := e.Unready(); why != "" {
		return []check{settings, {"export", false, why}}
	}
	return []check{settings, {"export", true, "running"}}
}

// answer writes a probe: 200 "ok" or 503 with what failed, every check with
// ?verbose.
func answer(w http.ResponseWriter, r *http.Request, checks []check) {
	verbose := r.URL.Query().Has("verbose")
	code, text := http.StatusOK, ""
	for _, c := range checks {
		mark := "[+]"
		if !c.ok {
			code, mark = http.StatusServiceUnavailable, "[-]"
		}
		if verbose || !c.ok {
			text += mark + c.name + ": " + c.note + "\n"
		}
	}
	if code == http.StatusOK {
		text += "ok\n"
	} else {
		text += "failed\n"
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// The client may be gone; nobody is left to tell.
	_, _ = w.Write([]byte(text))
}

// stateDocument is what /state answers.
type stateDocument struct {
	Version string `json:"version"`
	// State is disabled, starting or running.
	State    string           `json:"state"`
	Ready    bool             `json:"ready"`
	UptimeMS int64            `json:"uptime_ms"`
	Settings *config.Settings `json:"settings"`
	// Export is the exporter's own account, absent until it has started.
	Export any `json:"export,omitempty"`
}

func (m *monitor) state(w http.ResponseWriter, _ *http.Request) {
	doc := stateDocument{
		Version:  cli.Version(),
		State:    "disabled",
		UptimeMS: m.now().Sub(m.started).Milliseconds(),
		Settings: m.settings,
	}
	if m.settings.Export.Enabled {
		doc.State = "starting"
		if e := m.engine.Load(); e != nil {
			doc.State, doc.Ready, doc.Export = "running", e.Unready() == "", e.Status()
		}
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		http.Error(w, "encode the state: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(text, '\n'))
}

func index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("exportd " + cli.Version() + `

/livez    the loop comes round, or moves in a long round (?verbose)
/readyz   settings valid, first scan done, bucket reached (?verbose)
/metrics  Prometheus metrics
/state    settings, streams, spool, rounds and sinks as JSON
`))
}
