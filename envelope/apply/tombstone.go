package apply

import "celldexport/envelope"

// Tombstone hides a stream, or with a nil Incarnation every incarnation of
// it, until it is cleared. It names one scope: that of a root does not cover
// its facets. The JSON is that of the objects under export/tombstones.
type Tombstone struct {
	Script string `json:"script"`
	Class  string `json:"class"`
	Cell   string `json:"cell"`
	// Facet is nil for the root.
	Facet       *string `json:"facet"`
	Incarnation *uint64 `json:"incarnation"`
	// ErasedAt and ClearedAt are in milliseconds since the Unix epoch.
	ErasedAt  int64   `json:"erased_at_ms"`
	Reason    *string `json:"reason"`
	ClearedAt *int64  `json:"cleared_at_ms"`
}

// Matches reports whether the tombstone is active and covers the stream.
func (t *Tombstone) Matches(s envelope.Stream) bool {
	facet := ""
	if t.Facet != nil {
		facet = *t.Facet
	}
	return t.ClearedAt == nil && t.Script == s.Script && t.Class == s.Class && t.Cell == s.Cell &&
		facet == s.Facet && (t.Incarnation == nil || *t.Incarnation == s.Incarnation)
}

// tombstoneID is what a tombstone is stored under; writing it again replaces
// the former one.
type tombstoneID struct {
	stream envelope.Stream // Incarnation 0 when all
	all    bool
}

func (t *Tombstone) id() tombstoneID {
	id := tombstoneID{stream: envelope.Stream{Script: t.Script, Class: t.Class, Cell: t.Cell}, all: t.Incarnation == nil}
	if t.Facet != nil {
		id.stream.Facet = *t.Facet
	}
	if t.Incarnation != nil {
		id.stream.Incarnation = *t.Incarnation
	}
	return id
}

// written is when the tombstone was last written, in its own clock.
func (t *Tombstone) written() int64 {
	if t.ClearedAt != nil {
		return max(t.ErasedAt, *t.ClearedAt)
	}
	return t.ErasedAt
}

// Tombstone takes a tombstone. Of two for the same scope and incarnation the
// one written later holds, the active one when both are of the same time.
func (s *State) Tombstone(t Tombstone) {
	id := t.id()
	old, held := s.tombstones[id]
	if held && (old.written() > t.written() || old.written() == t.written() && old.ClearedAt == nil) {
		return
	}
	s.tombstones[id] = t
	if c := s.cells[cellID{t.Class, t.Cell}]; c != nil {
		c.view = nil
	}
}

// erased reports whether a tombstone hides the stream.
func (s *State) erased(stream envelope.Stream) bool {
	for _, all := range [...]bool{false, true} {
		id := tombstoneID{stream: stream, all: all}
		if all {
			id.stream.Incarnation = 0
		}
		if t, held := s.tombstones[id]; held && t.Matches(stream) {
			return true
		}
	}
	return false
}
