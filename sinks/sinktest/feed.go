package sinktest

import (
	"fmt"

	"celldexport/envelope"
	"celldexport/sinks/delivery"
)

// Stream is the stream with a number.
func Stream(n int) envelope.Stream {
	return envelope.Stream{Script: "shop", Class: "Cart", Cell: fmt.Sprintf("Cart:%d", n), Incarnation: 3}
}

// Unit spools the next unit of stream n: text is put under the row's key. The
// first unit of an epoch comes with its link, that of the stream with the
// schema.
func (h *Harness) Unit(n int, key int64, text string) {
	h.t.Helper()
	id := Stream(n)
	table := envelope.TableGeneration{Table: "items", Generation: 1}
	var bodies []envelope.Body
	if h.Last[id].Epoch < h.epoch {
		bodies = append(bodies, &envelope.Schema{
			TableGeneration: table, SQL: "CREATE TABLE items(id INTEGER PRIMARY KEY, text TEXT)",
			Columns: []envelope.ColumnDef{{Name: "id", Type: "INTEGER", PrimaryKey: 1}, {Name: "text", Type: "TEXT"}},
		})
	}
	h.Next(id, append(bodies, &envelope.Rows{
		TableGeneration: table, Columns: []string{"id", "text"}, KeyColumns: []string{"id"},
		Changes: []envelope.RowChange{{
			Op: envelope.Insert, Key: []envelope.Value{envelope.Int(key)},
			Row: []envelope.Value{envelope.Int(key), envelope.Text(text)},
		}},
	})...)
}

// Next spools the next unit of a stream with the records given, perhaps none.
func (h *Harness) Next(id envelope.Stream, bodies ...envelope.Body) {
	h.t.Helper()
	before, txid := h.Last[id], h.Last[id].TXID+1
	if before.Epoch < h.epoch {
		link := &envelope.Link{StartTXID: txid, Mode: envelope.ModeFresh}
		if before.Epoch > 0 {
			link.Mode, link.PrevEpoch, link.PrevTXID = envelope.ModeClone, &before.Epoch, &before.TXID
		}
		h.put(id, envelope.Position{Epoch: h.epoch, TXID: txid}, delivery.FormRecords, link)
	}
	h.Last[id] = envelope.Position{Epoch: h.epoch, TXID: txid, Commit: txid}
	h.put(id, h.Last[id], delivery.FormUnit, bodies...)
}

func (h *Harness) put(id envelope.Stream, at envelope.Position, form delivery.Form, bodies ...envelope.Body) {
	h.t.Helper()
	h.spool(delivery.Unit{
		Form: form, Stream: id, CommittedAt: 1_790_000_000_000 + int64(at.TXID), Node: "node-a", Scope: id.Cell, Position: at,
		MinTXID: at.TXID, MaxTXID: at.TXID, PageSize: 4096, Commit: 2,
	}, bodies...)
}

// Tell spools the gap of a refusal, as the exporter does.
func (h *Harness) Tell(r delivery.Refusal) {
	h.t.Helper()
	at := r.Last
	at.Commit++
	h.spool(delivery.Unit{
		Form: delivery.FormRecords, Stream: r.Stream, CommittedAt: r.CommittedAt, Node: r.Node,
		Scope: r.Scope, Position: at, MinTXID: at.TXID, MaxTXID: at.TXID, Sink: r.Sink,
	}, &envelope.Gap{From: r.From, To: r.To, Reason: r.Reason})
	h.Sync()
	h.Engine.Reported(r)
}

func (h *Harness) spool(u delivery.Unit, bodies ...envelope.Body) {
	h.t.Helper()
	entry, err := h.Spool.Begin(u)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, body := range bodies {
		rec := &envelope.Record{Body: body, Envelope: envelope.Envelope{
			Stream: u.Stream, Position: u.Position, CommittedAt: u.CommittedAt, Node: u.Node,
			Origin: envelope.Live, Fragment: 1, Fragments: 1,
		}}
		e, err := envelope.Encode(rec)
		if err == nil {
			err = entry.Record(&e)
		}
		if err == nil {
			err = h.source.Add(rec)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
	if _, err := entry.Commit(); err != nil {
		h.t.Fatal(err)
	}
}

// Sync makes what was put visible to the sink.
func (h *Harness) Sync() {
	h.t.Helper()
	if err := h.Spool.Sync(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	if err := h.Spool.SetApplied(h.Spool.Last()); err != nil {
		h.t.Fatal(err)
	}
}

// Fill spools units number from to to, of streams streams in turn, and syncs.
func (h *Harness) Fill(from, to, streams int) {
	h.t.Helper()
	for i := from; i < to; i++ {
		h.Unit(i%streams, int64(i%50), fmt.Sprintf("value %d", i))
	}
	h.Sync()
}
