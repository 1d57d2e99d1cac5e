package delivery

import (
	"sync"

	"celldexport/envelope"
)

// reports remembers, per epoch and sink, up to where gaps are in the spool and
// on their way, and how many did not arrive.
type reports struct {
	mu   sync.Mutex
	to   map[reportKey]envelope.Position
	lost map[reportKey]loss
}

// loss is how many gaps did not arrive, and up to where they went.
type loss struct {
	gaps int
	to   envelope.Position
}

type reportKey struct {
	sink string
	accountKey
}

// report is a gap of one sink.
type report struct {
	key reportKey
	to  envelope.Position
}

func reportOf(entry *Stored) (report, error) {
	gap, err := gapOf(entry)
	if err != nil {
		return report{}, err
	}
	u := &entry.head.unit
	return report{reportKey{u.Sink, accountKey{u.Stream, u.Position.Epoch}}, gap.To}, nil
}

// set notes a gap, unless it may be one that was lost since others were.
func (r *reports) set(key reportKey, to envelope.Position, lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.lost[key]; l.gaps != lost && to.Compare(l.to) <= 0 {
		return
	}
	if r.to == nil {
		r.to = map[reportKey]envelope.Position{}
	}
	r.to[key] = to
}

func (r *reports) covers(key reportKey, to envelope.Position) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	told, ok := r.to[key]
	return ok && to.Compare(told) <= 0
}

// missing is how many gaps did not arrive.
func (r *reports) missing(key reportKey) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost[key].gaps
}

// lose notes that a gap did not arrive: it was refused, or passed over. One
// that came after it and goes farther tells the same.
func (r *reports) lose(one report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to[one.key].Compare(one.to) <= 0 {
		delete(r.to, one.key)
	}
	if r.lost == nil {
		r.lost = map[reportKey]loss{}
	}
	l := r.lost[one.key]
	l.gaps++
	if one.to.Compare(l.to) > 0 {
		l.to = one.to
	}
	r.lost[one.key] = l
}

// Refusals are the refused records that no gap in the spool tells of. For
// each, the caller spools one gap from From through To at a position of its
// own behind Last, for that sink only, and then calls Reported. A sink that is
// detached has none: a gap would be passed over. Those whose gap was refused
// too are held back for a while; see Untold.
func (e *Engine) Refusals() ([]Refusal, error) {
	list, err := e.journal.refusals()
	if err != nil {
		return nil, err
	}
	e.spurned.keep(list)
	now := e.cfg.Now().UnixMilli()
	open := list[:0]
	for _, r := range list {
		o, key := e.outlet(r.Sink), r.key()
		if o == nil || o.place.absence() != nil || !e.spurned.due(key, now) {
			continue
		}
		if r.lost = e.reports.missing(key); e.reports.covers(key, r.To) {
			continue
		}
		if err := r.find(e, o); err != nil {
			return nil, err
		}
		open = append(open, r)
	}
	return open, nil
}

func (r *Refusal) key() reportKey { return reportKey{r.Sink, accountKey{r.Stream, r.Epoch}} }

// find finds the highest position of the refusal's epoch.
func (r *Refusal) find(e *Engine, o *outlet) error {
	a, err := e.journal.account(o.id, r.Stream, r.Epoch)
	if err != nil {
		return err
	}
	r.Last = r.To
	if a != nil {
		r.CellName, r.CommittedAt, r.Node = a.cellName, a.committedAt, a.node
		if a.through.Compare(r.Last) > 0 {
			r.Last = a.through
		}
	}
	acked, _ := o.cursor()
	for entry, err := range e.spool.Entries(acked) {
		if err != nil {
			return err
		}
		u := &entry.head.unit
		if u.Stream == r.Stream && u.Position.Epoch == r.Epoch && u.Position.Compare(r.Last) >= 0 {
			r.Last, r.CellName, r.CommittedAt, r.Node = u.Position, u.CellName, u.CommittedAt, u.Node
		}
	}
	return nil
}

// Reported notes that a gap telling of the refusal is durable in the spool.
func (e *Engine) Reported(r Refusal) {
	e.reports.set(r.key(), r.To, r.lost)
}

// found notes a gap of one sink that is in the spool and not acknowledged.
func (r *reports) found(e *Engine, entry *Stored) error {
	u := &entry.head.unit
	o := e.outlet(u.Sink)
	if o == nil || !entry.head.gap || entry.head.seq <= o.acked {
		return nil
	}
	one, err := reportOf(entry)
	if err != nil {
		return err
	}
	r.set(one.key, one.to, 0)
	return nil
}
