package discover

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"celldexport/sinks/blobstream/route"
)

// Kubernetes follows the Endpoints object of a service through the API server.
// The service account needs get, list and watch on endpoints.
type Kubernetes struct {
	Namespace, Service string
	// Server is the API server's address, https://host:port.
	Server string
	// Client is used for all requests; it has no timeout of its own.
	Client *http.Client
	// Token returns the bearer token. It is asked before every request, since
	// tokens are replaced while the program runs.
	Token func() (string, error)
	// RetryMin and RetryMax bound the wait after a failure, 1 s and 30 s when
	// zero.
	RetryMin, RetryMax time.Duration
}

// accountDir is where a pod finds its service account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster is the service as seen from a pod, by its service account.
func InCluster(namespace, service string) (*Kubernetes, error) {
	return inCluster(namespace, service, accountDir, os.Getenv)
}

func inCluster(namespace, service, dir string, getenv func(string) string) (*Kubernetes, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, fmt.Errorf("find brokers of k8s://%s/%s: this is not a pod, KUBERNETES_SERVICE_HOST and _PORT are not set", namespace, service)
	}
	authority, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("find brokers of k8s://%s/%s: read the cluster's certificate: %w", namespace, service, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("find brokers of k8s://%s/%s: %s holds no certificate", namespace, service, filepath.Join(dir, "ca.crt"))
	}
	return &Kubernetes{
		Namespace: namespace, Service: service, Server: "https://" + net.JoinHostPort(host, port),
		Client: &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second,
		}},
		Token: func() (string, error) {
			token, err := os.ReadFile(filepath.Join(dir, "token"))
			return strings.TrimSpace(string(token)), err
		},
	}, nil
}

const (
	listTimeout = 10 * time.Second
	// watchTime is how long the server keeps one watch open.
	watchTime = 5 * time.Minute
	// watchSlack is how much longer its end may take to arrive.
	watchSlack = 30 * time.Second
)

// Watch follows the service; see [Source]. Failures keep the members as they
// were.
func (k *Kubernetes) Watch(ctx context.Context, members func([]route.Broker), trouble func(error)) {
	f := &follower{k: k, members: members, trouble: trouble}
	least, most := k.RetryMin, k.RetryMax
	if least <= 0 {
		least = time.Second
	}
	if most <= 0 {
		most = 30 * time.Second
	}
	delay := least
	for ctx.Err() == nil {
		progress, err := f.round(ctx)
		if ctx.Err() != nil {
			return
		}
		if progress || err == nil {
			delay = least
		}
		if err != nil {
			trouble(fmt.Errorf("find brokers of k8s://%s/%s: %w", k.Namespace, k.Service, err))
		} else if progress {
			continue
		}
		timer := time.NewTimer(delay/2 + rand.N(delay/2+1))
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		delay = min(2*delay, most)
	}
}

// errExpired is a resource version that the server no longer knows.
var errExpired = errors.New("the watch is too old to go on")

// follower is one watch of a service.
type follower struct {
	k       *Kubernetes
	members func([]route.Broker)
	trouble func(error)
	// version is where the next watch begins, "" to list first.
	version string
	told    bool
	last    []route.Broker
}

// round lists, when that is due, and watches once. Progress says that there
// was something to tell.
func (f *follower) round(ctx context.Context) (progress bool, err error) {
	if f.version == "" {
		if err := f.list(ctx); err != nil {
			return false, err
		}
		f.trouble(nil)
		progress = true
	}
	events, err := f.watch(ctx)
	if err != nil {
		f.version = ""
		if errors.Is(err, errExpired) {
			return false, nil // list again, after a pause
		}
	}
	return progress || events > 0, err
}

func (f *follower) tell(list []route.Broker) {
	slices.SortFunc(list, func(a, b route.Broker) int {
		return strings.Compare(a.ID+"\x00"+a.Address, b.ID+"\x00"+b.Address)
	})
	if f.told && slices.Equal(list, f.last) {
		return
	}
	f.told, f.last = true, list
	f.members(list)
}

func (f *follower) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	body, err := f.k.get(ctx, url.Values{})
	if err != nil {
		return err
	}
	defer body.Close()
	var list struct {
		Metadata meta        `json:"metadata"`
		Items    []endpoints `json:"items"`
	}
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return fmt.Errorf("read the list of endpoints: %w", err)
	}
	if list.Metadata.ResourceVersion == "" {
		return errors.New("the list of endpoints has no resource version")
	}
	f.version = list.Metadata.ResourceVersion
	var brokers []route.Broker
	for _, e := range list.Items {
		brokers = append(brokers, e.brokers()...)
	}
	f.tell(brokers)
	return nil
}

// watch reads events until the server ends the watch, and counts them.
func (f *follower) watch(ctx context.Context) (events int, err error) {
	ctx, cancel := context.WithTimeout(ctx, watchTime+watchSlack)
	defer cancel()
	body, err := f.k.get(ctx, url.Values{
		"watch": {"1"}, "resourceVersion": {f.version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {fmt.Sprint(int(watchTime.Seconds()))},
	})
	if err != nil {
		return 0, err
	}
	defer body.Close()
	for decoder := json.NewDecoder(body); ; events++ {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			return events, nil
		} else if err != nil {
			return events, fmt.Errorf("read an event of endpoints: %w", err)
		}
		if err := f.event(event.Type, event.Object); err != nil {
			return events, err
		}
	}
}

func (f *follower) event(kind string, object json.RawMessage) error {
	if kind == "ERROR" {
		var status struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		}
		if err := json.Unmarshal(object, &status); err == nil && status.Code == http.StatusGone {
			return errExpired
		}
		return fmt.Errorf("watch endpoints: %d %s", status.Code, status.Message)
	}
	var e endpoints
	if err := json.Unmarshal(object, &e); err != nil {
		return fmt.Errorf("read an event of endpoints: %w", err)
	}
	if e.Metadata.ResourceVersion != "" {
		f.version = e.Metadata.ResourceVersion
	}
	switch kind {
	case "ADDED", "MODIFIED":
		f.tell(e.brokers())
	case "DELETED":
		f.tell(nil)
	}
	return nil
}

// get asks for the service's endpoints.
func (k *Kubernetes) get(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	query.Set("fieldSelector", "metadata.name="+k.Service)
	target := k.Server + "/api/v1/namespaces/" + url.PathEscape(k.Namespace) + "/endpoints?" + query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for endpoints: %w", err)
	}
	token, err := k.Token()
	if err != nil {
		return nil, fmt.Errorf("read the service account's token: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "application/json")
	response, err := k.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for endpoints: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusGone:
		return nil, errExpired
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("ask for endpoints: %s: the service account needs get, list and watch on endpoints in namespace %s", response.Status, k.Namespace)
	}
	return nil, fmt.Errorf("ask for endpoints: %s", response.Status)
}
