package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"celldexport/internal/config"
)

// ask sends one request to a monitor.
func ask(m *monitor, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	m.handler().ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
	return w
}

func enabled() *config.Settings {
	s := config.Default()
	s.Export.Enabled = true
	return s
}

func TestProbes(t *testing.T) {
	now := time.Now()
	fresh := &fakeEngine{ready: true, ticked: now}
	unready := &fakeEngine{ticked: now}
	stuck := &fakeEngine{ready: true, ticked: now.Add(-3 * time.Minute)}
	slow := enabled()
	slow.Export.Flush = time.Minute
	cases := []struct {
		name     string
		settings *config.Settings
		engine   *fakeEngine
		path     string
		code     int
		body     string
	}{
		{"off lives", config.Default(), nil, "/livez", 200, "ok\n"},
		{"off is ready", config.Default(), nil, "/readyz", 200, "ok\n"},
		{"off says so", config.Default(), nil, "/livez?verbose", 200, "[+]loop: export disabled\nok\n"},
		{"starting lives", enabled(), nil, "/livez", 200, "ok\n"},
		{"starting is not ready", enabled(), nil, "/readyz", 503, "[-]export: starting for 0s: opens the state directory and reads the fleet bucket\nfailed\n"},
		{"running", enabled(), fresh, "/livez?verbose", 200, "[+]loop: last moved 0s ago\nok\n"},
		{"ready", enabled(), fresh, "/readyz?verbose", 200, "[+]settings: valid\n[+]export: running\nok\n"},
		{"no bucket yet: alive", enabled(), unready, "/livez", 200, "ok\n"},
		{"no bucket yet: not ready", enabled(), unready, "/readyz", 503, "failed"},
		{"stuck", enabled(), stuck, "/livez", 503, "[-]loop: last moved 3m0s ago\nfailed\n"},
		{"slow rounds are not stuck", slow, stuck, "/livez", 200, "ok\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newMonitor(c.settings, newRegistry())
			// Started ten minutes ago.
			m.now = func() time.Time { return now.Add(-10 * time.Minute) }
			if c.engine != nil {
				m.attach(c.engine)
			}
			m.now = func() time.Time { return now }
			w := ask(m, http.MethodGet, c.path)
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.body) {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, c.code, c.body)
			}
		})
	}
}

// A first round may take as long as any other.
func TestLiveBeforeTheFirstRound(t *testing.T) {
	start := time.Now()
	m := newMonitor(enabled(), newRegistry())
	m.now = func() time.Time { return start }
	m.attach(&fakeEngine{})
	for after, want := range map[time.Duration]int{0: 200, m.patience(): 200, m.patience() + time.Second: 503} {
		m.now = func() time.Time { return start.Add(after) }
		if w := ask(m, http.MethodGet, "/livez"); w.Code != want {
			t.Errorf("after %v: %d %s", after, w.Code, w.Body)
		}
	}
}

func TestStateShowsSettingsAndEngine(t *testing.T) {
	for name, c := range map[string]struct {
		settings *config.Settings
		engine   *fakeEngine
		state    string
		export   bool
	}{
		"off":      {config.Default(), nil, "disabled", false},
		"starting": {enabled(), nil, "starting", false},
		"running":  {enabled(), &fakeEngine{ready: true}, "running", true},
	} {
		m := newMonitor(c.settings, newRegistry())
		if c.engine != nil {
			m.attach(c.engine)
		}
		w := ask(m, http.MethodGet, "/state")
		var got struct {
			State    string
			Ready    bool
			Settings struct {
				Export struct {
					FlushMS int `json:"flush_ms"`
				}
			}
			Export *struct{ Streams int }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v: %s", name, err, w.Body)
		}
		if got.State != c.state || got.Settings.Export.FlushMS != 10000 || (got.Export != nil) != c.export || got.Ready != c.export {
			t.Errorf("%s: %s", name, w.Body)
		}
	}
}

func TestOtherPathsAndMethods(t *testing.T) {
	m := newMonitor(config.Default(), newRegistry())
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/", 200}, {"HEAD", "/livez", 200}, {"GET", "/nothing", 404}, {"POST", "/livez", 405},
		{"DELETE", "/state", 405}, {"GET", "/livez/x", 404}, {"GET", "/debug/pprof/", 404},
	} {
		if w := ask(m, c.method, c.path); w.Code != c.code {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.code)
		}
	}
}

func TestMetricsOfTheOffState(t *testing.T) {
	registry := newRegistry()
	m := newMonitor(config.Default(), registry)
	body := ask(m, http.MethodGet, "/metrics").Body.String()
	if !strings.Contains(body, "exportd_build_info{") {
		t.Error("no build info")
	}
	if strings.Contains(body, "celld_export") {
		t.Error("the off state reports metrics of the export")
	}
	problems, err := testutil.GatherAndLint(registry, "exportd_build_info")
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// The off state must not touch what the export would: neither an engine is
// made nor a directory read.
func TestOffStateStaysUpAndStopsClean(t *testing.T) {
	b := newBench("CELLD_EXPORT=0", "CELLD_WATCH=/nonexistent", "CELLD_BUCKET=s3://fleet", "EXPORTD_LISTEN=127.0.0.1:0")
	code := b.start(t, "run")
	b.signals <- syscall.SIGTERM
	if got := await(t, "the end of the program", code); got != 0 {
		t.Errorf("exit %d: %s", got, &b.err)
	}
	if !strings.Contains(b.err.String(), "exportd has stopped") {
		t.Errorf("the log does not tell the end: %s", &b.err)
	}
	if b.fake.options.settings != nil {
		t.Error("an exporter was started with the export off")
	}
}

func TestStatusPrintsTheState(t *testing.T) {
	m := newMonitor(enabled(), newRegistry())
	m.attach(&fakeEngine{ready: true})
	server := httptest.NewServer(m.handler())
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	b := newBench("EXPORTD_LISTEN=" + strings.TrimPrefix(server.URL, "http://"))
	if code := b.main(t.Context(), []string{"status"}); code != 0 {
		t.Fatalf("exit %d: %s", code, &b.err)
	}
	if !json.Valid(b.out.Bytes()) || !strings.Contains(b.out.String(), `"state": "running"`) {
		t.Errorf("got %s", &b.out)
	}
}

func TestStatusOfSomethingElse(t *testing.T) {
	for _, c := range []struct {
		code int
		body string
		want string
	}{{404, "", "404 Not Found"}, {200, "<html>", "answers no JSON"}} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body))
		}))
		b := newBench()
		code := b.main(t.Context(), []string{"status", "--addr", strings.TrimPrefix(server.URL, "http://")})
		if code != 1 || !strings.Contains(b.err.String(), c.want) {
			t.Errorf("exit %d: %s", code, &b.err)
		}
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	}
}
