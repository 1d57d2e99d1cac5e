package delivery

import (
	"maps"
	"slices"

	"celldexport/envelope"
	"celldexport/envelope/apply"
)

// reader reads what a sink stored in its order, and knows what was refused in
// between.
type reader struct {
	w *lossy
	s *lossySink
	// whole joins fragments; held are the whole records of each epoch.
	whole envelope.Reassembler
	held  map[accountKey]*envelope.Census
	ends  map[accountKey]envelope.Position
	marks map[accountKey][]*envelope.Watermark
	// untold are the positions of refused records that no gap tells of.
	untold map[accountKey][]envelope.Position
	gaps   map[accountKey]int
	lost   int64
	state  *apply.State
	// bases are the snapshots of whole streams, and whether some was refused.
	bases map[envelope.Stream]map[string]bool
}

// check holds everything that a sink stored against what was spooled: the
// reference consumer certifies all of it, every watermark counts what is held,
// every loss is told by one gap before anything is certified over it, and a
// stream without a gap has the rows of its cell.
func (w *lossy) check(s *lossySink) *reader {
	w.t.Helper()
	r := &reader{
		w: w, s: s, held: map[accountKey]*envelope.Census{}, ends: map[accountKey]envelope.Position{},
		marks: map[accountKey][]*envelope.Watermark{}, untold: map[accountKey][]envelope.Position{}, gaps: map[accountKey]int{},
		state: apply.New(), bases: map[envelope.Stream]map[string]bool{},
	}
	for _, d := range s.all() {
		r.read(&d)
	}
	r.certified()
	r.rows()
	for key, left := range r.untold {
		if len(left) > 0 {
			w.t.Errorf("sink %s: %v epoch %d: nothing tells of the refused %v", s.name, key.stream, key.epoch, left)
		}
	}
	for stream, ids := range r.bases {
		if len(ids) > w.absences {
			w.t.Errorf("sink %s: %v was sent whole %d times in %d absences", s.name, stream, len(ids), w.absences)
		}
	}
	if w.alone && s == w.two {
		return r
	}
	st, err := w.r.engine.Status()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, st := range st {
		if st.Name == s.name && (st.Dropped != r.lost || st.Behind != 0 || st.Detached) {
			w.t.Errorf("%d records are refused, the sink's status is %+v", r.lost, st)
		}
	}
	return r
}

func (r *reader) read(d *delivered) {
	r.w.t.Helper()
	key := accountKey{d.rec.Stream, d.rec.Position.Epoch}
	r.base(d)
	if d.refused {
		r.lost++
		switch d.rec.Body.(type) {
		case *envelope.Watermark, *envelope.Gap: // they are made again
		default:
			r.untold[key] = append(r.untold[key], d.rec.Position)
		}
		return
	}
	if err := r.state.Add(d.rec); err != nil {
		r.w.t.Fatal(err)
	}
	switch b := d.rec.Body.(type) {
	case *envelope.Watermark:
		r.mark(key, b)
		return
	case *envelope.Gap:
		r.gap(accountKey{key.stream, b.To.Epoch}, b)
	}
	whole, err := r.whole.Add(d.rec)
	if err != nil {
		r.w.t.Fatal(err)
	}
	if whole == nil {
		return
	}
	if r.held[key] == nil {
		r.held[key] = &envelope.Census{}
	}
	r.held[key].Add(&whole.Envelope, whole.Body.Kind())
	if whole.Position.Compare(r.ends[key]) > 0 {
		r.ends[key] = whole.Position
	}
}

// base notes a snapshot of the whole stream.
func (r *reader) base(d *delivered) {
	var id string
	switch b := d.rec.Body.(type) {
	case *envelope.SnapshotRows:
		id = b.SnapshotID
	case *envelope.SnapshotEnd:
		id = b.SnapshotID
	default:
		return
	}
	if r.bases[d.rec.Stream] == nil {
		r.bases[d.rec.Stream] = map[string]bool{}
	}
	whole, known := r.bases[d.rec.Stream][id]
	r.bases[d.rec.Stream][id] = (whole || !known) && !d.refused
}

func (r *reader) mark(key accountKey, m *envelope.Watermark) {
	r.w.t.Helper()
	var last *envelope.Position
	if before := r.marks[key]; len(before) > 0 {
		last = &before[len(before)-1].Through
	}
	if (m.From == nil) != (last == nil) || last != nil && *m.From != *last {
		r.w.t.Errorf("sink %s: %v epoch %d: a watermark from %v after one through %v", r.s.name, key.stream, key.epoch, m.From, last)
	}
	for _, p := range r.untold[key] {
		if p.Compare(m.Through) <= 0 {
			r.w.t.Errorf("sink %s: %v: certified through %v over the loss at %v, of which nothing tells", r.s.name, key.stream, m.Through, p)
		}
	}
	if r.held[key] == nil || !r.held[key].Valid(m) {
		positions, records := uint64(0), uint64(0)
		if r.held[key] != nil {
			positions, records = r.held[key].Between(m.From, m.Through)
		}
		r.w.t.Errorf("sink %s: %v: (%v, %v] says %d positions and %d records, held are %d and %d",
			r.s.name, key.stream, m.From, m.Through, m.Commits, m.Records, positions, records)
	}
	r.marks[key] = append(r.marks[key], m)
}

// gap takes the losses that it tells of for told.
func (r *reader) gap(key accountKey, g *envelope.Gap) {
	r.w.t.Helper()
	r.gaps[key]++
	var left []envelope.Position
	for _, p := range r.untold[key] {
		if p.Compare(g.To) > 0 {
			left = append(left, p)
		} else if g.From.Compare(p) >= 0 {
			r.w.t.Errorf("sink %s: %v: a gap from %v through %v does not tell of %v", r.s.name, key.stream, g.From, g.To, p)
		}
	}
	if len(left) == len(r.untold[key]) {
		r.w.t.Errorf("sink %s: %v: a gap from %v through %v tells of nothing", r.s.name, key.stream, g.From, g.To)
	}
	r.untold[key] = left
}

// certified holds the chains against what is there: every epoch is certified
// to its last record, that of today to the cell's head.
func (r *reader) certified() {
	r.w.t.Helper()
	for key, marks := range r.marks {
		for _, m := range marks {
			if r.held[key] == nil || !r.held[key].Valid(m) {
				r.w.t.Errorf("sink %s: %v: the watermark through %v is not true any more", r.s.name, key.stream, m.Through)
			}
		}
	}
	for key, end := range r.ends {
		got := r.state.Certified(key.stream)[key.epoch]
		if end.Commit > 0 && got.Compare(end) < 0 {
			r.w.t.Errorf("sink %s: %v epoch %d is certified to %v, it has records to %v", r.s.name, key.stream, key.epoch, got, end)
		}
	}
	for n, c := range r.w.cells {
		if got := r.state.Certified(testStream(n))[c.epoch]; c.units > 0 && (got.TXID != c.txid || got.Commit < c.txid) {
			r.w.t.Errorf("sink %s: stream %d is certified to %v, its head is e%d:%d", r.s.name, n, got, c.epoch, c.txid)
		}
	}
}

// rows holds the rows of streams that say nothing of a gap against the cells.
func (r *reader) rows() {
	r.w.t.Helper()
	gaps, err := r.state.Gaps()
	if err != nil {
		r.w.t.Fatal(err)
	}
	holes := map[envelope.Stream]bool{}
	for _, g := range gaps {
		holes[g.Stream] = true
		if r.lost == 0 {
			r.w.t.Errorf("sink %s: nothing was refused, and there is a gap: %+v", r.s.name, g)
		}
	}
	for n, c := range r.w.cells {
		if holes[testStream(n)] {
			continue
		}
		for _, name := range lossyTables {
			got := map[int64]int64{}
			if table := r.state.Table(testStream(n), name); table != nil {
				for _, row := range table.Rows {
					got[row.Values[0].Int()] = row.Values[1].Int()
				}
			}
			if !maps.Equal(got, c.tables[name]) {
				r.w.t.Errorf("sink %s: stream %d has no gap, and of table %s %v, its cell has %v", r.s.name, n, name,
					slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(c.tables[name])))
			}
		}
	}
}
