package bucket

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/internal/objstore"
	"celldexport/sinks"
	"celldexport/sinks/delivery"
)

// rig is a spool, its engine and the bucket sink over a store.
type rig struct {
	spool  *delivery.Spool
	engine *delivery.Engine
	sink   *Sink
	stop   func()
}

func start(t testing.TB, dir string, cfg Config) *rig {
	t.Helper()
	spool, err := delivery.OpenSpool(dir+"/spool", delivery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Node == "" {
		cfg.Node = "node-a"
	}
	cfg.Uncompressed = true
	sink, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := delivery.New(delivery.Config{Spool: spool, Dir: dir, Sinks: []sinks.Sink{sink}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	return &rig{spool: spool, engine: engine, sink: sink, stop: func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
		if err := spool.Close(); err != nil {
			t.Error(err)
		}
	}}
}

func (r *rig) flush(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
	defer cancel()
	if err := r.engine.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func stream(cell int) envelope.Stream {
	return envelope.Stream{Script: "shop", Class: "Cart", Cell: fmt.Sprintf("Cart:%d", cell), Incarnation: 3}
}

func env(u delivery.Unit) envelope.Envelope {
	return envelope.Envelope{
		Stream: u.Stream, Position: u.Position, CommittedAt: u.CommittedAt, Node: u.Node,
		Origin: envelope.Live, Fragment: 1, Fragments: 1,
	}
}

// unit spools a unit of a cell with one record per text, and syncs. txid 1
// also begins the epoch with its link.
func (r *rig) unit(t testing.TB, cell int, txid uint64, texts ...string) uint64 {
	t.Helper()
	u := delivery.Unit{
		Form: delivery.FormUnit, Stream: stream(cell), Scope: stream(cell).Cell, Node: "node-a",
		CommittedAt: 1_790_000_000_000 + int64(txid), MinTXID: txid, MaxTXID: txid,
		Position: envelope.Position{Epoch: 3, TXID: txid, Commit: txid},
	}
	if txid == 1 {
		l := u
		l.Form, l.Position.Commit = delivery.FormRecords, 0
		r.entry(t, l, &envelope.Link{StartTXID: 1, Mode: envelope.ModeFresh})
	}
	var bodies []envelope.Body
	for i, text := range texts {
		bodies = append(bodies, rowsOf(fmt.Sprint("t", i), text))
	}
	seq := r.entry(t, u, bodies...)
	if err := r.spool.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return seq
}

func rowsOf(table, text string) *envelope.Rows {
	return &envelope.Rows{
		TableGeneration: envelope.TableGeneration{Table: table, Generation: 1},
		Columns:         []string{"a"}, KeyColumns: []string{"a"},
		Changes: []envelope.RowChange{{Op: envelope.Insert, Key: []envelope.Value{envelope.Text(text)}, Row: []envelope.Value{envelope.Text(text)}}},
	}
}

func (r *rig) entry(t testing.TB, u delivery.Unit, bodies ...envelope.Body) uint64 {
	t.Helper()
	w, err := r.spool.Begin(u)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range bodies {
		e, err := envelope.Encode(&envelope.Record{Envelope: env(u), Body: body})
		if err == nil {
			err = w.Record(&e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	seq, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// object is a stored object, read back.
type object struct {
	name    Name
	records []*envelope.Record
	lines   []string
}

// objects reads everything in the store, in key order, and checks what holds
// of any sink's objects: names that parse, their hour folder, times that grow.
func objects(t testing.TB, store objstore.Store) []object {
	t.Helper()
	var out []object
	last := int64(0)
	for obj, err := range store.List(t.Context(), Prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		name, ok := ParseName(obj.Key)
		if !ok {
			t.Fatalf("key %q is no object name", obj.Key)
		}
		if name.Micros <= last {
			t.Errorf("key %q is not later than the one before", obj.Key)
		}
		last = name.Micros
		r, err := Fetch(t.Context(), store, obj.Key)
		if err != nil {
			t.Fatal(err)
		}
		o := object{name: name}
		for rec, err := range r.Records() {
			if err != nil {
				t.Fatal(err)
			}
			record, err := rec.Decode()
			if err != nil {
				t.Fatal(err)
			}
			o.records = append(o.records, record)
			o.lines = append(o.lines, string(rec.AppendJSON(nil)))
		}
		out = append(out, o)
	}
	return out
}

func count(list []object) (n int) {
	for _, o := range list {
		n += len(o.records)
	}
	return n
}

// certified recounts the watermarks of a cell from the objects, as a consumer
// does, and returns the txid they certify. A later copy of a record must be
// the same bytes; records of a stream must not go backwards but for copies.
func certified(t testing.TB, list []object, cell int) uint64 {
	t.Helper()
	held := map[string]*envelope.Record{}
	var order []envelope.Position
	var marks []*envelope.Watermark
	for _, o := range list {
		for i, rec := range o.records {
			if rec.Stream != stream(cell) {
				continue
			}
			if _, ok := held[o.lines[i]]; ok {
				continue
			}
			held[o.lines[i]] = rec
			if w, ok := rec.Body.(*envelope.Watermark); ok {
				marks = append(marks, w)
			} else {
				order = append(order, rec.Position)
			}
		}
	}
	if !slices.IsSortedFunc(order, envelope.Position.Compare) {
		t.Errorf("cell %d: records out of order: %v", cell, order)
	}
	var from *envelope.Position
	for _, w := range marks {
		if (w.From == nil) != (from == nil) || from != nil && *from != *w.From {
			t.Fatalf("cell %d: watermark from %v after %v", cell, w.From, from)
		}
		records, positions := uint64(0), map[envelope.Position]bool{}
		for _, rec := range held {
			if envelope.Counts(&rec.Envelope, rec.Body.Kind()) && rec.Fragment == 1 &&
				(from == nil || rec.Position.Compare(*from) > 0) && rec.Position.Compare(w.Through) <= 0 {
				records++
				positions[rec.Position] = true
			}
		}
		if records != w.Records || uint64(len(positions)) != w.Commits {
			t.Fatalf("cell %d: watermark through %v counts %d at %d, held are %d at %d",
				cell, w.Through, w.Records, w.Commits, records, len(positions))
		}
		from = &w.Through
	}
	if from == nil {
		return 0
	}
	return from.TXID
}

func wantCertified(t testing.TB, list []object, cell int, txid uint64) {
	t.Helper()
	if got := certified(t, list, cell); got != txid {
		t.Errorf("cell %d is certified to txid %d, want %d", cell, got, txid)
	}
}

// bigText is n bytes that a record carries twice.
func bigText(n int) string { return strings.Repeat("x", n) }
