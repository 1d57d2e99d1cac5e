package objstore_test

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"celldexport/internal/objstore"
)

const (
	testKey    = "AKIATESTKEYID"
	testSecret = "verysecretaccesskey"
)

// front looks at a request before the fake store does. It returns true when it
// has answered.
type front func(w http.ResponseWriter, r *http.Request) bool

// s3Server is a fake S3 with a bucket "bucket" and something in front of it.
type s3Server struct {
	*httptest.Server
	fake http.Handler

	mu    sync.Mutex
	front front
	seen  []string // "METHOD path?query"
}

func newS3Server(t *testing.T, start func(*httptest.Server)) *s3Server {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", testKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", testSecret)
	t.Setenv("AWS_SESSION_TOKEN", "")
	s := &s3Server{fake: newFakeS3(t, "bucket").Server()}
	s.Server = httptest.NewUnstartedServer(s)
	start(s.Server)
	t.Cleanup(s.Close)
	return s
}

func (s *s3Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+r.URL.RequestURI())
	front := s.front
	s.mu.Unlock()
	if front == nil || !front(w, r) {
		s.fake.ServeHTTP(w, r)
	}
}

func (s *s3Server) setFront(f front) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.front = f
}

func (s *s3Server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

// open opens the server's bucket.
func (s *s3Server) open(t *testing.T) objstore.Store {
	t.Helper()
	return openS3(t, objstore.Config{URL: "s3://bucket", Endpoint: s.URL, CAFile: s.caFile(t)})
}

// caFile writes the certificate of a TLS server.
func (s *s3Server) caFile(t *testing.T) string {
	t.Helper()
	if s.Certificate() == nil {
		return ""
	}
	path := filepath.Join(t.TempDir(), "ca.pem")
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// answer writes an S3 error.
func answer(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("x-amz-request-id", "REQ1")
	w.WriteHeader(status)
	_, _ = w.Write([]byte("<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>" + message + "</Message></Error>"))
}

// refuseExtras answers 501 to what many compatible stores do not implement.
func refuseExtras(w http.ResponseWriter, r *http.Request) bool {
	bad := strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") || strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING")
	for name := range r.Header {
		name = strings.ToLower(name)
		bad = bad || strings.HasPrefix(name, "x-amz-checksum") || name == "x-amz-sdk-checksum-algorithm" || name == "x-amz-trailer" || name == "trailer"
	}
	if bad {
		answer(w, http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented.")
	}
	return bad
}

// dropAnswer lets the fake store do the request and then closes the connection.
func (s *s3Server) dropAnswer(w http.ResponseWriter, r *http.Request) {
	s.fake.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// TestPrivateCA: a store behind an authority of its own is refused until that
// is known, from the settings or from AWS_CA_BUNDLE, and the error says why.
func TestPrivateCA(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).StartTLS)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of the handshake that is refused
	put := func(cfg objstore.Config) error {
		cfg.URL, cfg.Endpoint = "s3://bucket", server.URL
		_, err := openS3(t, cfg).Put(t.Context(), "k", strings.NewReader("v"), 1, objstore.PutOptions{})
		return err
	}
	t.Setenv("AWS_CA_BUNDLE", "")
	if err := put(objstore.Config{}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("unknown authority: error %v", err)
	}
	if err := put(objstore.Config{CAFile: server.caFile(t)}); err != nil {
		t.Errorf("known by the settings: %v", err)
	}
	t.Setenv("AWS_CA_BUNDLE", server.caFile(t))
	if err := put(objstore.Config{}); err != nil {
		t.Errorf("known by AWS_CA_BUNDLE: %v", err)
	}
	t.Setenv("AWS_CA_BUNDLE", filepath.Join(t.TempDir(), "none.pem"))
	_, err := objstore.Open(t.Context(), objstore.Config{URL: "s3://bucket", Endpoint: server.URL})
	if err == nil || !strings.Contains(err.Error(), "none.pem") {
		t.Errorf("a bundle that is not there: error %v", err)
	}
}
