//go:build cgo

package kafka

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"celldexport/envelope"
	"celldexport/envelope/apply"
	"celldexport/sinks"
	"celldexport/sinks/delivery"
)

func TestMain(m *testing.M) {
	if topic := os.Getenv(childBroker); topic != "" {
		if err := serveAsBroker(topic); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const testTopic = "celld-changes"

// world is a spool that the sink sends from, and what the consumer must come
// to hold.
type world struct {
	t      testing.TB
	topic  string
	dir    string
	spool  *delivery.Spool
	engine *delivery.Engine
	sink   *Sink
	logs   *logBook
	source *apply.State
	last   map[envelope.Stream]uint64

	stop context.CancelFunc
	done chan error
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, topic: testTopic, dir: t.TempDir(), logs: new(logBook), source: apply.New(), last: map[envelope.Stream]uint64{}}
	t.Cleanup(w.end)
	return w
}

// begin starts spool, engine and sink, again after end.
func (w *world) begin(cfg Config) {
	w.t.Helper()
	var err error
	spool := filepath.Join(w.dir, "spool")
	if err := os.MkdirAll(spool, 0o755); err != nil {
		w.t.Fatal(err)
	}
	if w.spool, err = delivery.OpenSpool(spool, delivery.Options{}); err != nil {
		w.t.Fatal(err)
	}
	cfg.Topic, cfg.Logger = w.topic, slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if w.sink, err = New(cfg); err != nil {
		w.t.Fatal(err)
	}
	w.engine, err = delivery.New(delivery.Config{
		Spool: w.spool, Sinks: []sinks.Sink{w.sink}, Dir: w.dir, Logger: cfg.Logger, RestartMin: 10 * time.Millisecond,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop, w.done = cancel, make(chan error, 1)
	go func() { w.done <- w.engine.Run(ctx) }()
}

// end stops everything as a process that ends would.
func (w *world) end() {
	if w.stop == nil {
		return
	}
	w.stop()
	if err := <-w.done; err != nil {
		w.t.Error(err)
	}
	w.stop = nil
	if err := w.engine.Close(); err != nil {
		w.t.Error(err)
	}
	if err := w.spool.Close(); err != nil {
		w.t.Error(err)
	}
}

func testStream(n int) envelope.Stream {
	return envelope.Stream{Script: "shop", Class: "Cart", Cell: fmt.Sprintf("Cart:%d", n), Incarnation: 3}
}

// unit spools the next unit of stream n: text is put under the row's key. The
// stream's first unit is its link and the schema.
func (w *world) unit(n int, key int64, text string) {
	w.t.Helper()
	id := testStream(n)
	w.last[id]++
	txid := w.last[id]
	if txid == 1 {
		w.put(id, envelope.Position{Epoch: 3, TXID: 1}, delivery.FormRecords, &envelope.Link{StartTXID: 1, Mode: envelope.ModeFresh})
	}
	table := envelope.TableGeneration{Table: "items", Generation: 1}
	bodies := []envelope.Body{&envelope.Rows{
		TableGeneration: table, Columns: []string{"id", "text"}, KeyColumns: []string{"id"},
		Changes: []envelope.RowChange{{Op: envelope.Insert, Key: []envelope.Value{envelope.Int(key)},
			Row: []envelope.Value{envelope.Int(key), envelope.Text(text)}}},
	}}
	if txid == 1 {
		bodies = append([]envelope.Body{&envelope.Schema{
			TableGeneration: table, SQL: "CREATE TABLE items(id INTEGER PRIMARY KEY, text TEXT)",
			Columns: []envelope.ColumnDef{{Name: "id", Type: "INTEGER", PrimaryKey: 1}, {Name: "text", Type: "TEXT"}},
		}}, bodies...)
	}
	w.put(id, envelope.Position{Epoch: 3, TXID: txid, Commit: txid}, delivery.FormUnit, bodies...)
}

func (w *world) put(id envelope.Stream, at envelope.Position, form delivery.Form, bodies ...envelope.Body) {
	w.t.Helper()
	env := envelope.Envelope{
		Stream: id, Position: at, CommittedAt: 1_790_000_000_000 + int64(at.TXID), Node: "node-a",
		Origin: envelope.Live, Fragment: 1, Fragments: 1,
	}
	entry, err := w.spool.Begin(delivery.Unit{
		Form: form, Stream: id, CommittedAt: env.CommittedAt, Node: env.Node, Scope: id.Cell, Position: at,
		MinTXID: at.TXID, MaxTXID: at.TXID, PageSize: 4096, Commit: 2,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, body := range bodies {
		rec := &envelope.Record{Envelope: env, Body: body}
		e, err := envelope.Encode(rec)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := entry.Record(&e); err != nil {
			w.t.Fatal(err)
		}
		if err := w.source.Add(rec); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := entry.Commit(); err != nil {
		w.t.Fatal(err)
	}
}

// sync makes what was put visible to the sink.
func (w *world) sync() {
	w.t.Helper()
	if err := w.spool.Sync(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if err := w.spool.SetApplied(w.spool.Last()); err != nil {
		w.t.Fatal(err)
	}
}

// flush waits until everything is delivered and certified.
func (w *world) flush(within time.Duration) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	if err := w.engine.Flush(ctx); err != nil {
		state, trouble := w.sink.Report()
		w.t.Fatalf("%v; sink: %s: %s\n%s", err, state, trouble, w.logs)
	}
}

// message is a message as a consumer gets it.
type message struct {
	*kgo.Record
	rec *envelope.Record
}

// consume reads the test topic.
func consume(t testing.TB, brokers []string, opts ...kgo.Opt) []message {
	t.Helper()
	return consumeTopic(t, testTopic, brokers, opts...)
}

// consumeTopic reads a topic from its start to its present end.
func consumeTopic(t testing.TB, topic string, brokers []string, opts ...kgo.Opt) []message {
	t.Helper()
	opts = append(opts, kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
	client, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends := topicEnds(t, client, topic)
	var list []message
	for left := ends.count(); left > 0; {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		fetches := client.PollFetches(ctx)
		cancel()
		if err := fetches.Err(); err != nil {
			t.Fatalf("consume: %v", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			rec, err := envelope.Decode(r.Value)
			if err != nil {
				t.Fatalf("message %d/%d is no record: %v", r.Partition, r.Offset, err)
			}
			list = append(list, message{r, rec})
			left -= ends.reached(r)
		})
	}
	return list
}

// check holds what a consumer of the topic has against the source: the same
// rows, certified to the last unit, every message under its key with its time
// and headers, no gap.
func (w *world) check(list []message) *apply.State {
	w.t.Helper()
	state := apply.New()
	for _, m := range list {
		checkMessage(w.t, m)
		if err := state.Add(m.rec); err != nil {
			w.t.Fatal(err)
		}
	}
	want, got := rowsOf(w.t, w.source), rowsOf(w.t, state)
	if want != got {
		w.t.Errorf("the consumer holds other rows: %d bytes of them, the source has %d", len(got), len(want))
	}
	for id, last := range w.last {
		if at := state.Certified(id)[3]; at.TXID != last {
			w.t.Errorf("stream %v is certified to %v, its last unit is %d", id, at, last)
		}
	}
	gaps, err := state.Gaps()
	if err != nil {
		w.t.Fatal(err)
	}
	if len(gaps) > 0 {
		w.t.Errorf("%d gaps, the first: %+v", len(gaps), gaps[0])
	}
	return state
}

func checkMessage(t testing.TB, m message) {
	t.Helper()
	env := m.rec.Envelope
	if !bytes.Equal(m.Key, env.Stream.Key()) {
		t.Errorf("message %d/%d of %v has key %q", m.Partition, m.Offset, env.Stream, m.Key)
	}
	if got := m.Timestamp.UnixMilli(); got != env.CommittedAt {
		t.Errorf("message %d/%d has timestamp %d, its commit was at %d", m.Partition, m.Offset, got, env.CommittedAt)
	}
	headers := map[string]string{}
	for _, h := range m.Headers {
		headers[h.Key] = string(h.Value)
	}
	if headers["celld-kind"] != string(m.rec.Body.Kind()) || headers["celld-schema-version"] != SchemaVersion ||
		headers["content-type"] != "application/json" || len(headers) != 3 {
		t.Errorf("message %d/%d of kind %s has headers %v", m.Partition, m.Offset, m.rec.Body.Kind(), headers)
	}
}

// inOrder reports resends: a stream's messages, of which each position may
// come again, but only with everything behind it. Refused units may be
// missing.
func inOrder(t testing.TB, list []message, refused ...envelope.Position) (resent int) {
	t.Helper()
	next := map[envelope.Stream]envelope.Position{}
	parts := map[envelope.Stream]int32{}
	for _, m := range list {
		if m.rec.Body.Kind() == envelope.KindWatermark {
			continue
		}
		id, at := m.rec.Stream, m.rec.Position
		if p, ok := parts[id]; ok && p != m.Partition {
			t.Errorf("stream %v is in partitions %d and %d", id, p, m.Partition)
		}
		parts[id] = m.Partition
		last := next[id]
		switch {
		case at.Compare(last) < 0:
			resent++
		case at.TXID == last.TXID+2 && slices.Contains(refused, envelope.Position{Epoch: at.Epoch, TXID: last.TXID + 1, Commit: last.TXID + 1}):
		case at.TXID > last.TXID+1:
			t.Errorf("stream %v goes from %v to %v", id, last, at)
		}
		next[id] = at
	}
	return resent
}

func rowsOf(t testing.TB, s *apply.State) string {
	t.Helper()
	var b strings.Builder
	if err := s.WriteRows(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// logBook keeps log lines.
type logBook struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// wait waits until a line holds text.
func (l *logBook) wait(t testing.TB, text string) {
	t.Helper()
	eventually(t, "a log line with "+text, func() bool { return strings.Contains(l.String(), text) })
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", what)
		}
	}
}

func newCluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(4, testTopic)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
