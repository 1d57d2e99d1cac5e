package objstore_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"celldexport/internal/objstore"
)

// TestS3ErrorsHoldNoSecrets makes every operation fail in every way against a
// server that repeats all it was told.
func TestS3ErrorsHoldNoSecrets(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).Start)
	const token = "sessiontokenvalue"
	t.Setenv("AWS_SESSION_TOKEN", token)
	echo := func(r *http.Request) string {
		return fmt.Sprint(r.URL.RequestURI(), " http://", r.Host, r.URL.RequestURI(), " ", r.Header, " ", testSecret)
	}
	fronts := map[string]front{
		"xml": func(w http.ResponseWriter, r *http.Request) bool {
			answer(w, 400, "InvalidRequest", strings.NewReplacer("&", "&amp;", "<", "&lt;").Replace(echo(r)))
			return true
		},
		"text": func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(418)
			_, _ = io.WriteString(w, echo(r))
			return true
		},
		"header": func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("x-minio-error-desc", echo(r))
			w.WriteHeader(403)
			return true
		},
		"reset": func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) },
		"redirect": func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "/elsewhere?X-Amz-Signature=1", 307)
			return true
		},
	}
	check := func(name, op string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s, %s: no error", name, op)
			return
		}
		for ; err != nil; err = errors.Unwrap(err) {
			for _, secret := range []string{testKey, testSecret, token, "list-type", "start-after", "X-Amz-Signature", "start%2Dafter"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%s, %s: the error holds %q: %v", name, op, secret, err)
				}
			}
		}
	}
	s := server.open(t)
	for name, f := range fronts {
		server.setFront(f)
		for op, call := range calls(t.Context(), s) {
			check(name, op, call())
		}
	}
	server.Close()
	for op, call := range calls(t.Context(), s) {
		check("no server", op, call())
	}
}

// TestS3NoCredentials holds that requests are never sent unsigned.
func TestS3NoCredentials(t *testing.T) {
	clearAWS(t)
	var asked atomic.Int32
	transport := roundTripper(func(*http.Request) (*http.Response, error) {
		asked.Add(1)
		return nil, errors.New("no route to host")
	})
	cfg := objstore.Config{URL: "s3://bucket", Endpoint: "https://store.example", Transport: transport}
	for op, call := range calls(t.Context(), openS3(t, cfg)) {
		err := call()
		if !errors.Is(err, objstore.ErrDenied) || !strings.Contains(err.Error(), "environment: nothing there; shared AWS files: nothing there; role of the workload: ") {
			t.Errorf("%s: %v", op, err)
		}
	}
	if asked.Load() == 0 {
		t.Error("the role of the workload was not asked for")
	}
	asked.Store(0)
	t.Setenv("AWS_ACCESS_KEY_ID", testKey)
	for op, call := range calls(t.Context(), openS3(t, cfg)) {
		if err := call(); !errors.Is(err, objstore.ErrDenied) || !strings.Contains(err.Error(), "key id and secret must both be set") || strings.Contains(err.Error(), testKey) {
			t.Errorf("%s with half the credentials: %v", op, err)
		}
	}
	if asked.Load() != 0 {
		t.Error("another source was asked although one was half set")
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// clearAWS takes away all credentials that the machine may have.
func clearAWS(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
	} {
		t.Setenv(name, "")
	}
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
}

// TestS3SharedFile reads a profile, and reads it again when the store no
// longer knows its key.
func TestS3SharedFile(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).Start)
	clearAWS(t)
	path := filepath.Join(t.TempDir(), "credentials")
	write := func(id string) {
		if err := os.WriteFile(path, []byte("[exporter]\naws_access_key_id = "+id+"\naws_secret_access_key = s\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", path)
	t.Setenv("AWS_PROFILE", "exporter")
	write("FIRSTKEY")
	server.setFront(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.Header.Get("Authorization"), "Credential=SECONDKEY/") {
			return false
		}
		answer(w, 403, "InvalidAccessKeyId", "unknown key")
		return true
	})
	s := server.open(t)
	put := func() error {
		_, err := objstore.PutBytes(t.Context(), s, "k", nil, objstore.PutOptions{})
		return err
	}
	if err := put(); !errors.Is(err, objstore.ErrDenied) || strings.Contains(err.Error(), "FIRSTKEY") {
		t.Errorf("with a key that the store does not know: %v", err)
	}
	write("SECONDKEY")
	if err := put(); err != nil {
		t.Errorf("after the key was changed in the file: %v", err)
	}
}

// TestS305RotatingRole takes credentials from a container's endpoint that issues
// new ones all the time, at a store that refuses the ones before.
func TestS305RotatingRole(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).Start)
	clearAWS(t)
	var issued atomic.Int64
	role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"AccessKeyId":"ROLE%d","SecretAccessKey":"s","Token":"tok","Expiration":%q}`, issued.Add(1), time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(role.Close)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", role.URL+"/creds")
	var valid atomic.Int64
	valid.Store(1)
	server.setFront(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.Header.Get("Authorization"), fmt.Sprintf("Credential=ROLE%d/", valid.Load())) {
			return false
		}
		answer(w, 400, "ExpiredToken", "The provided token has expired.")
		return true
	})
	plain := server.open(t)
	objstore.SetPartSizes(plain, 5<<20, 5<<20)
	var slept []time.Duration
	s := objstore.WithRetry(plain, waits(&slept))
	if _, err := objstore.PutBytes(t.Context(), s, "k", []byte("v"), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	ops := calls(t.Context(), s)
	ops["range"] = func() error { _, _, err := s.Get(t.Context(), "k", objstore.GetOptions{Offset: -1}); return err }
	ops["conditional"] = func() error {
		_, err := objstore.PutBytes(t.Context(), s, fmt.Sprint("new", valid.Load()), nil, objstore.PutOptions{IfAbsent: true})
		return err
	}
	ops["parts"] = func() error {
		_, err := objstore.PutBytes(t.Context(), s, "big", make([]byte, 11<<20), objstore.PutOptions{})
		return err
	}
	for name, call := range ops {
		valid.Add(1)
		if err := call(); err != nil {
			t.Errorf("%s after the credentials ran out: %v", name, err)
		}
	}
	if issued.Load() != valid.Load() {
		t.Errorf("%d sets of credentials were taken, %d were needed", issued.Load(), valid.Load())
	}
}
