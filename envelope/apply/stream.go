package apply

import (
	"cmp"
	"maps"
	"slices"

	"celldexport/envelope"
)

// stream is what the records of one visible stream mean.
type stream struct {
	id      envelope.Stream
	deleted *envelope.Position
	// held are the records above the stream's deletion.
	held        held
	certified   map[uint64]envelope.Position
	cut         *cut // of the snapshots of the whole stream
	generations map[envelope.TableGeneration]*generation
	// open are the generations that are not closed, by table.
	open map[string]*generation
}

// newStream computes a stream from its records.
func newStream(id envelope.Stream, all held) *stream {
	s := &stream{id: id, held: all}
	for _, r := range all[envelope.KindDeleted] {
		if r.Body.(*envelope.Deleted).TargetFacet == "" {
			s.deleted = &r.Position // the list ascends
		}
	}
	if s.deleted != nil {
		s.held = held{}
		for kind, list := range all {
			for _, r := range list {
				if r.Position.Compare(*s.deleted) > 0 {
					s.held[kind] = append(s.held[kind], r)
				}
			}
		}
	}
	s.certified = s.certify()
	s.collectGenerations()
	s.cutGenerations()
	s.closeGenerations()
	return s
}

// certify checks the watermarks against what is held.
func (s *stream) certify() map[uint64]envelope.Position {
	var census envelope.Census
	for kind, list := range s.held {
		for _, r := range list {
			// Adopted records are of another stream; they never count.
			census.Add(&r.Envelope, kind)
		}
	}
	for _, r := range s.held[envelope.KindWatermark] {
		if w := r.Body.(*envelope.Watermark); r.Position == w.Through {
			census.Mark(w)
		}
	}
	return census.Certified()
}

// cut is a complete snapshot that replaces what was before it.
type cut struct {
	position envelope.Position
	origin   envelope.Origin
	id       string
}

// compare ranks snapshots; the highest in a scope wins.
func (c *cut) compare(d *cut) int {
	return cmp.Or(
		c.position.Compare(d.position),
		cmp.Compare(c.origin.Rank(), d.origin.Rank()),
		cmp.Compare(c.id, d.id),
	)
}

// of reports whether the snapshot record is part of this snapshot.
func (c *cut) of(r *envelope.Record) bool {
	return r.Position == c.position && r.Origin == c.origin && r.Body.(*envelope.SnapshotRows).SnapshotID == c.id
}

// higher is the greater of two cuts, either of which may be nil.
func higher(a, b *cut) *cut {
	if a == nil || b != nil && b.compare(a) > 0 {
		return b
	}
	return a
}

// cutGenerations finds the complete snapshots and what each replaces.
func (s *stream) cutGenerations() {
	type snapshot struct {
		position envelope.Position
		id       string
	}
	records := map[snapshot]uint64{}
	for _, r := range s.held[envelope.KindSnapshot] {
		records[snapshot{r.Position, r.Body.(*envelope.SnapshotRows).SnapshotID}]++
	}
	tables := map[envelope.TableGeneration]*cut{}
	for _, r := range s.held[envelope.KindSnapshotEnd] {
		end := r.Body.(*envelope.SnapshotEnd)
		if records[snapshot{r.Position, end.SnapshotID}] != end.Records {
			continue // incomplete: some of it did not arrive, or not yet
		}
		c := &cut{r.Position, r.Origin, end.SnapshotID}
		if end.Scope == envelope.ScopeStream {
			s.cut = higher(s.cut, c)
			continue
		}
		for _, tg := range end.Tables {
			tables[tg] = higher(tables[tg], c)
		}
	}
	for tg, g := range s.generations {
		g.cut = higher(s.cut, tables[tg])
		g.uncertain = g.bulk != nil && (g.cut == nil || g.bulk.Compare(g.cut.position) > 0)
	}
}

// closeGenerations decides which generations ended.
func (s *stream) closeGenerations() {
	s.open = map[string]*generation{}
	renamed := map[string]envelope.Position{}
	for _, r := range s.held[envelope.KindSchema] {
		if from := r.Body.(*envelope.Schema).RenamedFrom; from != nil {
			renamed[*from] = r.Position // the list ascends
		}
	}
	ascending := slices.SortedFunc(maps.Keys(s.generations), envelope.TableGeneration.Compare)
	for _, tg := range ascending {
		g := s.generations[tg]
		delete(s.open, tg.Table) // a higher generation closes the lower
		at, ok := renamed[tg.Table]
		if g.dropped || ok && at.Compare(g.opened) >= 0 {
			continue
		}
		s.open[tg.Table] = g
	}
}

// covered reports whether a snapshot of the whole stream reaches so far.
func (s *stream) covered(epoch, txid uint64) bool {
	return s.cut != nil && cmp.Or(cmp.Compare(s.cut.position.Epoch, epoch), cmp.Compare(s.cut.position.TXID, txid)) >= 0
}

// Streams are the streams that are visible, in order. One that was deleted
// itself is among them, without what the deletion removed.
func (s *State) Streams() []envelope.Stream {
	var list []envelope.Stream
	for id := range s.cells {
		list = slices.AppendSeq(list, maps.Keys(s.look(id).streams))
	}
	slices.SortFunc(list, envelope.Stream.Compare)
	return list
}

// Summary is what is known of a stream as a whole.
type Summary struct {
	// Certified is, per epoch, up to where nothing is missing.
	Certified map[uint64]envelope.Position
	// SnapshotAt is the position of the snapshot of the whole stream that
	// holds, DeletedAt that of the stream's deletion; nil when there is none.
	SnapshotAt, DeletedAt *envelope.Position
}

// Summary describes a visible stream; false when there is none.
func (s *State) Summary(id envelope.Stream) (Summary, bool) {
	st := s.stream(id)
	if st == nil {
		return Summary{}, false
	}
	sum := Summary{Certified: maps.Clone(st.certified)}
	if st.cut != nil {
		at := st.cut.position
		sum.SnapshotAt = &at
	}
	if st.deleted != nil {
		at := *st.deleted
		sum.DeletedAt = &at
	}
	return sum, true
}

// Certified is, per epoch, the position up to which the stream is complete.
// Epochs of which nothing is certified are absent.
func (s *State) Certified(id envelope.Stream) map[uint64]envelope.Position {
	sum, _ := s.Summary(id)
	return sum.Certified
}
