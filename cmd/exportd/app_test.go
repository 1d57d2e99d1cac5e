package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celldexport/internal/config"
)

// TestMain runs the tests, or, in a process that a test started, the program.
func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// fakeEngine is an exporter whose every answer is set by the test.
type fakeEngine struct {
	options engineOptions
	left    []pending
	err     error
	// running is closed when Run begins; flush is what Run waits for after
	// its context has ended.
	running chan struct{}
	flush   chan struct{}

	mu     sync.Mutex
	ready  bool
	ticked time.Time
	closed bool
}

func (f *fakeEngine) Run(ctx context.Context) error {
	close(f.running)
	<-ctx.Done()
	if f.flush != nil {
		<-f.flush
	}
	return f.err
}

func (f *fakeEngine) Once(context.Context, time.Duration) ([]pending, error) { return f.left, f.err }
func (f *fakeEngine) Status() any                                            { return map[string]int{"streams": 3} }
func (f *fakeEngine) Unready() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ready {
		return ""
	}
	return "it is not ready"
}
func (f *fakeEngine) Ticked() time.Time { f.mu.Lock(); defer f.mu.Unlock(); return f.ticked }

func (f *fakeEngine) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// bench is the program with a fake world around it.
type bench struct {
	*app
	out, err bytes.Buffer
	signals  chan os.Signal
	fake     *fakeEngine
}

func newBench(environ ...string) *bench {
	b := &bench{signals: make(chan os.Signal, 2), fake: &fakeEngine{running: make(chan struct{}), ticked: time.Now()}}
	b.app = &app{
		stdout: &b.out, stderr: &b.err, environ: environ, signals: b.signals,
		newEngine: func(_ context.Context, o engineOptions) (engine, error) {
			b.fake.options = o
			return b.fake, nil
		},
		demo:    func(context.Context, demoOptions) (bool, error) { return true, nil },
		connect: func(context.Context, *config.Settings, string) error { return nil },
		brokers: func(context.Context, *config.Settings) ([]string, error) { return nil, nil },
	}
	return b
}

// on is an environment with the export on and directories that exist.
func on(t *testing.T) []string {
	t.Helper()
	return []string{"CELLD_EXPORT=1", "CELLD_WATCH=" + t.TempDir(), "EXPORTD_STATE=" + t.TempDir(),
		"CELLD_NODE=n", "CELLD_BUCKET=s3://fleet", "AWS_REGION=r", "EXPORTD_LISTEN=127.0.0.1:0"}
}

func TestExitCodes(t *testing.T) {
	cases := []struct {
		name    string
		args    string
		environ []string
		prepare func(*bench)
		code    int
		out     string
		err     string
	}{
		{name: "version", args: "version", code: 0, out: "exportd "},
		{name: "version flag", args: "--version", code: 0, out: "exportd "},
		{name: "help", args: "--help", code: 0, out: "EXIT STATUS"},
		{name: "help of a verb", args: "run -h", code: 0, out: "once-timeout"},
		{name: "no verb", args: "", code: 2, out: "Usage:"},
		{name: "unknown verb", args: "runn", code: 2, err: `unknown command "runn"`},
		{name: "unknown flag", args: "run --onec", code: 2, err: "unknown flag: --onec"},
		{name: "too many arguments", args: "check-config a b", code: 2, err: `unexpected argument "b"; see exportd check-config --help`},
		{name: "argument to run", args: "run x", code: 2, err: `unexpected argument "x"; see exportd run --help`},
		{name: "settings", args: "run", environ: []string{"CELLD_EXPORT=1"}, code: 2, err: "bucket: required"},
		{name: "missing file", args: "run --config /nonexistent/x.yaml", code: 2, err: "/nonexistent/x.yaml"},
		{name: "once while off", args: "run --once", code: 2, err: "the export is off"},
		{name: "once", args: "run --once", environ: on(t), code: 0},
		{name: "once without patience", args: "run --once --once-timeout 0s", environ: on(t), code: 2, err: "--once-timeout"},
		{name: "once without watch", args: "run --once", environ: append(on(t), "CELLD_WATCH=/nonexistent/w"), code: 2, err: "/nonexistent/w does not exist"},
		{name: "once without bucket", args: "run --once", environ: on(t), prepare: func(b *bench) {
			b.connect = func(context.Context, *config.Settings, string) error { return errors.New("403 Forbidden") }
		}, code: 1, err: "exportd: list s3://fleet: 403 Forbidden\n"},
		{name: "once pending", args: "run --once", environ: on(t), prepare: func(b *bench) {
			b.fake.left = []pending{{Cell: "Cart:1", Reason: "not proven"}, {Cell: "Cart:2", Reason: "file torn"}}
		}, code: 4, err: "Cart:1: not proven\nCart:2: file torn\nexportd: cells that were not finished: 2\n"},
		{name: "once fails", args: "run --once", environ: on(t), prepare: func(b *bench) { b.fake.err = errors.New("list the bucket: 403") },
			code: 1, err: "exportd: list the bucket: 403\n"},
		{name: "demo", args: "demo --cells 2 --seconds 3 --keep --dir /tmp/x", code: 0},
		{name: "demo differs", args: "demo", prepare: func(b *bench) {
			b.demo = func(context.Context, demoOptions) (bool, error) { return false, nil }
		}, code: 3},
		{name: "demo fails", args: "demo", prepare: func(b *bench) {
			b.demo = func(context.Context, demoOptions) (bool, error) { return false, errors.New("disk full") }
		}, code: 1, err: "disk full"},
		{name: "demo of nothing", args: "demo --cells 0", code: 2, err: "--cells"},
		{name: "status of nobody", args: "status --addr 127.0.0.1:1", code: 1, err: "ask exportd for its state"},
		{name: "status of no address", args: "status --addr x", code: 2, err: "not host:port"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(c.environ...)
			if c.prepare != nil {
				c.prepare(b)
			}
			code := b.main(t.Context(), strings.Fields(c.args))
			if code != c.code || !strings.Contains(b.out.String(), c.out) || !strings.Contains(b.err.String(), c.err) {
				t.Errorf("exit %d, want %d\nstdout: %s\nstderr: %s", code, c.code, &b.out, &b.err)
			}
			if c.out == "" && b.out.Len() > 0 {
				t.Errorf("unexpected on stdout: %s", &b.out)
			}
		})
	}
}

func TestDemoIsAskedForWhatTheFlagsSay(t *testing.T) {
	b := newBench()
	var got demoOptions
	b.demo = func(_ context.Context, o demoOptions) (bool, error) { got = o; return true, nil }
	if code := b.main(t.Context(), []string{"demo", "--dir", "/d", "--cells", "7", "--seconds", "9", "--keep"}); code != 0 {
		t.Fatalf("exit %d: %s", code, &b.err)
	}
	if got.Dir != "/d" || got.Cells != 7 || got.Time != 9*time.Second || !got.Keep || got.Out != &b.out || got.Progress != &b.err {
		t.Errorf("got %+v", got)
	}
}

// start runs the program in the background.
func (b *bench) start(t *testing.T, args ...string) (code chan int) {
	t.Helper()
	code = make(chan int, 1)
	go func() { code <- b.main(context.Background(), args) }()
	return code
}

// await is what comes out of a channel, or a failure when nothing does.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come about", what)
		panic("not reached")
	}
}

// patience is how long a test waits for what has to come.
const patience = 90 * time.Second

func TestFirstSignalFlushesAndExitsZero(t *testing.T) {
	b := newBench(on(t)...)
	b.fake.flush = make(chan struct{})
	code := b.start(t, "run")
	await(t, "the start of the exporter", b.fake.running)
	b.signals <- syscall.SIGTERM
	close(b.fake.flush)
	if got := await(t, "the end of the program", code); got != 0 {
		t.Errorf("exit %d: %s", got, &b.err)
	}
	if !b.fake.closed {
		t.Error("the exporter was not closed")
	}
	if b.out.Len() > 0 {
		t.Errorf("logs on stdout: %s", &b.out)
	}
	if !strings.HasPrefix(b.err.String(), "{") {
		t.Errorf("stderr is no terminal and the log no JSON: %s", &b.err)
	}
}

func TestSecondSignalDoesNotWait(t *testing.T) {
	b := newBench(on(t)...)
	b.fake.flush = make(chan struct{})
	code := b.start(t, "run")
	await(t, "the start of the exporter", b.fake.running)
	b.signals <- syscall.SIGTERM
	b.signals <- syscall.SIGTERM
	if got := await(t, "the end of the program", code); got != 1 || !strings.Contains(b.err.String(), "second signal") {
		t.Errorf("exit %d: %s", got, &b.err)
	}
	close(b.fake.flush) // let the abandoned work end
}

func TestFailingExporterEndsTheProgram(t *testing.T) {
	b := newBench(on(t)...)
	b.app.newEngine = func(context.Context, engineOptions) (engine, error) {
		return nil, errors.New("open /state: another exportd is running there")
	}
	if code := b.main(t.Context(), []string{"run"}); code != 1 || !strings.Contains(b.err.String(), "another exportd is running") {
		t.Errorf("exit %d: %s", code, &b.err)
	}
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	b := newBench(append(on(t), "EXPORTD_LISTEN="+taken.Addr().String())...)
	if got := b.main(t.Context(), []string{"run"}); got != 1 || !strings.Contains(b.err.String(), "address already in use") {
		t.Errorf("exit %d: %s", got, &b.err)
	}
}

func TestTextLogAtATerminal(t *testing.T) {
	b := newBench("EXPORTD_LISTEN=127.0.0.1:0")
	b.stderrTerminal = true
	b.signals <- syscall.SIGTERM
	if code := b.main(t.Context(), []string{"run"}); code != 0 || !strings.HasPrefix(b.err.String(), "time=") {
		t.Errorf("exit %d: %s", code, &b.err)
	}
}

func TestCheckConfig(t *testing.T) {
	good := filepath.Join(t.TempDir(), "good.yaml")
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	write(t, good, "node: a\nbucket: s3://fleet\nexport:\n  bucket: s3://other\n")
	write(t, bad, "nod: a\nexport:\n  flush_ms: 10s\n")
	cases := []struct {
		name     string
		args     []string
		environ  []string
		failing  string
		silent   error // of the brokers
		code     int
		out, err string
	}{
		{name: "good", args: []string{good}, out: "settings are valid, export is off\n", err: "once the export is on: watch: required"},
		{name: "by variable", environ: []string{"EXPORTD_CONFIG=" + good}, out: "settings are valid, export is off\n"},
		{name: "bad", args: []string{bad}, code: 2, err: bad + ":1:1: nod: unknown key"},
		{name: "bad too", args: []string{bad}, code: 2, err: bad + ":3:13: export.flush_ms"},
		{name: "on", environ: on(t), out: "settings are valid, export is on\n"},
		{name: "unknown variable", args: []string{good}, environ: []string{"CELLD_EXPORT_FOO=1"}, out: "valid", err: "warning: CELLD_EXPORT_FOO: unknown variable"},
		{name: "connect", args: []string{"--connect"}, environ: on(t), out: "valid"},
		{name: "no watch", args: []string{"--connect"}, environ: append(on(t), "CELLD_WATCH=/nonexistent"), code: 1, err: "watch: /nonexistent does not exist"},
		{name: "brokers", args: []string{"--connect"}, environ: on(t), out: "kafka: topic t has 3 partitions\nsettings are valid"},
		{name: "no brokers", args: []string{"--connect"}, environ: on(t), silent: errors.New("kafka: nobody is there"), code: 1,
			out: "kafka: topic t has 3 partitions\n", err: "exportd: kafka: nobody is there\n"},
		{name: "neither bucket nor brokers", args: []string{"--connect"}, environ: on(t), failing: "s3://fleet", silent: errors.New("kafka: nobody is there"), code: 1,
			out: "kafka: topic t has 3 partitions\n", err: "list s3://fleet: refused\nkafka: nobody is there\n"},
		{name: "brokers are not asked", args: nil, environ: on(t), silent: errors.New("kafka: nobody is there"), out: "settings are valid"},
		{name: "no fleet bucket", args: []string{"--connect", good}, failing: "s3://fleet", code: 1, err: "list s3://fleet: refused"},
		{name: "no export bucket", args: []string{"--connect", good}, failing: "s3://other", code: 1, err: "list s3://other: refused"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(c.environ...)
			b.connect = func(_ context.Context, _ *config.Settings, bucket string) error {
				if bucket == c.failing {
					return errors.New("refused")
				}
				return nil
			}
			b.brokers = func(context.Context, *config.Settings) ([]string, error) {
				return []string{"kafka: topic t has 3 partitions"}, c.silent
			}
			code := b.main(t.Context(), append([]string{"check-config"}, c.args...))
			if code != c.code || !strings.Contains(b.out.String(), c.out) || !strings.Contains(b.err.String(), c.err) {
				t.Errorf("exit %d, want %d\nstdout: %s\nstderr: %s", code, c.code, &b.out, &b.err)
			}
		})
	}
}

func TestConnectListsAFileBucket(t *testing.T) {
	s := config.Default()
	if err := connect(t.Context(), s, "file://"+t.TempDir()); err != nil {
		t.Errorf("empty bucket: %v", err)
	}
	if err := connect(t.Context(), s, "file:///nonexistent/bucket"); err == nil {
		t.Error("a bucket that does not exist was listed")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
