package exporter_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
	"celldexport/sinks/bucket"
)

// ownExporter plays the node's own exporter, as some builds of celld have one,
// while something goes on. It leaves what such a one leaves: its objects, with
// links and chains, and nothing below exportd/ that was not there.
func (h *host) ownExporter(during func()) {
	w := h.w
	w.t.Helper()
	kept := make(map[string][]byte)
	for _, key := range w.keys("exportd/") {
		data, _, err := objstore.ReadAll(w.t.Context(), w.store, key, 1<<20)
		w.must(err)
		kept[key] = data
	}
	own := &host{w: w, node: h.node, settings: new(*h.settings), rig: h.rig}
	own.settings.State = filepath.Join(quickDir(w.t), "state")
	own.run()
	during()
	own.sync()
	own.settled()
	own.halt()
	for _, key := range w.keys("exportd/") {
		if data, ok := kept[key]; ok {
			_, err := objstore.PutBytes(w.t.Context(), w.store, key, data, objstore.PutOptions{})
			w.must(err)
		} else {
			w.must(w.store.Delete(w.t.Context(), key))
		}
	}
}

// keys are those below a prefix of the fleet bucket.
func (w *world) keys(prefix string) (keys []string) {
	w.t.Helper()
	for obj, err := range w.store.List(w.t.Context(), prefix, "") {
		w.must(err)
		keys = append(keys, obj.Key)
	}
	return keys
}

// leftTo runs an exporter over what is there and holds that it leaves exactly
// these cells to the one before it, says so, and finishes all others.
func (h *host) leftTo(cells ...*celldsim.Cell) {
	h.w.t.Helper()
	e, err := h.open()
	h.w.must(err)
	begin := time.Now()
	left, err := e.Once(h.w.t.Context(), exportTime)
	h.w.must(err)
	if time.Since(begin) >= exportTime {
		h.w.t.Error("the run waited for what no waiting changes")
	}
	s := e.Status()
	h.w.must(e.Close())
	if len(left) != len(cells) || s.Streams[exporter.StateWaiting] != len(cells) || len(s.Trouble) != len(cells) {
		h.w.t.Errorf("left: %v\nstreams: %v\ntrouble: %v\nwant %d that wait", left, s.Streams, s.Trouble, len(cells))
		return
	}
	for _, c := range cells {
		i := slices.IndexFunc(left, func(p exporter.Pending) bool { return p.Cell == c.Scope() })
		says := []string{fmt.Sprintf("waiting: e%d of %s was there", c.Epoch(), c.Scope()), bucket.Prefix, "next activation"}
		if i < 0 || !containsAll(left[i].Reason, says) {
			h.w.t.Errorf("%s is not left: %v", c.Scope(), left)
		}
	}
	if s.Watch.Pending > 0 {
		h.w.t.Errorf("%d files count as pending", s.Watch.Pending)
	}
}

// said is what was exported of a cell's epoch, watermarks included.
func said(c *consumer.Consumer, scope string, epoch uint64) (records []*envelope.Record) {
	for _, r := range c.Records {
		if r.Stream.Cell == scope && r.Position.Epoch == epoch {
			records = append(records, r)
		}
	}
	return records
}

// forked is a world whose node exported by itself: a cell that had a life
// before wakes, is linked and certified, and goes on after that exporter was
// turned off.
func forked(t *testing.T) (w *world, a *host, c *celldsim.Cell) {
	w = newWorld(t, celldsim.V06)
	a = w.host("node-a")
	c = a.activate("one")
	// Such a build keeps the incarnation in the cell.
	w.write(c, createItems, insertTwo, `ALTER TABLE _cf_METADATA ADD COLUMN incarnation INTEGER`, `UPDATE _cf_METADATA SET incarnation = 1`)
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	a.ownExporter(func() {
		c = a.activate("one")
		w.write(c, `INSERT INTO items VALUES('own',3)`)
	})
	sound(w, "bucket", w.consumer(), c)
	w.write(c, `INSERT INTO items VALUES('after',4)`)
	return w, a, c
}
