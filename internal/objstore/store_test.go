package objstore_test

import (
	"cmp"
	"context"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"

	"celldexport/internal/objstore"
	"celldexport/internal/objstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) objstore.Store { return objstore.NewMemory() })
}

func TestFile(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objstore.Store { return newFile(t, t.TempDir()) })
}

// TestFileShared gives the suite two views of one directory, as two processes
// have them, and changes between them with every call.
func TestFileShared(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objstore.Store {
		dir := t.TempDir()
		return newAlternating(newFile(t, dir), newFile(t, dir))
	})
}

func newFile(t *testing.T, dir string) *objstore.File {
	t.Helper()
	f, err := objstore.NewFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestS3(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "testkey")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "testsecret1")
	storetest.Run(t, func(t *testing.T) objstore.Store {
		server := httptest.NewServer(newFakeS3(t, "suite").Server())
		t.Cleanup(server.Close)
		return openS3(t, objstore.Config{URL: "s3://suite", Endpoint: server.URL})
	})
}

func newFakeS3(t *testing.T, bucket string) *gofakes3.GoFakeS3 {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	return gofakes3.New(backend)
}

func openS3(t *testing.T, cfg objstore.Config) objstore.Store {
	t.Helper()
	s, err := objstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWrapped runs the suite over all the wrappers at once.
func TestWrapped(t *testing.T) {
	storetest.Run(t, func(*testing.T) objstore.Store {
		counted := objstore.Counting(objstore.NewFault(objstore.NewMemory()), func(string, string, int64) {})
		return objstore.WithRetry(counted, objstore.RetryPolicy{})
	})
}

// TestExternalS3 runs the suite against a server that somebody started, in the
// bucket EXPORTD_TEST_S3_BUCKET ("exportd-test" when unset), which must exist.
// Every test works below a prefix of its own and deletes it afterwards.
func TestExternalS3(t *testing.T) {
	endpoint, bucket := os.Getenv("EXPORTD_TEST_S3"), cmp.Or(os.Getenv("EXPORTD_TEST_S3_BUCKET"), "exportd-test")
	if endpoint == "" {
		t.Skip("EXPORTD_TEST_S3 names no endpoint: the suite ran against the in-process server only")
	}
	t.Setenv("AWS_ACCESS_KEY_ID", os.Getenv("EXPORTD_TEST_S3_KEY"))
	t.Setenv("AWS_SECRET_ACCESS_KEY", os.Getenv("EXPORTD_TEST_S3_SECRET"))
	open := func(t *testing.T) objstore.Store {
		prefix := strings.NewReplacer("/", "-", "#", "-").Replace(t.Name())
		s := openS3(t, objstore.Config{URL: "s3://" + bucket + "/" + prefix, Endpoint: endpoint, Region: os.Getenv("EXPORTD_TEST_S3_REGION")})
		empty(t, s)
		t.Cleanup(func() { empty(t, s) })
		return s
	}
	if flat(t, open(t)) {
		t.Log("the server keeps objects as files and cannot have a key below another key: such keys are left out")
		storetest.RunFlat(t, open)
		return
	}
	storetest.Run(t, open)
}

// flat reports whether the server refuses a key below another key.
func flat(t *testing.T, s objstore.Store) bool {
	t.Helper()
	for _, key := range []string{"above", "above/below"} {
		if _, err := objstore.PutBytes(t.Context(), s, key, []byte("x"), objstore.PutOptions{}); err != nil {
			if key == "above" {
				t.Fatal(err)
			}
			return true
		}
	}
	return false
}

func empty(t *testing.T, s objstore.Store) {
	ctx := context.Background() // the test's own is over when it cleans up
	for obj, err := range s.List(ctx, "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(ctx, obj.Key); err != nil {
			t.Fatal(err)
		}
	}
}
