package discover

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celldexport/sinks/blobstream/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	got, err := Parse([]string{" a=host:1", "b=[::1]:65535"})
	if err != nil || !reflect.DeepEqual(got, Static{{ID: "a", Address: "host:1"}, {ID: "b", Address: "[::1]:65535"}}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range [][]string{
		nil, {""}, {"host:1"}, {"=host:1"}, {"a=host"}, {"a=host:0"}, {"a=host:65536"}, {"a=:1"}, {"a=h:1", "a=h:2"},
		{"k8s://x"}, {"k8s:///y"}, {"k8s://x/"}, {"k8s://x/y/z"}, {"k8s://x/y", "a=h:1"},
	} {
		if got, err := Parse(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func TestStatic(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	list := Static{{ID: "a", Address: "h:1"}}
	list.Watch(ctx, func(got []route.Broker) {
		if !reflect.DeepEqual(got, []route.Broker(list)) {
			t.Errorf("got %v", got)
		}
		cancel()
	}, func(err error) { t.Error(err) })
}

// cluster is a stand-in for an API server.
type cluster struct {
	*httptest.Server
	mu    sync.Mutex
	token string
	// refuse is the status of every answer, 0 to serve.
	refuse  int
	lists   int
	watches []string // resource versions
	object  *json.RawMessage
	version int
	events  []chan string // lines of each watch; an empty one ends it
}

func newCluster(t *testing.T, start func(*httptest.Server)) *cluster {
	c := &cluster{token: "first", version: 10}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	start(c.Server)
	t.Cleanup(c.Close)
	return c
}

func (c *cluster) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	q := r.URL.Query()
	switch {
	case r.Header.Get("Authorization") != "Bearer "+c.token:
		c.mu.Unlock()
		http.Error(w, "no", http.StatusUnauthorized)
	case c.refuse != 0:
		defer c.mu.Unlock()
		http.Error(w, "no", c.refuse)
	case r.URL.Path != "/api/v1/namespaces/ns/endpoints" || q.Get("fieldSelector") != "metadata.name=svc":
		c.mu.Unlock()
		http.NotFound(w, r)
	case q.Get("watch") == "":
		defer c.mu.Unlock()
		c.lists++
		items := []json.RawMessage{}
		if c.object != nil {
			items = append(items, *c.object)
		}
		json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"resourceVersion": fmt.Sprint(c.version)}, "items": items})
	default:
		c.watches = append(c.watches, q.Get("resourceVersion"))
		events := make(chan string)
		c.events = append(c.events, events)
		c.mu.Unlock()
		w.(http.Flusher).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case line := <-events:
				if line == "" {
					return
				}
				fmt.Fprintln(w, line)
				w.(http.Flusher).Flush()
			}
		}
	}
}

// patience is how long a test waits for what has to come.
const patience = 90 * time.Second

// send sends lines to watch number n, from 1.
func (c *cluster) send(t *testing.T, n int, lines ...string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		open := len(c.events)
		var events chan string
		if open >= n {
			events = c.events[n-1]
		}
		c.mu.Unlock()
		if events != nil {
			for _, line := range lines {
				select {
				case events <- line:
				case <-time.After(patience):
					t.Fatalf("watch %d takes no line", n)
				}
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d watches, want %d", open, n)
		}
	}
}

// watched is what a Watch said.
type watched struct {
	members chan []route.Broker
	trouble chan error
}

func follow(t *testing.T, k *Kubernetes) *watched {
	w := &watched{make(chan []route.Broker, 100), make(chan error, 100)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.Watch(ctx, func(list []route.Broker) { w.members <- list }, func(err error) {
			select {
			case w.trouble <- err:
			default: // nobody looks
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		k.Client.CloseIdleConnections()
	})
	return w
}

func (w *watched) next(t *testing.T) string {
	t.Helper()
	select {
	case list := <-w.members:
		var parts []string
		for _, b := range list {
			parts = append(parts, b.ID+"="+b.Address)
		}
		return strings.Join(parts, " ")
	case <-time.After(patience):
		t.Fatal("no members")
		return ""
	}
}

// failure waits for trouble that says text.
func (w *watched) failure(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case err := <-w.trouble:
			if err != nil && strings.Contains(err.Error(), text) {
				return
			}
		case <-timeout:
			t.Fatalf("no trouble with %q", text)
		}
	}
}

func client(c *cluster, token func() (string, error)) *Kubernetes {
	return &Kubernetes{
		Namespace: "ns", Service: "svc", Server: c.URL, Client: &http.Client{Transport: &http.Transport{}}, Token: token,
		RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond,
	}
}

const twoPods = `{"metadata":{"resourceVersion":"11"},"subsets":[
	{"addresses":[{"ip":"10.0.0.2","targetRef":{"kind":"Pod","name":"broker-1"}},{"ip":"10.0.0.1","hostname":"zero","targetRef":{"name":"broker-0"}}],
	 "notReadyAddresses":[{"ip":"10.0.0.9"}],"ports":[{"name":"grpc","port":9090},{"port":1}]},
	{"addresses":[{"ip":"10.0.0.2"},{"ip":"10.0.0.3","hostname":"named"},{"ip":"fd00::4"}],"ports":[{"port":9090}]},
	{"addresses":[{"ip":"10.0.0.7"}]}]}`

func event(kind, object string) string {
	var line bytes.Buffer
	if err := json.Compact(&line, fmt.Appendf(nil, `{"type":%q,"object":%s}`, kind, object)); err != nil {
		panic(err)
	}
	return line.String()
}

func TestKubernetes(t *testing.T) {
	c := newCluster(t, (*httptest.Server).Start)
	w := follow(t, client(c, func() (string, error) { c.mu.Lock(); defer c.mu.Unlock(); return c.token, nil }))
	if got := w.next(t); got != "" {
		t.Errorf("a service that does not exist has %s", got)
	}
	c.send(t, 1, event("ADDED", twoPods))
	const all = "broker-0=10.0.0.1:9090 broker-1=10.0.0.2:9090 fd00::4:9090=[fd00::4]:9090 named=10.0.0.3:9090"
	if got := w.next(t); got != all {
		t.Errorf("got %s", got)
	}
	c.send(t, 1, event("BOOKMARK", `{"metadata":{"resourceVersion":"15"}}`))
	c.send(t, 1, event("MODIFIED", strings.Replace(twoPods, `"11"`, `"16"`, 1))) // the same brokers are not told again
	c.send(t, 1, event("MODIFIED", `{"metadata":{"resourceVersion":"17"},"subsets":[{"addresses":[{"ip":"10.0.0.1","targetRef":{"name":"broker-0"}}],"ports":[{"port":9090}]}]}`))
	if got := w.next(t); got != "broker-0=10.0.0.1:9090" {
		t.Errorf("got %s", got)
	}
	c.send(t, 1, "") // the server ends the watch: it goes on where it was
	c.send(t, 2, event("DELETED", `{"metadata":{"resourceVersion":"18"},"subsets":[{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"port":9090}]}]}`))
	if got := w.next(t); got != "" {
		t.Errorf("a service that was deleted has %s", got)
	}
	c.mu.Lock()
	if !reflect.DeepEqual(c.watches, []string{"10", "17"}) || c.lists != 1 {
		t.Errorf("watches from %v, %d lists", c.watches, c.lists)
	}
	raw := json.RawMessage(twoPods)
	c.object, c.version = &raw, 30
	c.token = "second" // read anew before every request
	c.mu.Unlock()
	c.send(t, 2, event("ERROR", `{"kind":"Status","code":410,"message":"too old"}`))
	if got := w.next(t); got != all {
		t.Errorf("after a watch that was too old: %s", got)
	}
}

func TestKubernetesTrouble(t *testing.T) {
	c := newCluster(t, (*httptest.Server).Start)
	c.refuse = http.StatusForbidden
	failing := errors.New("no token")
	var mu sync.Mutex
	var tokenErr error = failing
	w := follow(t, client(c, func() (string, error) { mu.Lock(); defer mu.Unlock(); return "first", tokenErr }))
	w.failure(t, "no token")
	mu.Lock()
	tokenErr = nil
	mu.Unlock()
	w.failure(t, "needs get, list and watch on endpoints in namespace ns")
	raw := json.RawMessage(twoPods)
	c.mu.Lock()
	c.refuse, c.object = 0, &raw
	c.mu.Unlock()
	if got := w.next(t); !strings.HasPrefix(got, "broker-0=") {
		t.Errorf("got %s", got)
	}
	// What goes wrong later leaves the members as they are.
	c.send(t, 1, event("ERROR", `{"code":500,"message":"etcd is away"}`))
	w.failure(t, "etcd is away")
	c.send(t, 2, `{"type":"ADDED","object":[`)
	c.send(t, 2, "")
	w.failure(t, "read an event")
	c.send(t, 3)
	c.mu.Lock()
	c.refuse = http.StatusServiceUnavailable
	c.mu.Unlock()
	c.send(t, 3, event("ERROR", `{"code":410}`))
	w.failure(t, "503")
	select {
	case list := <-w.members:
		t.Errorf("members changed to %v", list)
	default:
	}
}

// TestInCluster finds the API server as a pod does, by TLS with the cluster's
// own authority.
func TestInCluster(t *testing.T) {
	c := newCluster(t, (*httptest.Server).StartTLS)
	dir := t.TempDir()
	env := map[string]string{}
	getenv := func(name string) string { return env[name] }
	if _, err := inCluster("ns", "svc", dir, getenv); err == nil || !strings.Contains(err.Error(), "not a pod") {
		t.Errorf("outside a cluster: %v", err)
	}
	host := strings.TrimPrefix(c.URL, "https://")
	env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"], _ = strings.Cut(host, ":")
	if _, err := inCluster("ns", "svc", dir, getenv); err == nil {
		t.Error("without a certificate it is no error")
	}
	write := func(name string, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ca.crt", []byte("nothing"))
	if _, err := inCluster("ns", "svc", dir, getenv); err == nil || !strings.Contains(err.Error(), "holds no certificate") {
		t.Errorf("with a bad certificate: %v", err)
	}
	write("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}))
	write("token", []byte("first\n"))
	k, err := inCluster("ns", "svc", dir, getenv)
	if err != nil {
		t.Fatal(err)
	}
	raw := json.RawMessage(twoPods)
	c.object = &raw
	if got := follow(t, k).next(t); !strings.HasPrefix(got, "broker-0=10.0.0.1:9090") {
		t.Errorf("got %s", got)
	}
}
