package blobstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celldexport/envelope"
	"celldexport/sinks"
	"celldexport/sinks/blobstream/discover"
	blobstreampb "celldexport/sinks/blobstream/proto"
	"celldexport/sinks/blobstream/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// given is an entry made for a test.
type given struct {
	seq    uint64
	stream envelope.Stream
	texts  []string
	err    error
}

func (g *given) Seq() uint64                 { return g.seq }
func (g *given) Stream() envelope.Stream     { return g.stream }
func (g *given) Position() envelope.Position { return envelope.Position{Epoch: 3, TXID: g.seq} }
func (g *given) Bytes() int64                { return 0 }

func (g *given) Records() iter.Seq2[envelope.Encoded, error] {
	return func(yield func(envelope.Encoded, error) bool) {
		for _, text := range g.texts {
			e := envelope.Encoded{
				Envelope: envelope.Envelope{Stream: g.stream, Position: g.Position(), CommittedAt: int64(g.seq), Node: "n", Origin: envelope.Live, Fragment: 1, Fragments: 1},
				Kind:     envelope.KindRows, Body: fmt.Appendf(nil, `{"kind":"rows","text":%q}`, text),
			}
			if !yield(e, nil) {
				return
			}
		}
		if g.err != nil {
			yield(envelope.Encoded{}, g.err)
		}
	}
}

// line is a queue of given entries.
type line struct {
	mu       sync.Mutex
	entries  []*given
	more     chan struct{}
	flush    bool
	acked    []uint64
	refused  []sinks.Refusal
	reported bool
	// done is called when until is acknowledged, check for every
	// acknowledgement.
	done  func()
	until uint64
	check func(seq uint64)
}

func newLine(entries ...*given) *line { return &line{entries: entries, more: make(chan struct{}, 1)} }

func (l *line) Next(ctx context.Context, deadline time.Time) (sinks.Entry, error) {
	var timeout <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l.mu.Lock()
		if len(l.entries) > 0 {
			e := l.entries[0]
			l.entries = l.entries[1:]
			l.reported = false
			l.mu.Unlock()
			return e, nil
		}
		asked := l.flush && !l.reported
		l.reported = l.reported || asked
		l.mu.Unlock()
		if asked {
			return nil, nil
		}
		select {
		case <-ctx.Done():
		case <-timeout:
			return nil, nil
		case <-l.more:
		}
	}
}

func (l *line) put(entries ...*given) {
	l.mu.Lock()
	l.entries = append(l.entries, entries...)
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
}

func (l *line) Flush() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.flush }

func (l *line) Ack(seq uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked = append(l.acked, seq)
	if l.check != nil {
		l.check(seq)
	}
	if l.done != nil && seq >= l.until {
		l.done()
	}
	return nil
}

func (l *line) Refuse(seq uint64, r sinks.Refusal) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = append(l.refused, r)
	return nil
}

func (l *line) Load() ([]byte, error) { return nil, nil }
func (l *line) Save([]byte) error     { return errors.New("nothing to save") }

func (l *line) refusals() []sinks.Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.refused)
}

func (l *line) last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.acked) == 0 {
		return 0
	}
	return l.acked[len(l.acked)-1]
}

// wire is a transport that answers as told and remembers what it was sent.
type wire struct {
	mu     sync.Mutex
	answer func(n int, address string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error)
	calls  []call
	stored map[uint32][]string
	flying map[uint32]bool
	twice  []uint32 // partitions that had two batches under way
	took   time.Duration
}

type call struct {
	at      time.Time
	address string
	batches []*blobstreampb.ProduceBatchRequest
}

func newWire() *wire { return &wire{stored: map[uint32][]string{}, flying: map[uint32]bool{}} }

func (w *wire) produce(ctx context.Context, address string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
	w.mu.Lock()
	w.calls = append(w.calls, call{time.Now(), address, r.Batches})
	n := len(w.calls)
	for _, b := range r.Batches {
		if w.flying[b.VirtualPartitionId] {
			w.twice = append(w.twice, b.VirtualPartitionId)
		}
		w.flying[b.VirtualPartitionId] = true
	}
	w.mu.Unlock()
	if w.took > 0 {
		select {
		case <-time.After(w.took):
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range r.Batches {
		delete(w.flying, b.VirtualPartitionId)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	response := allStored(r)
	if w.answer != nil {
		var err error
		if response, err = w.answer(n, address, r); err != nil {
			return nil, err
		}
	}
	for i, result := range response.Results {
		if result.Status == blobstreampb.ProduceStatus_PRODUCE_STATUS_OK && len(response.Results) == len(r.Batches) {
			for _, rec := range r.Batches[i].Records {
				w.stored[r.Batches[i].VirtualPartitionId] = append(w.stored[r.Batches[i].VirtualPartitionId], textOf(rec.Payload))
			}
		}
	}
	return response, nil
}

// list is a copy of the calls so far.
func (w *wire) list() []call { w.mu.Lock(); defer w.mu.Unlock(); return slices.Clone(w.calls) }

func (w *wire) count() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.calls) }

func allStored(r *blobstreampb.ProduceBatchesRequest) *blobstreampb.ProduceBatchesResponse {
	response := &blobstreampb.ProduceBatchesResponse{}
	for range r.Batches {
		response.Results = append(response.Results, &blobstreampb.ProduceBatchResponse{})
	}
	return response
}

// everyBatch answers every batch with one status.
func everyBatch(r *blobstreampb.ProduceBatchesRequest, code blobstreampb.ProduceStatus) *blobstreampb.ProduceBatchesResponse {
	response := allStored(r)
	for _, result := range response.Results {
		result.Status = code
	}
	return response
}

// textOf is the text in a record's body.
func textOf(payload []byte) string {
	rest := string(payload)
	for i := range len(rest) - len(`"text":"`) {
		if rest[i:i+len(`"text":"`)] == `"text":"` {
			return rest[i+len(`"text":"`) : len(rest)-2]
		}
	}
	return ""
}

func cell(n int) envelope.Stream {
	return envelope.Stream{Script: "shop", Class: "Cart", Cell: fmt.Sprintf("Cart:%d", n), Incarnation: 3}
}

var testShape = route.Shape{Topic: "celld-changes", Partitions: 4, Writers: 1}

// changing is a source whose brokers the test sets.
type changing struct{ lists chan []broker }

func (c *changing) Watch(ctx context.Context, members func([]broker), _ func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case list := <-c.lists:
			members(list)
		}
	}
}

// begin runs a sink over a queue and a transport; the returned function ends
// it. It is called within a bubble.
func begin(t *testing.T, cfg Config, l *line, w *wire) (*Sink, func()) {
	t.Helper()
	if cfg.Shape.Topic == "" {
		cfg.Shape = testShape
	}
	if cfg.Source == nil {
		cfg.Source = discover.Static{{ID: "a", Address: "a:1"}}
	}
	cfg.transport, cfg.Rand = w, func() float64 { return 0.5 }
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, l) }()
	return s, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}
