package objstore_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"celldexport/internal/objstore"
)

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	const secret = "hunter2"
	for _, test := range []struct {
		cfg  objstore.Config
		text string
	}{
		{objstore.Config{}, "want s3://NAME[/PREFIX] or file:///DIR"},
		{objstore.Config{URL: "bucket"}, "want s3://"},
		{objstore.Config{URL: "gs://bucket"}, "gs:// is not supported; use s3://NAME with the endpoint https://storage.googleapis.com"},
		{objstore.Config{URL: "az://bucket"}, "az:// is not supported; put an S3 gateway"},
		{objstore.Config{URL: "http://" + secret + "/bucket"}, "neither s3:// nor file://"},
		{objstore.Config{URL: "s3://"}, "no bucket name"},
		{objstore.Config{URL: "s3:///prefix"}, "no bucket name"},
		{objstore.Config{URL: "s3://B"}, "bucket"},
		{objstore.Config{URL: "s3://user:" + secret + "@bucket/x"}, "credentials do not belong"},
		{objstore.Config{URL: "s3://bucket?key=" + secret}, "parameters do not belong"},
		{objstore.Config{URL: "s3://bucket/x?key=" + secret}, "parameters do not belong"},
		{objstore.Config{URL: "s3://bucket/x#" + secret}, "parameters do not belong"},
		{objstore.Config{URL: "s3://bucket/a//b"}, "empty part"},
		{objstore.Config{URL: "s3://bucket/../b"}, `part ".."`},
		{objstore.Config{URL: "s3://bucket//b"}, "empty part"},
		{objstore.Config{URL: "file://dir"}, "three slashes"},
		{objstore.Config{URL: "file://"}, "three slashes"},
		{objstore.Config{URL: "file://" + file}, "not a directory"},
		{objstore.Config{URL: "file://" + file + "none"}, "no such file or directory; make the directory first"},
		{objstore.Config{URL: "s3://bucket"}, "region is missing"},
		{objstore.Config{URL: "s3://bucket", Region: "auto"}, "region is missing"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "s3.amazonaws.com"}, "region is missing"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "ftp://host"}, "neither http nor https"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "https://"}, "want https://HOST"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "https://u:" + secret + "@host"}, "credentials do not belong"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "https://host?x=" + secret}, "parameters do not belong"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "https://host/" + secret}, "a path does not belong"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "https://" + secret + " %zz"}, "want https://HOST"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "https://host", CAFile: file}, "holds no certificate"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "https://host", CAFile: file + "none"}, "read ca file"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "https://host", CAFile: file, Transport: http.DefaultTransport}, "ca file given together"},
	} {
		s, err := objstore.Open(t.Context(), test.cfg)
		if s != nil || err == nil || !strings.Contains(err.Error(), test.text) || strings.Contains(err.Error(), secret) {
			t.Errorf("%+v: %v, want an error with %q", test.cfg, err, test.text)
		}
	}
	if _, err := objstore.Open(t.Context(), objstore.Config{URL: "file://" + file + "none"}); !errors.Is(err, objstore.ErrDenied) {
		t.Errorf("a missing directory: %v", err)
	}
}

// TestOpenGoesToTheRightPlace looks at the first request of stores that need
// not exist.
func TestOpenGoesToTheRightPlace(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", testKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", testSecret)
	for _, test := range []struct {
		cfg    objstore.Config
		url    string
		region string
	}{
		{objstore.Config{URL: "s3://bucket/pre/fix/", Region: "eu-central-1"}, "https://bucket.s3.eu-central-1.amazonaws.com/pre/fix/k", "eu-central-1"},
		{objstore.Config{URL: "s3://dotted.bucket", Region: "eu-central-1"}, "https://s3.eu-central-1.amazonaws.com/dotted.bucket/k", "eu-central-1"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "https://s3.us-west-2.amazonaws.com"}, "https://bucket.s3.us-west-2.amazonaws.com/k", "us-west-2"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "https://s3.us-west-2.amazonaws.com", Region: "auto"}, "https://bucket.s3.us-west-2.amazonaws.com/k", "us-west-2"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "https://account.r2.cloudflarestorage.com"}, "https://account.r2.cloudflarestorage.com/bucket/k", "auto"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "minio:9000", Region: "us-east-1"}, "https://minio:9000/bucket/k", "us-east-1"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "http://[::1]:9000/"}, "http://[::1]:9000/bucket/k", "auto"},
		{objstore.Config{URL: "s3://bucket", Endpoint: "https://storage.googleapis.com"}, "https://storage.googleapis.com/bucket/k", "auto"},
	} {
		var seen *http.Request
		test.cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			seen = r
			return nil, errors.New("stop here")
		})
		s, err := objstore.Open(t.Context(), test.cfg)
		if err != nil {
			t.Errorf("%+v: %v", test.cfg, err)
			continue
		}
		if _, _, err := s.Get(t.Context(), "k", objstore.GetOptions{}); err == nil || !strings.Contains(err.Error(), "stop here") {
			t.Errorf("%+v: %v", test.cfg, err)
		}
		if seen == nil || seen.URL.String() != test.url || !strings.Contains(seen.Header.Get("Authorization"), "/"+test.region+"/s3/") {
			t.Errorf("%+v: requested %v, want %s in region %s", test.cfg, seen, test.url, test.region)
		}
	}
}

func TestOpenFileURL(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b%20c")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := objstore.Open(t.Context(), objstore.Config{URL: "file://" + dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := objstore.PutBytes(t.Context(), s, "x.json", []byte("x"), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "x.json")); err != nil {
		t.Error(err)
	}
}
