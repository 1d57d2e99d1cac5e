package exporter_test

import (
	"strings"
	"testing"

	"celldexport/internal/celldsim"
)

// A table ended in a unit that was lost with the state of the node that had
// spooled it. The exporter that went on from there, and later re-bases from
// its own state, says the end: a snapshot that does not list a table leaves it
// open.
func TestEndOfTableLostWithAnothersState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a, b, silent := w.host("node-a"), w.host("node-b"), w.host("node-c")
	c := a.activate("one")
	w.write(c, createItems, insertTwo, `CREATE TABLE old(x)`)
	a.once()
	w.write(c, `DROP TABLE items`, `ALTER TABLE old RENAME TO new`)
	w.must(a.node.Handoff(t.Context(), c.Scope(), false))
	// Spooled and closed, never sent; node-a's disk is gone after this.
	e, err := a.open()
	w.must(err)
	w.must(e.Walk())
	for range 5 {
		w.must(e.Round(t.Context()))
	}
	w.must(e.Checkpoint(t.Context()))
	if left := e.Unfinished(); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
	w.must(e.Close())
	c = b.activate("one")
	w.write(c, `INSERT INTO new VALUES(1)`)
	b.once()
	if s := story(w.consumer(), c.Scope(), c.Epoch()); strings.Contains(s, "end stream") {
		t.Fatalf("node-b does not go on from the close: %s", s)
	}
	w.must(b.node.Handoff(t.Context(), c.Scope(), false))
	b.once()
	c = silent.activate("one") // a life that nobody exports
	w.write(c, `INSERT INTO new VALUES(2)`)
	w.must(silent.node.Handoff(t.Context(), c.Scope(), false))
	c = b.activate("one")
	w.write(c, `INSERT INTO new VALUES(3)`)
	b.once()
	got := w.equal(c)
	if s := story(got, c.Scope(), c.Epoch()); !strings.Contains(s, "end stream") {
		t.Errorf("no re-base: %s", s)
	}
	if holes, err := got.Holes(c.Scope()); err != nil || len(holes) > 0 {
		t.Errorf("holes after a re-base: %v, %v", holes, err)
	}
}
