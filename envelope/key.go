package envelope

import (
	"cmp"
	"slices"
)

// Key identifies a record: two records with equal keys are copies of one, and
// a reader keeps one of them. Fragments of one record share its key. Keys are
// comparable with ==.
type Key struct {
	stream   Stream
	position Position
	kind     Kind
	origin   Origin
	table    TableGeneration
	// name is the snapshot id, the target facet or the tables of a bulk.
	name string
	// number is the incarnation of a target facet.
	number uint64
}

// Key is the record's identity.
func (r *Record) Key() Key {
	k := Key{stream: r.Stream, position: r.Position, origin: r.Origin}
	if r.Body == nil {
		return k
	}
	k.kind = r.Body.Kind()
	switch b := r.Body.(type) {
	case *Rows:
		k.table = b.TableGeneration
	case *SnapshotRows:
		k.table, k.name = b.TableGeneration, b.SnapshotID
	case *SnapshotEnd:
		k.name = b.SnapshotID
	case *Schema:
		k.table = b.TableGeneration
	case *Bulk:
		sorted := slices.SortedFunc(slices.Values(b.Tables), TableGeneration.Compare)
		k.name = string(appendTables(nil, slices.Compact(sorted)))
	case *Deleted:
		if b.TargetFacet == "" {
			break
		}
		k.name = b.TargetFacet
		if n := cmp.Or(b.TargetIncarnation, b.ThroughIncarnation); n != nil {
			k.number = *n
		}
	}
	return k
}

// Compare orders table generations by name, then generation.
func (g TableGeneration) Compare(h TableGeneration) int {
	return cmp.Or(cmp.Compare(g.Table, h.Table), cmp.Compare(g.Generation, h.Generation))
}
