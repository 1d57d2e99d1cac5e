package apply

import (
	"cmp"
	"slices"
	"strings"

	"celldexport/envelope"
)

// view is what the records of one cell mean.
type view struct {
	// streams are those that are visible: neither deleted by their root nor
	// erased, and holding more than records that other streams adopted.
	streams map[envelope.Stream]*stream
}

// held are the records of one stream by kind, each list in order of
// precedence.
type held map[envelope.Kind][]*envelope.Record

// newView computes the view of a cell's records.
func newView(records map[envelope.Key]*envelope.Record, erased func(envelope.Stream) bool) *view {
	all := map[envelope.Stream]held{}
	for _, r := range records {
		h := all[r.Stream]
		if h == nil {
			h = held{}
			all[r.Stream] = h
		}
		h[r.Body.Kind()] = append(h[r.Body.Kind()], r)
	}
	for _, h := range all {
		for _, list := range h {
			slices.SortFunc(list, precedence)
		}
	}
	removed := facetDeletes(all)
	adopt(all)
	v := &view{streams: map[envelope.Stream]*stream{}}
	for id, h := range all {
		if len(h) > 0 && !removed(id) && !erased(id) {
			v.streams[id] = newStream(id, h)
		}
	}
	return v
}

// precedence orders records of one stream and kind: a later one wins.
func precedence(a, b *envelope.Record) int {
	return cmp.Or(
		a.Position.Compare(b.Position),
		cmp.Compare(a.Origin.Rank(), b.Origin.Rank()),
		compareBodies(a.Body, b.Body),
	)
}

// compareBodies tells apart records that share position and origin, so that
// results come in the same order however the records came.
func compareBodies(a, b envelope.Body) int {
	switch x := a.(type) {
	case *envelope.Rows:
		return x.TableGeneration.Compare(b.(*envelope.Rows).TableGeneration)
	case *envelope.SnapshotRows:
		y := b.(*envelope.SnapshotRows)
		return cmp.Or(cmp.Compare(x.SnapshotID, y.SnapshotID), x.TableGeneration.Compare(y.TableGeneration))
	case *envelope.SnapshotEnd:
		return cmp.Compare(x.SnapshotID, b.(*envelope.SnapshotEnd).SnapshotID)
	case *envelope.Schema:
		return x.TableGeneration.Compare(b.(*envelope.Schema).TableGeneration)
	default:
		// Of the others only the sets matter, or there is but one.
		return 0
	}
}

// facetDeletes tells which streams a delete on their root's stream names.
// Such a delete holds whatever becomes of the root's stream itself.
func facetDeletes(all map[envelope.Stream]held) func(envelope.Stream) bool {
	var deletes []*envelope.Record
	for id, h := range all {
		for _, r := range h[envelope.KindDeleted] {
			if id.Facet == "" && r.Body.(*envelope.Deleted).TargetFacet != "" {
				deletes = append(deletes, r)
			}
		}
	}
	return func(id envelope.Stream) bool {
		return id.Facet != "" && slices.ContainsFunc(deletes, func(r *envelope.Record) bool {
			return r.Stream.Script == id.Script && names(r.Body.(*envelope.Deleted), id)
		})
	}
}

// names reports whether a delete with a target names the facet stream.
func names(d *envelope.Deleted, id envelope.Stream) bool {
	at := id.Facet == d.TargetFacet
	below := d.Subtree && strings.HasPrefix(id.Facet, d.TargetFacet+"/")
	if d.ThroughIncarnation != nil {
		return (at || below) && id.Incarnation <= *d.ThroughIncarnation
	}
	return at && (d.TargetIncarnation == nil || *d.TargetIncarnation == id.Incarnation) || below
}

// adopt moves recovered records onto the streams they concern: dead-node
// recovery knows a cell, but neither its script nor its incarnation. Those
// that no stream takes stay where they are.
func adopt(all map[envelope.Stream]held) {
	var candidates []envelope.Stream
	var recovered []*envelope.Record
	for id, h := range all {
		recovered = append(recovered, h[envelope.KindRecovered]...)
		delete(h, envelope.KindRecovered)
		if len(h) > 0 {
			candidates = append(candidates, id)
		}
	}
	slices.SortFunc(recovered, func(a, b *envelope.Record) int {
		return cmp.Or(precedence(a, b), a.Stream.Compare(b.Stream))
	})
	for _, r := range recovered {
		adopters := adopters(r, candidates)
		if len(adopters) == 0 {
			adopters = []envelope.Stream{r.Stream}
		}
		for _, id := range adopters {
			all[id][envelope.KindRecovered] = append(all[id][envelope.KindRecovered], r)
		}
	}
}

// adopters are the streams that a recovered record concerns: of a facet every
// incarnation, of a root, per script, the latest one at the record's epoch.
func adopters(r *envelope.Record, candidates []envelope.Stream) []envelope.Stream {
	latest := map[string]envelope.Stream{}
	var facets []envelope.Stream
	for _, id := range candidates {
		if id.Facet != r.Stream.Facet || r.Stream.Script != "" && r.Stream.Script != id.Script {
			continue
		}
		if id.Facet != "" {
			facets = append(facets, id)
			continue
		}
		if id.Incarnation > r.Body.(*envelope.Recovered).Head.Epoch {
			continue
		}
		if best, ok := latest[id.Script]; !ok || id.Incarnation > best.Incarnation {
			latest[id.Script] = id
		}
	}
	for _, id := range latest {
		facets = append(facets, id)
	}
	return facets
}
