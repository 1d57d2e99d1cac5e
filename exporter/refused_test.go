package exporter_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/celldsim"
	"celldexport/sinks"
)

// closedPlace is a sink whose place refuses everything of one cell for good
// while that is set.
type closedPlace struct {
	mu      sync.Mutex
	closed  string // scope of the cell
	stored  []*envelope.Record
	refused []*envelope.Record
}

func (p *closedPlace) Name() string { return "picky" }

func (p *closedPlace) Run(ctx context.Context, q sinks.Queue) error {
	for {
		e, err := q.Next(ctx, time.Time{})
		if ctx.Err() != nil {
			return nil
		}
		if err == nil && e != nil {
			if err = p.take(q, e); err == nil {
				err = q.Ack(e.Seq())
			}
		}
		if err != nil {
			return err
		}
	}
}

func (p *closedPlace) take(q sinks.Queue, e sinks.Entry) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	index := int64(0)
	for enc, err := range e.Records() {
		if err != nil {
			return err
		}
		rec, err := enc.Decode()
		if err != nil {
			return err
		}
		if rec.Stream.Cell == p.closed {
			p.refused = append(p.refused, rec)
			err = q.Refuse(e.Seq(), sinks.Refusal{Record: index, Reason: "a policy forbids it"})
		} else {
			p.stored = append(p.stored, rec)
		}
		if err != nil {
			return err
		}
		index++
	}
	return nil
}

func (p *closedPlace) close(scope string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = scope
}

// seen counts the gaps that were refused and all that was, and finds the last
// position of what else was.
func (p *closedPlace) seen() (gaps, all int, last envelope.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.refused {
		if r.Body.Kind() == envelope.KindGap {
			gaps++
		} else if r.Position.Compare(last) > 0 {
			last = r.Position
		}
	}
	return gaps, len(p.refused), last
}

// holds is a consumer of what is stored.
func (p *closedPlace) holds(w *world) *consumer.Consumer {
	w.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &consumer.Consumer{Records: append([]*envelope.Record{}, p.stored...)}
	w.must(c.Apply())
	return c
}

// A place refuses everything of one cell, the gap that tells of it included:
// no round makes another gap, a stop and --once end and say what is left, other
// cells go on. Then it takes the cell's records again: one gap tells of all
// that was refused, and what follows is certified behind it.
func TestPlaceRefusesAlsoTheGaps(t *testing.T) {
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	p := &closedPlace{}
	a.rig = func(o *exporter.Options) { o.More = []sinks.Sink{p} }
	c, other := a.activate("picked"), a.activate("other")
	w.write(c, createItems, `INSERT INTO items VALUES ('a', 1)`)
	w.write(other, createItems, insertTwo)
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	first := envelope.Position{}
	for _, r := range p.holds(w).Records {
		if r.Stream.Cell == c.Scope() && r.Body.Kind() != envelope.KindWatermark && r.Position.Compare(first) > 0 {
			first = r.Position
		}
	}

	p.close(c.Scope())
	w.write(c, `INSERT INTO items VALUES ('b', 2)`)
	a.run()
	a.sync()
	for i := range 20 {
		w.write(c, fmt.Sprintf(`INSERT INTO items VALUES ('c%d', 3)`, i))
		w.write(other, `UPDATE items SET qty = qty + 1`)
		a.rounds(3)
	}
	a.sync()
	a.settled()
	gaps, all, _ := p.seen()
	if gaps == 0 || gaps > 6 {
		t.Errorf("%d gaps were refused in some 60 rounds", gaps)
	}
	if st := a.sinkNamed("picky"); st.Dropped != int64(all) {
		t.Errorf("%d records were refused, the status says %+v", all, st)
	}
	a.halt()
	for range 2 {
		before, _, _ := p.seen()
		left := a.once()
		if len(left) != 1 || !strings.Contains(left[0].Reason, "refuses also what tells of refused records") {
			t.Errorf("left: %v", left)
		}
		if gaps, _, _ := p.seen(); gaps != before+1 {
			t.Errorf("a start tells once more: %d gaps before, %d after", before, gaps)
		}
	}

	p.close("")
	w.write(c, `INSERT INTO items VALUES ('d', 4)`)
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	toldOnce(w, p, c, other, first)
}

// toldOnce holds what a place has of a cell that it refused for a time, from
// first on, and of another.
func toldOnce(w *world, p *closedPlace, c, other *celldsim.Cell, first envelope.Position) {
	w.t.Helper()
	_, _, last := p.seen()
	topic := p.holds(w)
	var found []*envelope.Gap
	for _, r := range topic.Records {
		switch b := r.Body.(type) {
		case *envelope.Gap:
			found = append(found, b)
		case *envelope.Watermark:
			if r.Stream.Cell == c.Scope() && len(found) == 0 && b.Through.Compare(first) > 0 {
				w.t.Errorf("certified through %v before the gap", b.Through)
			}
		}
	}
	if len(found) != 1 || found[0].From != first || found[0].To != last {
		w.t.Errorf("gaps %+v, want one from %v through %v", found, first, last)
	}
	diffs, err := topic.Compare(w.t.Context(), consumer.SourceOf(other))
	w.must(err)
	diffs = append(append(diffs, topic.Certified(consumer.SourceOf(c))...), topic.Certified(consumer.SourceOf(other))...)
	for _, d := range diffs {
		w.t.Error(d)
	}
	chained(w.t, "picky", topic.Records)
	if rows, err := topic.State.Gaps(); err != nil || len(rows) != 1 {
		w.t.Errorf("the consumer knows of %+v, %v", rows, err)
	}
}
