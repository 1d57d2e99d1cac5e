package state

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestDeparted lists more closed streams than are held at once, in the order
// of their last use, while each is saved.
func TestDeparted(t *testing.T) {
	d, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const n = 3*departedPage + 7
	for i := range n {
		s := &Stream{Scope: fmt.Sprintf("Cart:%03d", (i*101)%n), Used: int64(i / 2), Residency: Residency{Epoch: 1, Closed: i%3 > 0}, Shadow: Shadow{File: "f", PageSize: 4096, Commit: 2}}
		if i%5 == 0 {
			s.Shadow.File = ""
		}
		if err := d.Save(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	want := 0
	for i := range n {
		if i%3 > 0 && i%5 > 0 {
			want++
		}
	}
	if got, err := d.Departed().Bytes(t.Context()); err != nil || got != int64(want)*2*(4096+8) {
		t.Errorf("%d bytes (%v), want those of %d shadows", got, err, want)
	}
	seen := make(map[string]bool)
	for s, err := range d.Departed().All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[s.Scope] || !s.Residency.Closed || s.Shadow.File == "" {
			t.Errorf("%s comes again, or has no business here: %+v", s.Scope, s)
		}
		seen[s.Scope] = true
		s.Shadow.File = ""
		if err := d.Save(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != want {
		t.Errorf("%d streams, want %d", len(seen), want)
	}
	if got, err := d.Departed().Bytes(t.Context()); err != nil || got != 0 {
		t.Errorf("%d bytes are left (%v)", got, err)
	}
	for _, err := range d.Departed().All(cancelled(t)) {
		if err == nil {
			t.Error("a context that ended was not noticed")
		}
	}
}

// TestDepartedIsIndexed keeps the measurement off the documents: it is done
// while cells come and go.
func TestDepartedIsIndexed(t *testing.T) {
	d, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rows, err := d.db.Query(`EXPLAIN QUERY PLAN ` + departedBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, detail)
	}
	if got := strings.Join(plan, "; "); !strings.Contains(got, "COVERING INDEX streams_departed") {
		t.Errorf("the plan is %q", got)
	}
}

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
