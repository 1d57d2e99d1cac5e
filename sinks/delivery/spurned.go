package delivery

import (
	"sync"
	"time"

	"celldexport/envelope"
)

// A place that refuses records of a stream may refuse as well the gap that
// tells of them. Another one at once would be refused too, and so on for ever.
// It waits, longer each time; what is refused meanwhile widens it. Nothing is
// certified before it is stored. A restart tries once more: someone may have
// mended the place. Watermarks wait likewise, as long as any of a stretch
// without records.

const (
	// retellMin is how long the next gap waits after one that was refused. It
	// doubles with each up to retellMax. Records of the stream that were
	// stored since then, a sign that the place takes them again, cut it down
	// to retellMin, unless gaps were refused after such signs before.
	retellMin = time.Minute
	retellMax = time.Hour
)

// spurned are gaps and watermarks that their sink's place refused and of
// which no later one was stored.
type spurned struct {
	mu   sync.Mutex
	gaps map[reportKey]spurnedGap
	// marks are the entries of watermarks.
	marks map[reportKey]uint64
}

// spurnedGap is a row of gaps that were refused.
type spurnedGap struct {
	// at is when the last one was, in unix milliseconds.
	at int64
	// gaps is how many there were; misled of them followed a sign that the
	// place takes records again.
	gaps, misled int
	// sign: records of the stream were stored since the last one.
	sign bool
}

// wait is how long the next one is held back, from at on.
func (g spurnedGap) wait() time.Duration {
	n := g.gaps - 1
	if g.sign {
		n = min(n, g.misled)
	}
	return min(retellMin<<min(n, 10), retellMax)
}

// any reports whether there are any.
func (s *spurned) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.gaps)+len(s.marks) > 0
}

// due reports whether a gap may be spooled; now is in unix milliseconds. A
// clock that was set back holds up none.
func (s *spurned) due(key reportKey, now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.gaps[key]
	return !ok || now < g.at || now-g.at >= g.wait().Milliseconds()
}

// refusedGap notes a gap that was refused and returns for how long the next
// one is held back.
func (s *spurned) refusedGap(key reportKey, now int64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gaps == nil {
		s.gaps = map[reportKey]spurnedGap{}
	}
	g := s.gaps[key]
	if g.sign {
		g.misled++
	}
	g.gaps, g.at, g.sign = g.gaps+1, now, false
	s.gaps[key] = g
	return g.wait()
}

// refusedMark notes a watermark that was refused, and reports whether it is
// the first since one was made that was not.
func (s *spurned) refusedMark(key reportKey, seq uint64) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.marks == nil {
		s.marks = map[reportKey]uint64{}
	}
	_, known := s.marks[key]
	s.marks[key] = seq
	return !known
}

// stored notes that a sink has records of streams.
func (s *spurned) stored(sink string, streams map[envelope.Stream]bool) {
	if len(streams) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, g := range s.gaps {
		if key.sink == sink && streams[key.stream] && !g.sign {
			g.sign = true
			s.gaps[key] = g
		}
	}
}

// told notes that a gap was stored.
func (s *spurned) told(key reportKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.gaps, key)
}

// marked notes that a watermark was stored.
func (s *spurned) marked(key reportKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.marks, key)
}

// keep forgets the gaps of refusals that are not there any more.
func (s *spurned) keep(list []Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.gaps) == 0 {
		return
	}
	there := make(map[reportKey]bool, len(list))
	for i := range list {
		there[list[i].key()] = true
	}
	for key := range s.gaps {
		if !there[key] {
			delete(s.gaps, key)
		}
	}
}

// again are the accounts of a sink whose watermark was refused in an entry
// above one.
func (s *spurned) again(sink string, above uint64) map[accountKey]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list map[accountKey]bool
	for key, seq := range s.marks {
		if key.sink == sink && seq > above {
			if list == nil {
				list = map[accountKey]bool{}
			}
			list[key.accountKey] = true
		}
	}
	return list
}

// Untold is what sinks lack of what tells their readers of refused records
// and certifies the rest, because their places refuse that as well.
type Untold struct {
	// Gaps are epochs of streams with refused records whose gap was refused
	// too, Watermarks those whose last watermark was. Others follow later.
	Gaps, Watermarks int
}

// Untold counts what was refused last and has not been stored since.
func (e *Engine) Untold() Untold {
	s := &e.spurned
	s.mu.Lock()
	defer s.mu.Unlock()
	return Untold{Gaps: len(s.gaps), Watermarks: len(s.marks)}
}

// answers are what one acknowledgement says of gaps, watermarks and streams of
// a sink.
type answers struct {
	// listen is false when nothing was refused before: then only what is
	// refused matters.
	listen bool

	lost         []report // gaps that were refused
	marks        []markOf // watermarks that were refused
	told, marked []reportKey
	stored       map[envelope.Stream]bool
}

// markOf is a watermark in the spool.
type markOf struct {
	key reportKey
	seq uint64
}

// hear notes what was said of an entry; lost says that some of it was refused.
func (a *answers) hear(sink string, entry *Stored, lost bool) error {
	h := &entry.head
	key := reportKey{sink, accountKey{h.unit.Stream, h.unit.Position.Epoch}}
	switch {
	case h.unit.Sink == sink && h.gap && lost:
		one, err := reportOf(entry)
		if err != nil {
			return err
		}
		a.lost = append(a.lost, one)
	case h.unit.Sink == sink && h.gap:
		a.told = append(a.told, key)
	case h.unit.Form == FormWatermark && h.unit.Sink != sink:
	case h.unit.Form == FormWatermark && lost:
		a.marks = append(a.marks, markOf{key, h.seq})
	case h.unit.Form == FormWatermark:
		a.marked = append(a.marked, key)
	case h.counted > 0 && !lost:
		if a.stored == nil {
			a.stored = map[envelope.Stream]bool{}
		}
		a.stored[h.unit.Stream] = true
	}
	return nil
}

// heard takes what an acknowledgement said, once that is durable.
func (o *outlet) heard(a *answers) {
	e, name := o.e, o.sink.Name()
	now := e.cfg.Now().UnixMilli()
	e.spurned.stored(name, a.stored)
	for _, key := range a.told {
		e.spurned.told(key)
	}
	for _, key := range a.marked {
		e.spurned.marked(key)
	}
	for _, one := range a.lost {
		// Held back before it counts as lost, or it would be due in between.
		wait := e.spurned.refusedGap(one.key, now)
		e.reports.lose(one)
		e.cfg.Logger.Error("the gap that tells of refused records was refused, too; it is told again when its place may take it, and nothing of the epoch is certified before",
			"sink", name, "stream", one.key.stream.String(), "epoch", one.key.epoch, "in", wait)
	}
	for _, m := range a.marks {
		if e.spurned.refusedMark(m.key, m.seq) {
			e.cfg.Logger.Error("a watermark was refused; another one follows later",
				"sink", name, "stream", m.key.stream.String(), "epoch", m.key.epoch)
		}
	}
}
