package sinktest

import (
	"slices"
	"strings"
	"testing"

	"celldexport/envelope"
	"celldexport/envelope/apply"
)

// Certified holds what a consumer has, each record as JSON, against the
// source: the same rows, every stream certified to its last unit, no gap. It
// returns the consumer's state.
func (h *Harness) Certified(list [][]byte) *apply.State {
	h.t.Helper()
	state := StateOf(h.t, list)
	if want, got := rowsOf(h.t, h.source), rowsOf(h.t, state); want != got {
		h.t.Errorf("the consumer holds other rows: %d bytes of them, the source has %d", len(got), len(want))
	}
	h.CertifiedToTheEnd(state)
	gaps, err := state.Gaps()
	if err != nil {
		h.t.Error(err)
	}
	if len(gaps) > 0 {
		h.t.Errorf("%d gaps, the first: %+v", len(gaps), gaps[0])
	}
	return state
}

// CertifiedToTheEnd holds that every stream is certified to its last unit.
func (h *Harness) CertifiedToTheEnd(state *apply.State) {
	h.t.Helper()
	for id, last := range h.Last {
		if at := state.Certified(id)[last.Epoch]; at.TXID != last.TXID {
			h.t.Errorf("stream %v is certified to %v, its last unit is at %v", id, at, last)
		}
	}
}

// StateOf is a consumer that has the records.
func StateOf(t testing.TB, list [][]byte) *apply.State {
	t.Helper()
	state := apply.New()
	for _, line := range list {
		rec, err := envelope.Decode(line)
		if err != nil {
			t.Fatalf("%.200q is no record: %v", line, err)
		}
		if err := state.Add(rec); err != nil {
			t.Fatal(err)
		}
	}
	return state
}

// Exact holds what a consumer has, each record as JSON, against what the sink
// was handed: every record of it but those refused, byte for byte, and nothing
// else. It returns how many are copies of others.
func (h *Harness) Exact(list [][]byte) (copies int) {
	h.t.Helper()
	seen := map[string]bool{}
	for _, line := range list {
		if seen[string(line)] {
			copies++
		}
		seen[string(line)] = true
	}
	for _, w := range h.lives {
		for _, g := range w.upTo(^uint64(0)) {
			for _, line := range g.due() {
				if !seen[line] {
					h.t.Errorf("missing is %.300s", line)
				}
				delete(seen, line)
			}
		}
	}
	for line := range seen {
		h.t.Errorf("nobody sent %.300s", line)
	}
	return copies
}

// due are the lines that the place has to get.
func (g *given) due() []string {
	var list []string
	for i, line := range g.lines {
		if !slices.Contains(g.refused, int64(i)) {
			list = append(list, line)
		}
	}
	return list
}

// Ordered holds that the records of each stream, watermarks among them, come
// for the first time in the order in which the sink was handed them, and all
// do. Copies may come at any time after that: consumers go by positions.
func (h *Harness) Ordered(list [][]byte) {
	h.t.Helper()
	want := map[envelope.Stream][]string{}
	streams := map[string]envelope.Stream{}
	for _, w := range h.lives {
		for _, g := range w.upTo(^uint64(0)) {
			lines := g.due()
			want[g.stream] = append(want[g.stream], lines...)
			for _, line := range lines {
				streams[line] = g.stream
			}
		}
	}
	next, seen := map[envelope.Stream]int{}, map[string]bool{}
	for _, raw := range list {
		line := string(raw)
		id, known := streams[line]
		if !known || seen[line] {
			continue // Exact tells of strangers
		}
		seen[line] = true
		n := next[id]
		next[id]++
		if n < len(want[id]) && want[id][n] != line {
			h.t.Errorf("record %d of stream %v is %.300s, want %.300s", n, id, line, want[id][n])
			return
		}
	}
	for id, lines := range want {
		if next[id] != len(lines) {
			h.t.Errorf("stream %v has %d records, want %d", id, next[id], len(lines))
		}
	}
}

// AcknowledgedIsThere holds that everything the sink acknowledged so far is in
// the list, and returns how many entries it acknowledged.
func (h *Harness) AcknowledgedIsThere(list [][]byte) uint64 {
	h.t.Helper()
	seen := map[string]bool{}
	for _, line := range list {
		seen[string(line)] = true
	}
	_, acked, _ := h.watch().counts()
	for _, g := range h.watch().upTo(acked) {
		for _, line := range g.due() {
			if !seen[line] {
				h.t.Errorf("entries up to %d are acknowledged and %.300s is not there", acked, line)
				return acked
			}
		}
	}
	return acked
}

func rowsOf(t testing.TB, s *apply.State) string {
	t.Helper()
	var text strings.Builder
	if err := s.WriteRows(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}
