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
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"golang.org/x/sys/unix"

	"celldexport/envelope"
	"celldexport/exporter/state"
	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
)

// An exporter is frozen in mid-work. A second one on its directory is refused
// and told who holds it; one on a copy of the volume takes the node over, and
// the frozen one notices when it wakes, sends nothing more and ends.
func TestK8S01(t *testing.T) {
	t.Parallel()
	type stage struct {
		*world
		h      *host
		bucket string
		c      *celldsim.Cell
		frozen *child
	}
	freeze := func(t *testing.T) *stage {
		t.Helper()
		s := &stage{bucket: quickDir(t)}
		store, err := objstore.NewFile(s.bucket)
		if err != nil {
			t.Fatal(err)
		}
		s.world = newWorldOn(t, store, celldsim.V03)
		s.h = s.host("node-a")
		s.c = s.h.activate("one")
		s.write(s.c, createItems, insertTwo)
		s.frozen = s.h.startChildWith(childSpec{Bucket: s.bucket})
		t.Cleanup(func() { _ = s.frozen.kill() })
		s.delivered(3)
		s.must(s.frozen.cmd.Process.Signal(syscall.SIGSTOP))
		for i := range 100 {
			s.must(s.c.Exec(fmt.Sprintf(`INSERT INTO items VALUES('s%d', %d)`, i, i)))
			_, err := s.c.Capture()
			s.must(err)
		}
		s.must(s.c.UploadMerged(t.Context()))
		return s
	}
	t.Run("same directory", func(t *testing.T) {
		t.Parallel()
		s := freeze(t)
		_, err := s.h.open()
		if !errors.Is(err, state.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint(s.frozen.cmd.Process.Pid)) {
			t.Errorf("a second exporter on the directory: %v, want who holds it", err)
		}
		s.must(s.frozen.cmd.Process.Signal(syscall.SIGCONT))
		s.delivered(s.c.TXID())
		s.must(s.frozen.end())
		s.equal(s.c)
	})
	t.Run("copy of the volume", func(t *testing.T) {
		t.Parallel()
		s := freeze(t)
		copied := filepath.Join(quickDir(t), "state")
		s.must(os.CopyFS(copied, os.DirFS(s.h.settings.State)))
		s.h.settings.State = copied
		s.h.run()
		s.h.sync()
		before := len(s.consumer().Records)
		s.must(s.frozen.cmd.Process.Signal(syscall.SIGCONT))
		s.write(s.c, `DELETE FROM items WHERE qty = 7`)
		s.h.sync()
		ended := make(chan error, 1)
		go func() { ended <- s.frozen.cmd.Wait() }()
		var err error
		select {
		case err = <-ended:
		case <-time.After(patience):
			s.must(s.frozen.cmd.Process.Kill())
			<-ended
			t.Fatal("the frozen exporter goes on beside the one that took its place")
		}
		if err == nil || !strings.Contains(s.frozen.log.String(), "another exportd runs for this node") {
			t.Errorf("the frozen exporter ended with %v and said\n%s", err, s.frozen.log.String())
		}
		s.h.halt()
		got := s.equal(s.c)
		if before < 4 {
			t.Errorf("%d records from the second exporter", before)
		}
		for _, r := range got.Records {
			if r.Body.Kind() == envelope.KindGap {
				t.Errorf("a gap at %s: nothing was lost", r.Position)
			}
		}
	})
}

// delivered waits until the copy of the only cell is certified to a txid.
func (w *world) delivered(txid uint64) {
	w.t.Helper()
	until(w.t, fmt.Sprintf("the certificate of txid %d", txid), func() bool {
		c := w.consumer()
		for _, id := range c.State.Streams() {
			for _, at := range c.State.Certified(id) {
				if at.TXID >= txid {
					return true
				}
			}
		}
		return false
	})
}

// The state volume is full: export stops and says so, nothing is lost, and a
// larger volume carries on.
func TestK8S01FullVolume(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "small")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1500k"); err != nil {
		t.Skipf("no small file system can be mounted here (%v): TestStateVolumeFails stands in for it", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	a.settings.State = filepath.Join(dir, "state")
	c := a.activate("one")
	w.write(c, `CREATE TABLE t(id INTEGER PRIMARY KEY, v)`)
	a.run()
	a.sync()
	for i := range 40 {
		w.write(c, fmt.Sprintf(`INSERT INTO t VALUES(%d, randomblob(100000))`, i))
	}
	until(t, "the failure", func() bool { return a.e.Status().DeliveryFailed })
	if st := a.e.Status(); !strings.Contains(st.Failure, "no space left") {
		t.Errorf("failure: %q", st.Failure)
	}
	if err := a.dropped(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	larger := filepath.Join(t.TempDir(), "larger")
	w.must(os.CopyFS(larger, os.DirFS(a.settings.State)))
	a.settings.State = larger
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	w.equal(c)
}

// grumpy is an S3 server that throttles, resets connections after it stored
// the object, cuts answers off and fails parts, for a while.
type grumpy struct {
	fake http.Handler
	mu   sync.Mutex
	puts int
	keys map[string]int
}

func (g *grumpy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/export/changes/") {
		g.fake.ServeHTTP(w, r)
		return
	}
	g.mu.Lock()
	g.puts++
	n := g.puts
	g.keys[r.URL.Path]++
	g.mu.Unlock()
	switch {
	case n > 12:
		g.fake.ServeHTTP(w, r)
	case n%4 == 1:
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`))
	case n%4 == 2:
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
	case n%4 == 3: // stored, and nobody learns of it
		g.fake.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	default: // stored, and half an answer
		g.fake.ServeHTTP(httptest.NewRecorder(), r)
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("<"))
		panic(http.ErrAbortHandler)
	}
}

// A store in all its moods between the sink and its objects: each record is
// there once, under one name each, and certified only when it is.
func TestS303(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("fleet"); err != nil {
		t.Fatal(err)
	}
	g := &grumpy{fake: gofakes3.New(backend).Server(), keys: make(map[string]int)}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	store, err := objstore.Open(t.Context(), objstore.Config{URL: "s3://fleet", Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	quick := objstore.WithRetry(store, objstore.RetryPolicy{Attempts: 3, Base: 5 * time.Millisecond, Cap: 20 * time.Millisecond})
	w := newWorldOn(t, quick, celldsim.V03)
	a := w.host("node-a")
	c := a.activate("one")
	a.run()
	w.write(c, createItems)
	for i := range 20 {
		w.write(c, fmt.Sprintf(`INSERT INTO items VALUES('s%d', %d)`, i, i))
		time.Sleep(20 * time.Millisecond)
	}
	a.sync()
	a.halt()
	got := w.equal(c)
	seen := make(map[string]bool)
	for _, r := range got.Records {
		id := fmt.Sprintf("%v %d", r.Key(), r.Fragment)
		if seen[id] {
			t.Errorf("stored twice: %s of %s", r.Body.Kind(), r.Position)
		}
		seen[id] = true
	}
	again := 0
	for _, n := range g.keys {
		again += n - 1
	}
	if g.puts <= 12 || again < 12 {
		t.Errorf("%d PUTs, %d of them again under their name: the server was not in the way", g.puts, again)
	}
}
