package exporter_test

import (
	"strings"
	"testing"
	"time"

	"celldexport/exporter"
	"celldexport/internal/celldsim"
)

// leftOf runs the exporter over what is there for so short a time that whatever
// does not answer is given up.
func leftOf(w *world, e *exporter.Exporter) string {
	w.t.Helper()
	begin := time.Now()
	left, err := e.Once(w.t.Context(), 100*time.Millisecond)
	w.must(err)
	if took := time.Since(begin); took > 20*time.Second {
		w.t.Errorf("a run of 100 ms took %v", took)
	}
	var lines strings.Builder
	for _, p := range left {
		lines.WriteString(p.Cell + ": " + p.Reason + "\n")
	}
	return lines.String()
}

// A bucket or a directory that does not answer ends a run over what is present
// as anything else does that keeps it from its end: after its time, with the
// reason.
func TestOnceWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	t.Run("bucket", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, celldsim.V06)
		a := w.host("node-a")
		c := a.activate("one")
		w.write(c, createItems, insertTwo)
		e, err := a.open()
		w.must(err)
		w.hang("", nil)
		left := leftOf(w, e)
		w.tells(left, "all cells: read control plane record", "deadline exceeded")
		w.tells(left, c.Scope(), "pending")
		w.fault.Clear()
		w.must(e.Close())
		a.once()
		w.equal(c)
	})
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, celldsim.V06)
		a, dir := w.host("node-a"), new(silentFS)
		a.fs = dir
		c := a.activate("one")
		w.write(c, createItems, insertTwo)
		a.once()
		w.write(c, `DELETE FROM items`)
		e, err := a.open()
		w.must(err)
		end := dir.silence()
		defer end()
		left := leftOf(w, e)
		w.tells(left, "watch directory: watch directory does not answer")
		if strings.Contains(left, c.Scope()) {
			t.Errorf("a cell that was not looked at is judged: %s", left)
		}
		w.must(e.Close())
		end()
		a.once()
		w.equal(c)
	})
}
