package exporter_test

import (
	"errors"
	"strings"
	"testing"

	"celldexport/internal/celldsim"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
)

// Starts that are cut short around the claim of the node's object, one after
// the other, never make a state directory look like another one: what the
// claim said is known whether its answer came or not.
func TestClaimsCutShort(t *testing.T) {
	t.Parallel()
	// claimed: the claim is stored and nothing is known of it. refused: it
	// never got there.
	const claimed, refused = true, false
	for name, starts := range map[string][]bool{
		"refused":                   {refused},
		"claimed":                   {claimed},
		"claimed, refused":          {claimed, refused},
		"refused, claimed":          {refused, claimed},
		"claimed twice":             {claimed, claimed},
		"claimed, refused twice":    {claimed, refused, refused},
		"claimed, refused, anew":    {claimed, refused, claimed, refused},
		"refused, claimed, refused": {refused, claimed, refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, celldsim.V06)
			a := w.host("node-a")
			c := a.activate("one")
			w.write(c, createItems, insertTwo)
			a.once()
			w.write(c, `INSERT INTO items VALUES('c',3)`)
			ours := func(key string) bool { return key == ledger.NodeKey("node-a") }
			cut := errors.New("cut short")
			for _, stored := range starts {
				put := objstore.Rule{Op: objstore.OpPut, Key: ours, Before: cut}
				if stored {
					put.Before, put.After = nil, cut
				}
				w.fault.Add(put)
				// The reading before the claim passes.
				w.fault.Add(objstore.Rule{Op: objstore.OpGet, Key: ours, Skip: 1, Before: cut})
				if e, err := a.open(); err == nil || !errors.Is(err, cut) {
					t.Errorf("the start is not cut short: %v", err)
					if err == nil {
						w.must(e.Close())
					}
				}
				w.fault.Clear()
			}
			a.once()
			got := w.equal(c)
			if s := story(got, c.Scope(), 1); strings.Contains(s, "end stream") || !strings.HasSuffix(s, "rows items/1 I") {
				t.Errorf("the stream was begun anew: %s", s)
			}
		})
	}
}
