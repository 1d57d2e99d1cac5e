package exporter_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
)

// fleetStores are the kinds of bucket that a fleet may live in.
func fleetStores() map[string]func(t *testing.T) objstore.Store {
	return map[string]func(t *testing.T) objstore.Store{
		"file": func(t *testing.T) objstore.Store {
			s, err := objstore.NewFile(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		"s3 in process": func(t *testing.T) objstore.Store {
			backend := s3mem.New()
			if err := backend.CreateBucket("fleet"); err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(gofakes3.New(backend).Server())
			t.Cleanup(server.Close)
			t.Setenv("AWS_ACCESS_KEY_ID", "key")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
			return openS3(t, "s3://fleet/prefix", server.URL, "us-east-1")
		},
		// make test-s3 builds a server from the module registry and names it
		// here.
		"s3 server": func(t *testing.T) objstore.Store {
			endpoint, bucket := os.Getenv("EXPORTD_TEST_S3"), os.Getenv("EXPORTD_TEST_S3_BUCKET")
			if endpoint == "" || bucket == "" {
				t.Skip("EXPORTD_TEST_S3 and EXPORTD_TEST_S3_BUCKET name no server: make test-s3 builds one and runs this test on it")
			}
			t.Setenv("AWS_ACCESS_KEY_ID", os.Getenv("EXPORTD_TEST_S3_KEY"))
			t.Setenv("AWS_SECRET_ACCESS_KEY", os.Getenv("EXPORTD_TEST_S3_SECRET"))
			prefix := fmt.Sprintf("%s-%d", strings.ToLower(filepath.Base(t.TempDir())), time.Now().UnixNano())
			return openS3(t, "s3://"+bucket+"/"+prefix, endpoint, os.Getenv("EXPORTD_TEST_S3_REGION"))
		},
	}
}

func openS3(t *testing.T, url, endpoint, region string) objstore.Store {
	t.Helper()
	s, err := objstore.Open(t.Context(), objstore.Config{URL: url, Endpoint: endpoint, Region: region})
	if err != nil {
		t.Fatal(err)
	}
	return objstore.WithRetry(s, objstore.DefaultRetry())
}

// The whole way, on every kind of bucket: traffic, a move, a zombie, wakes.
func TestEveryStore(t *testing.T) {
	for name, open := range fleetStores() {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, open(t), celldsim.V06)
			a, b := w.host("node-a"), w.host("node-b")
			a.run()
			b.run()
			c := a.activate("one")
			load := celldsim.NewWorkload(celldsim.WorkloadConfig{Seed: 11, Scope: c.Scope(), Rows: 40})
			for range 5 {
				w.must(load.Run(t.Context(), c.DB(), 6))
				w.write(c)
				_, err := c.Capture()
				w.must(err)
				w.must(c.UploadMerged(t.Context()))
			}
			a.sync()
			w.must(a.node.Evict(t.Context(), c.Scope(), true))
			c = a.activate("one")
			w.write(c, `CREATE TABLE own(x INTEGER PRIMARY KEY)`, `INSERT INTO own VALUES(1)`)
			a.sync()
			zombie := c
			c = w.takeOver(b, c, "one")
			w.write(zombie, `INSERT INTO own VALUES(2)`)
			w.write(c, `INSERT INTO own VALUES(3)`)
			b.sync()
			a.sync()
			a.halt()
			b.halt()
			w.equal(c)
		})
	}
}
