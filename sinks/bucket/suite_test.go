package bucket

import (
	"context"
	"errors"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"celldexport/internal/objstore"
	"celldexport/sinks"
	"celldexport/sinks/sinktest"
)

func TestSuite(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIATESTKEYID")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "verysecretaccesskey")
	t.Setenv("AWS_SESSION_TOKEN", "")
	for name, open := range map[string]func(*testing.T) objstore.Store{
		"memory": func(*testing.T) objstore.Store { return objstore.NewMemory() },
		"file": func(t *testing.T) objstore.Store {
			f, err := objstore.NewFile(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			return f
		},
		"s3": fakeS3,
	} {
		t.Run(name, func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Place {
				store := open(t)
				p := &place{store: store, faulty: objstore.NewFault(store)}
				t.Cleanup(func() { p.Behave(t, sinktest.Calm) })
				return p
			})
		})
	}
}

// fakeS3 is a bucket behind HTTP.
func fakeS3(t *testing.T) objstore.Store {
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	transport := server.Client().Transport
	store, err := objstore.Open(t.Context(), objstore.Config{URL: "s3://bucket", Endpoint: server.URL, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// place is a store in the suite's hands.
type place struct {
	store  objstore.Store
	faulty *objstore.Fault

	mu   sync.Mutex
	hits int
	// calm is closed when a store that was stalled goes on.
	calm chan struct{}
}

func (p *place) Sink(t testing.TB, queueBytes int64) sinks.Sink {
	s, err := New(Config{
		Store: p.faulty, Node: "node-a", FlushInterval: 10 * time.Millisecond, FlushBytes: 64 << 10, QueueBytes: queueBytes,
		RetryMin: 5 * time.Millisecond, RetryMax: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p *place) Behave(_ testing.TB, b sinktest.Behavior) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faulty.Clear()
	p.hits = 0
	if p.calm != nil {
		close(p.calm)
		p.calm = nil
	}
	rule := objstore.Rule{Op: objstore.OpPut}
	switch b {
	case sinktest.Calm:
		return
	case sinktest.Down:
		rule = objstore.Rule{Before: errors.New("connection refused")}
	case sinktest.Losing:
		rule.Wait, rule.After = p.hit(nil), errors.New("connection reset")
	case sinktest.Slow:
		rule.Wait = p.hit(func(context.Context) error {
			time.Sleep(20 * time.Millisecond)
			return nil
		})
	case sinktest.Stalled:
		calm := make(chan struct{})
		p.calm = calm
		rule.Wait = p.hit(func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-calm:
				return nil
			}
		})
	}
	p.faulty.Add(rule)
}

// hit counts a call and goes on with then.
func (p *place) hit(then func(context.Context) error) func(context.Context, string, string) error {
	return func(ctx context.Context, _, _ string) error {
		p.mu.Lock()
		p.hits++
		p.mu.Unlock()
		if then == nil {
			return nil
		}
		return then(ctx)
	}
}

func (p *place) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

func (p *place) Read(t testing.TB) [][]byte {
	var lines [][]byte
	for _, o := range objects(t, p.store) {
		for _, line := range o.lines {
			lines = append(lines, []byte(line))
		}
	}
	return lines
}
