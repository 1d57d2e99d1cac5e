package blobstream_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"celldexport/sinks/blobstream"
	"celldexport/sinks/blobstream/brokertest"
	"celldexport/sinks/blobstream/discover"
	blobstreampb "celldexport/sinks/blobstream/proto"
	"celldexport/sinks/blobstream/route"
	"celldexport/sinks/sinktest"
)

// apiServer is a stand-in for the API server: one Endpoints object, listed and
// watched. While it is away every request fails.
type apiServer struct {
	*httptest.Server
	mu      sync.Mutex
	away    bool
	version int
	object  json.RawMessage // nil while there is none
	changed chan struct{}
}

func newAPIServer(t *testing.T) *apiServer {
	a := &apiServer{version: 1, changed: make(chan struct{})}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(a.Close)
	return a
}

// set changes the object: the service's pods are ready, or there is no service.
func (a *apiServer) set(pods ...route.Broker) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.object = nil
	if len(pods) > 0 {
		a.object = endpoints(a.version, pods)
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// leave ends all watches and refuses requests, or serves again.
func (a *apiServer) leave(away bool) {
	a.mu.Lock()
	a.away = away
	a.mu.Unlock()
	if away {
		a.CloseClientConnections()
	}
}

// endpoints is the object as Kubernetes writes it, a subset for each port.
func endpoints(version int, pods []route.Broker) json.RawMessage {
	type object = map[string]any
	var subsets []object
	for _, p := range pods {
		host, port, _ := net.SplitHostPort(p.Address)
		n, _ := strconv.Atoi(port)
		subsets = append(subsets, object{
			"addresses":         []object{{"ip": host, "targetRef": object{"kind": "Pod", "name": p.ID}}},
			"notReadyAddresses": []object{{"ip": "203.0.113.9", "targetRef": object{"kind": "Pod", "name": "broker-not-ready"}}},
			"ports":             []object{{"name": "grpc", "port": n}},
		})
	}
	b, err := json.Marshal(object{"metadata": object{"name": "brokers", "resourceVersion": strconv.Itoa(version)}, "subsets": subsets})
	if err != nil {
		panic(err) // texts and numbers
	}
	return b
}

func (a *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	version, object, away := a.version, a.object, a.away
	a.mu.Unlock()
	q := r.URL.Query()
	switch {
	case away:
		http.Error(w, "away", http.StatusServiceUnavailable)
	case r.Header.Get("Authorization") != "Bearer of the test":
		http.Error(w, "no", http.StatusUnauthorized)
	case r.URL.Path != "/api/v1/namespaces/blob-stream/endpoints" || q.Get("fieldSelector") != "metadata.name=brokers":
		http.NotFound(w, r)
	case q.Get("watch") == "":
		items := []json.RawMessage{}
		if object != nil {
			items = append(items, object)
		}
		json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"resourceVersion": strconv.Itoa(version)}, "items": items})
	default:
		a.watch(w, r, q.Get("resourceVersion"))
	}
}

// watch tells of every change behind a version.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, from string) {
	seen, _ := strconv.Atoi(from)
	w.(http.Flusher).Flush()
	for {
		a.mu.Lock()
		version, object, changed := a.version, a.object, a.changed
		a.mu.Unlock()
		if version > seen {
			kind := "MODIFIED"
			if object == nil {
				kind, object = "DELETED", endpoints(version, nil)
			}
			fmt.Fprintf(w, "{\"type\":%q,\"object\":%s}\n", kind, object)
			w.(http.Flusher).Flush()
			seen = version
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// TestKubernetesBrokers: the sink over the brokers of a service, from before
// there is one, through pods that come, go and change, an API server that is
// away, and the service's end and return. Everything arrives, in order and
// certified.
func TestKubernetesBrokers(t *testing.T) {
	// Both end after the sink, which has a watch open.
	api := newAPIServer(t)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	var mu sync.Mutex
	asked := map[string]int{}
	w := newWorld(t, brokertest.Options{
		FlushDelay: 2 * time.Millisecond,
		Fault: func(id string, _ *blobstreampb.ProduceBatchesRequest) brokertest.Fault {
			mu.Lock()
			defer mu.Unlock()
			asked[id]++
			return brokertest.None
		},
	})
	w.begin(blobstream.Config{Retry: 100 * time.Millisecond, Source: &discover.Kubernetes{
		Namespace: "blob-stream", Service: "brokers", Server: api.URL, Client: client,
		Token:    func() (string, error) { return "of the test", nil },
		RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond,
	}})
	next := 0
	fill := func() { w.Fill(next, next+60, 7); next += 60 }
	reported := func(what string) {
		t.Helper()
		sinktest.Eventually(t, what, func() bool { _, trouble := w.sink.Report(); return strings.Contains(trouble, what) })
	}
	a, b, c := w.start("broker-0", ""), w.start("broker-1", ""), w.start("broker-2", "")
	serve := func(pods ...route.Broker) {
		t.Helper()
		var names []string
		for _, p := range pods {
			names = append(names, p.ID)
		}
		w.fleet.SetMembers(names...)
		api.set(pods...)
		sinktest.Eventually(t, fmt.Sprintf("%d brokers", len(pods)), func() bool { return w.sink.Stats().Brokers == len(pods) })
	}

	fill()
	reported("no broker") // there is no service
	serve(a, b)
	fill()
	w.Flush()
	serve(b, c) // as many, another one
	sinktest.Eventually(t, "the new broker asked", func() bool {
		fill()
		w.Flush()
		mu.Lock()
		defer mu.Unlock()
		return asked["broker-2"] > 0
	})

	api.leave(true)
	reported("503")
	fill()
	w.Flush() // by the brokers that it knows
	api.leave(false)
	serve(a, b, c)
	fill()
	w.Flush()

	api.set() // the service is deleted
	sinktest.Eventually(t, "no brokers", func() bool { return w.sink.Stats().Brokers == 0 })
	fill()
	reported("no broker")
	serve(c)
	w.Flush()

	if copies := w.check(); copies != 0 {
		t.Errorf("%d records were stored twice", copies)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, p := range []route.Broker{a, b, c} {
		if asked[p.ID] == 0 {
			t.Errorf("%s was never asked: %v", p.ID, asked)
		}
	}
	if st := w.sink.Stats(); st.Refused != 0 || w.Status().Dropped != 0 {
		t.Errorf("%+v", st)
	}
}
