package blobstream_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/envelope/apply"
	"celldexport/sinks"
	"celldexport/sinks/blobstream"
	"celldexport/sinks/blobstream/brokertest"
	"celldexport/sinks/blobstream/route"
	"celldexport/sinks/delivery"
)

const topic = "celld-changes"

var shape = route.Shape{Topic: topic, Partitions: 16, Writers: 2, Writer: 1}

// world is a spool that the sink sends from, and what the consumer must come
// to hold.
type world struct {
	t      testing.TB
	dir    string
	fleet  *brokertest.Fleet
	spool  *delivery.Spool
	engine *delivery.Engine
	sink   *blobstream.Sink
	source *apply.State
	last   map[envelope.Stream]uint64

	stop context.CancelFunc
	done chan error
}

func newWorld(t testing.TB, opt brokertest.Options) *world {
	opt.Topics = []brokertest.Topic{{Name: topic, Partitions: shape.Partitions, Writers: shape.Writers}}
	opt.Writer = shape.Writer
	w := &world{t: t, dir: t.TempDir(), fleet: brokertest.New(opt), source: apply.New(), last: map[envelope.Stream]uint64{}}
	t.Cleanup(func() {
		w.end()
		w.fleet.Close()
	})
	return w
}

// members is a source of brokers that the test changes.
type members struct {
	mu   sync.Mutex
	list []route.Broker
	news chan struct{}
}

func newMembers(list ...route.Broker) *members {
	return &members{list: list, news: make(chan struct{}, 1)}
}

func (m *members) set(list ...route.Broker) {
	m.mu.Lock()
	m.list = list
	m.mu.Unlock()
	select {
	case m.news <- struct{}{}:
	default:
	}
}

func (m *members) Watch(ctx context.Context, tell func([]route.Broker), _ func(error)) {
	for {
		m.mu.Lock()
		list := m.list
		m.mu.Unlock()
		tell(list)
		select {
		case <-ctx.Done():
			return
		case <-m.news:
		}
	}
}

// start starts a broker.
func (w *world) start(id, address string) route.Broker {
	w.t.Helper()
	b, err := w.fleet.Start(id, address)
	if err != nil {
		w.t.Fatal(err)
	}
	return route.Broker{ID: id, Address: b.Address()}
}

// begin starts spool, engine and sink, again after end.
func (w *world) begin(cfg blobstream.Config) {
	w.t.Helper()
	var err error
	spool := filepath.Join(w.dir, "spool")
	if err := os.MkdirAll(spool, 0o755); err != nil {
		w.t.Fatal(err)
	}
	if w.spool, err = delivery.OpenSpool(spool, delivery.Options{}); err != nil {
		w.t.Fatal(err)
	}
	cfg.Shape, cfg.Linger = shape, 10*time.Millisecond
	if w.sink, err = blobstream.New(cfg); err != nil {
		w.t.Fatal(err)
	}
	w.engine, err = delivery.New(delivery.Config{
		Spool: w.spool, Sinks: []sinks.Sink{w.sink}, Dir: w.dir, Logger: slog.New(slog.DiscardHandler), RestartMin: 10 * time.Millisecond,
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
// stream's first unit comes with its link and the schema.
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

// fill spools units from number a to b of some streams.
func (w *world) fill(a, b int) {
	w.t.Helper()
	for i := a; i < b; i++ {
		w.unit(i%7, int64(i%50), fmt.Sprintf("value %d", i))
	}
	w.sync()
}

// flush waits until everything is delivered and certified.
func (w *world) flush() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := w.engine.Flush(ctx); err != nil {
		state, trouble := w.sink.Report()
		w.t.Fatalf("%v; sink: %s: %s; %+v", err, state, trouble, w.sink.Stats())
	}
}

// read is the topic as a consumer reads it, with what every message must be:
// in the partition of its stream, at its time, and a copy, if it is one, to
// the byte. It returns how many copies there are.
func (w *world) read() (state *apply.State, copies int) {
	w.t.Helper()
	list, err := w.fleet.Read(w.t.Context(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	state = apply.New()
	seen := map[string][]byte{}
	newest := map[envelope.Stream]envelope.Position{}
	for _, m := range list {
		rec, err := envelope.Decode(m.Payload)
		if err != nil {
			w.t.Fatalf("message %d/%d is no record: %v", m.Partition, m.Offset, err)
		}
		if vp := shape.Partition(rec.Stream.Key()); vp != m.Partition || m.EventTsMs != rec.CommittedAt {
			w.t.Errorf("a record of %v of %d is in partition %d at %d, want %d", rec.Stream, rec.CommittedAt, m.Partition, m.EventTsMs, vp)
		}
		name := fmt.Sprint(rec.Stream, rec.Position, rec.Body.Kind())
		if first, again := seen[name]; again {
			copies++
			if !bytes.Equal(first, m.Payload) {
				w.t.Errorf("%s was stored twice, not the same", name)
			}
			continue
		}
		seen[name] = m.Payload
		// A watermark is made when what it certifies is delivered, so later
		// records may be before it.
		if rec.Body.Kind() != envelope.KindWatermark {
			if rec.Position.Compare(newest[rec.Stream]) < 0 {
				w.t.Errorf("%s comes first after %v", name, newest[rec.Stream])
			}
			newest[rec.Stream] = rec.Position
		} else if rec.Position.Compare(newest[rec.Stream]) > 0 {
			w.t.Errorf("%s certifies what comes after it, %v is the newest before", name, newest[rec.Stream])
		}
		if err := state.Add(rec); err != nil {
			w.t.Fatal(err)
		}
	}
	return state, copies
}

// check holds what a consumer has against the source.
func (w *world) check() (copies int) {
	w.t.Helper()
	state, copies := w.read()
	if want, got := rowsOf(w.t, w.source), rowsOf(w.t, state); want != got {
		w.t.Errorf("the consumer holds other rows: %d bytes of them, the source has %d", len(got), len(want))
	}
	for id, last := range w.last {
		if at := state.Certified(id)[3]; at.TXID != last {
			w.t.Errorf("stream %v is certified to %v, its last unit is %d", id, at, last)
		}
	}
	gaps, err := state.Gaps()
	if err != nil || len(gaps) > 0 {
		w.t.Errorf("%d gaps, %v", len(gaps), err)
	}
	return copies
}

func rowsOf(t testing.TB, s *apply.State) string {
	t.Helper()
	var text strings.Builder
	if err := s.WriteRows(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within 20 s", what)
		}
	}
}
