package exporter_test

import (
	"context"
	"errors"
	"testing"

	"celldexport/internal/celldsim"
)

// A round that is cut short before it looked at a cell leaves the cell's
// changes to the next one, though nothing on the disk tells of them again.
func TestRoundCutShortForgetsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	one, two := a.activate("one"), a.activate("two")
	w.write(one, createItems, insertTwo)
	w.write(two, createItems, insertTwo)
	e, err := a.open()
	w.must(err)
	ctx, stop := context.WithCancel(t.Context())
	delivered := make(chan error, 1)
	go func() { delivered <- e.Deliver(ctx) }()
	ended, end := context.WithCancel(t.Context())
	end()
	w.must(e.Walk())
	if err := e.Round(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("the round is not cut short: %v", err)
	}
	w.must(e.Round(t.Context()))
	w.must(e.Checkpoint(t.Context()))
	w.must(e.Flush(t.Context()))
	stop()
	w.must(errors.Join(await(t, "the end of the sinks", delivered), e.Close()))
	w.equal(one, two)
}
