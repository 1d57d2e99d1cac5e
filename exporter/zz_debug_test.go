package exporter_test

import (
	"celldexport/envelope"
	"celldexport/internal/ledger"
	"fmt"
	"strings"
)

func (v *victim) debugTable(name string) {
	c := v.consumer()
	for _, r := range c.Records {
		switch b := r.Body.(type) {
		case *envelope.Schema:
			if b.Table == name {
				v.t.Log(r.Stream.Cell[:12], r.Position, "schema", b.Generation, b.Dropped, r.Node)
			}
		case *envelope.Link:
			v.t.Log(r.Stream.Cell[:12], r.Position, spellBody(b))
		case *envelope.SnapshotEnd:
			if b.Scope == "stream" {
				v.t.Log(r.Stream.Cell[:12], r.Position, "stream snapshot")
			}
		}
	}
	for _, cell := range v.cells {
		d, _, err := ledger.Load(v.t.Context(), v.store, ledger.Key(cell.Scope(), ""))
		if err == nil && d != nil {
			for _, s := range d.Streams {
				v.t.Log(cell.Scope()[:12], fmt.Sprintf("%+v", s.Tables[name]))
				for _, e := range s.Epochs {
					c := int64(-1)
					if e.Closed != nil {
						c = int64(*e.Closed)
					}
					v.t.Log("   epoch", e.Epoch, e.StartTXID, e.Mode, c)
				}
			}
		}
	}
	_ = strings.Join
}
