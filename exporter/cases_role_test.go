package exporter_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"celldexport/exporter"
	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
	"celldexport/sinks/bucket"
)

// roles is an S3 server and the endpoint that issues credentials for it. The
// credentials live for a moment; the server refuses those that ended.
type roles struct {
	fake http.Handler
	mu   sync.Mutex
	// ends is when each issued key ends; refused counts requests with one
	// that had ended, multi those to delete several objects at once.
	ends           map[string]time.Time
	refused, multi int
}

// life is how long credentials live.
const life = 300 * time.Millisecond

func (s *roles) issue(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := fmt.Sprintf("ROLE%d", len(s.ends))
	s.ends[id] = time.Now().Add(life)
	// What the endpoint says is too long, so that the server's refusal is
	// what has to be noticed.
	fmt.Fprintf(w, `{"AccessKeyId":%q,"SecretAccessKey":"s","Token":"t","Expiration":%q}`, id, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

func (s *roles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	id, _, _ := strings.Cut(credential, "/")
	s.mu.Lock()
	ended := time.Now().After(s.ends[id])
	several := r.Method == http.MethodPost && r.URL.Query().Has("delete")
	if ended {
		s.refused++
	}
	if several {
		s.multi++
	}
	s.mu.Unlock()
	switch {
	case ended:
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>`))
	case several:
		w.WriteHeader(http.StatusNotImplemented)
	default:
		s.fake.ServeHTTP(w, r)
	}
}

// No static keys: export, a restore of the whole state and the retention
// sweep go on while credentials end all the time, and the sweep takes this
// node's expired objects only, one by one.
func TestS305(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("fleet"); err != nil {
		t.Fatal(err)
	}
	s := &roles{fake: gofakes3.New(backend).Server(), ends: make(map[string]time.Time)}
	server, issuer := httptest.NewServer(s), httptest.NewServer(http.HandlerFunc(s.issue))
	t.Cleanup(server.Close)
	t.Cleanup(issuer.Close)
	none := filepath.Join(t.TempDir(), "none")
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", issuer.URL+"/role")
	store, err := objstore.Open(t.Context(), objstore.Config{URL: "s3://fleet", Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldOn(t, objstore.WithRetry(store, objstore.RetryPolicy{Base: time.Millisecond, Cap: 10 * time.Millisecond}), celldsim.V03)
	old := func(node string, n int) string {
		return bucket.Name{Node: node, Micros: time.Now().Add(-48 * time.Hour).UnixMicro(), Rand: uint32(n)}.Key()
	}
	a := w.host("node-a")
	// The node has exported before: what is there is its own.
	e, err := a.open()
	w.must(err)
	w.must(e.Close())
	var own, foreign []string
	for i := range 3 {
		own, foreign = append(own, old("node-a", i)), append(foreign, old("node-b", i))
		for _, key := range []string{own[i], foreign[i]} {
			_, err := objstore.PutBytes(t.Context(), w.store, key, []byte("an old object"), objstore.PutOptions{})
			w.must(err)
		}
	}
	a.settings.Export.Retention = 1
	a.rig = func(o *exporter.Options) { o.Sweep = 20 * time.Millisecond }
	c := a.activate("one")
	w.write(c, createItems, `CREATE TABLE big(v)`)
	for range 8 {
		w.write(c, `INSERT INTO big VALUES(randomblob(400000))`)
	}
	a.run()
	for i := range 20 {
		w.write(c, fmt.Sprintf(`INSERT INTO items VALUES('s%d', %d)`, i, i))
		time.Sleep(50 * time.Millisecond)
	}
	has := func(key string) bool {
		_, _, err := objstore.ReadAll(t.Context(), w.store, key, 100)
		if err != nil && !errors.Is(err, objstore.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	for _, key := range own {
		until(t, "the deletion of "+key, func() bool { return !has(key) })
	}
	a.sync()
	a.halt()
	for _, key := range foreign {
		if !has(key) {
			t.Errorf("%s of another node is gone", key)
		}
		w.must(w.store.Delete(t.Context(), key)) // they are no objects that a reader knows
	}
	w.equal(c)
	w.must(os.RemoveAll(a.settings.State))
	before := a.read.Load()
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if n := a.read.Load() - before; n < 3_000_000 {
		t.Errorf("%d bytes read, the case needs a restore", n)
	}
	w.same(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.multi != 0 {
		t.Errorf("%d requests to delete several objects, which many stores do not know", s.multi)
	}
	if s.refused < 3 || len(s.ends) < 4 {
		t.Errorf("%d requests refused, %d credentials issued: they did not end in between", s.refused, len(s.ends))
	}
}
