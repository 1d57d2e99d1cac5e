package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"celldexport/internal/objstore"
)

// programEnv is set in a process that is the program itself.
const programEnv = "EXPORTD_TEST_PROGRAM"

// A start that a signal cuts short is a stop like any other for run, whatever
// its error looks like; for run --once it is a failure, since nothing is done.
func TestStopAtStart(t *testing.T) {
	for _, c := range []struct {
		args []string
		err  error
		code int
		says string
	}{
		{[]string{"run"}, context.Canceled, 0, "stopped while starting"},
		{[]string{"run"}, errors.New("interrupted"), 0, "stopped while starting"},
		{[]string{"run", "--once"}, context.Canceled, 1, "stopped before everything that is present was exported: read the node's object: context canceled"},
	} {
		t.Run(fmt.Sprint(c.args, c.err), func(t *testing.T) {
			b := newBench(on(t)...)
			begun := make(chan struct{})
			b.app.newEngine = func(ctx context.Context, _ engineOptions) (engine, error) {
				close(begun)
				<-ctx.Done()
				return nil, fmt.Errorf("read the node's object: %w", c.err)
			}
			code := b.start(t, c.args...)
			await(t, "the start of the exporter", begun)
			b.signals <- syscall.SIGTERM
			if got := await(t, "the end of the program", code); got != c.code || !strings.Contains(b.err.String(), c.says) {
				t.Errorf("exit %d, want %d: %s", got, c.code, &b.err)
			}
		})
	}
}

// A stop that does not come to an end is given up after its time; what it
// would have done is done by the next start.
func TestStopThatHangs(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"run"}, 0},
		{[]string{"run", "--once"}, 1},
	} {
		t.Run(fmt.Sprint(c.args), func(t *testing.T) {
			b := newBench(on(t)...)
			b.stopTime = 50 * time.Millisecond
			begun, back, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
			b.app.newEngine = func(context.Context, engineOptions) (engine, error) {
				defer close(over)
				close(begun)
				<-back
				return nil, errors.New("the disk is back")
			}
			code := b.start(t, c.args...)
			await(t, "the start of the exporter", begun)
			b.signals <- syscall.SIGTERM
			if got := await(t, "the end of the program", code); got != c.code || !strings.Contains(b.err.String(), "the stop takes too long and is given up") {
				t.Errorf("exit %d, want %d: %s", got, c.code, &b.err)
			}
			close(back)
			await(t, "the end of the start", over)
		})
	}
}

// gate is a bucket of an S3 server that can be told not to answer.
type gate struct {
	url string
	// silent is a part of the paths that get no answer, "" for none.
	silent atomic.Pointer[string]
	// waiting counts the requests that got none.
	waiting atomic.Int32
	store   objstore.Store
}

func newGate(t *testing.T) *gate {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	backend := s3mem.New()
	if err := backend.CreateBucket("fleet"); err != nil {
		t.Fatal(err)
	}
	g := &gate{}
	g.answer()
	s3 := gofakes3.New(backend).Server()
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if part := *g.silent.Load(); part != "" && strings.Contains(r.URL.Path, part) {
			g.waiting.Add(1)
			select {
			case <-r.Context().Done():
			case <-ended:
			}
			return
		}
		s3.ServeHTTP(w, r)
	}))
	t.Cleanup(sync.OnceFunc(func() { close(ended); server.Close() }))
	g.url = server.URL
	var err error
	g.store, err = objstore.Open(t.Context(), objstore.Config{URL: "s3://fleet/prefix", Endpoint: g.url, Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *gate) silence(part string) { g.silent.Store(&part); g.waiting.Store(0) }
func (g *gate) answer()             { g.silence("") }

// await waits until n requests wait for an answer.
func (g *gate) await(t *testing.T, n int32, p *program) {
	t.Helper()
	for end := time.Now().Add(patience); g.waiting.Load() < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d requests wait for an answer, want %d: %s", g.waiting.Load(), n, p.said())
		}
	}
}

// program is exportd as a process of its own.
type program struct {
	cmd *exec.Cmd
	err bytes.Buffer
	// done is closed when the process has ended.
	done chan struct{}
}

// begin starts exportd over the example node, whose bucket is the gate's.
func (g *gate) begin(t *testing.T, work string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(os.Args[0], args...), done: make(chan struct{})}
	p.cmd.Stderr = &p.err
	p.cmd.Env = append(os.Environ(), programEnv+"=1", "CELLD_EXPORT=1", "CELLD_NODE=node-a", "CELLD_WATCH="+filepath.Join(work, "watch"),
		"EXPORTD_STATE="+filepath.Join(work, "state"), "EXPORTD_LISTEN=127.0.0.1:0", "CELLD_EXPORT_FLUSH_MS=100",
		"CELLD_BUCKET=s3://fleet/prefix", "S3_ENDPOINT="+g.url, "AWS_REGION=us-east-1")
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the code is asked of the process state
	}()
	t.Cleanup(func() { p.said() })
	return p
}

func (p *program) signal(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// exit waits for the end of the process and returns its code.
func (p *program) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatal("the process does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// said is what the process logged. It has ended, or is about to be killed.
func (p *program) said() string {
	_ = p.cmd.Process.Kill()
	<-p.done
	return p.err.String()
}

// exampleOn puts the example node's bucket into a store and returns a copy of
// its directory.
func exampleOn(t *testing.T, store objstore.Store) (work string) {
	t.Helper()
	work = t.TempDir()
	if err := os.CopyFS(work, os.DirFS("../../examples/node")); err != nil {
		t.Fatal(err)
	}
	from, err := objstore.NewFile(filepath.Join(work, "bucket"))
	if err != nil {
		t.Fatal(err)
	}
	for obj, err := range from.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := objstore.ReadAll(t.Context(), from, obj.Key, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Put(t.Context(), obj.Key, bytes.NewReader(data), int64(len(data)), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return work
}

// The program itself, with a bucket that does not answer: a signal while it
// starts ends it with 0; a second one in the last round, which asks once more,
// ends it at once; and the next start exports what those two did not.
func TestSignalsToTheProgram(t *testing.T) {
	g := newGate(t)
	work := exampleOn(t, g.store)

	g.silence("exportd/nodes/")
	p := g.begin(t, work, "run")
	g.await(t, 1, p)
	p.signal(t)
	if code := p.exit(t); code != 0 || !strings.Contains(p.said(), "stopped while starting") {
		t.Errorf("a signal at the start: exit %d: %s", code, p.said())
	}

	g.silence("own.json")
	p = g.begin(t, work, "run")
	g.await(t, 1, p) // the first round
	p.signal(t)
	g.await(t, 2, p) // the last one
	begin := time.Now()
	p.signal(t)
	if code := p.exit(t); code != 1 || !strings.Contains(p.said(), "second signal") {
		t.Errorf("a second signal: exit %d: %s", code, p.said())
	}
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("a second signal was obeyed after %v", took)
	}

	g.answer()
	p = g.begin(t, work, "run", "--once")
	if code := p.exit(t); code != 0 {
		t.Fatalf("exit %d: %s", code, p.said())
	}
	exported(t, g.store)
}
