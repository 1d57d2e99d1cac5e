package audit

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"celldexport/envelope"
)

// Summary counts records by stream.
type Summary struct {
	streams map[envelope.Stream]*StreamSummary
}

// StreamSummary is what was seen of one stream.
type StreamSummary struct {
	Stream envelope.Stream
	// Records counts all, Kinds each kind. A fragment counts as a record.
	Records int
	Kinds   map[envelope.Kind]int
	// First and Last are the lowest and the highest position.
	First, Last envelope.Position
}

// Add counts a record.
func (s *Summary) Add(r *envelope.Encoded) {
	if s.streams == nil {
		s.streams = map[envelope.Stream]*StreamSummary{}
	}
	one := s.streams[r.Stream]
	if one == nil {
		one = &StreamSummary{Stream: r.Stream, Kinds: map[envelope.Kind]int{}, First: r.Position, Last: r.Position}
		s.streams[r.Stream] = one
	}
	one.Records++
	one.Kinds[r.Kind]++
	if r.Position.Compare(one.First) < 0 {
		one.First = r.Position
	}
	if r.Position.Compare(one.Last) > 0 {
		one.Last = r.Position
	}
}

// Streams lists what was seen, by script, class, cell, facet and incarnation.
func (s *Summary) Streams() []*StreamSummary {
	return slices.SortedFunc(maps.Values(s.streams), func(a, b *StreamSummary) int {
		return compareStreams(a.Stream, b.Stream)
	})
}

func compareStreams(a, b envelope.Stream) int {
	return cmp.Or(cmp.Compare(a.Script, b.Script), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Cell, b.Cell),
		cmp.Compare(a.Facet, b.Facet), cmp.Compare(a.Incarnation, b.Incarnation))
}

// position is a position in the JSON of reports.
type position struct {
	Epoch  uint64 `json:"epoch"`
	TXID   uint64 `json:"txid"`
	Commit uint64 `json:"commit"`
}

// MarshalJSON writes the summary of a stream as one object; facet is null for
// a root cell, and kinds are in the order of their names.
func (s *StreamSummary) MarshalJSON() ([]byte, error) {
	line := struct {
		Script      string                `json:"script"`
		Class       string                `json:"class"`
		Cell        string                `json:"cell"`
		Facet       *string               `json:"facet"`
		Incarnation uint64                `json:"incarnation"`
		Records     int                   `json:"records"`
		Kinds       map[envelope.Kind]int `json:"kinds"`
		First       position              `json:"first"`
		Last        position              `json:"last"`
	}{
		Script: s.Stream.Script, Class: s.Stream.Class, Cell: s.Stream.Cell, Incarnation: s.Stream.Incarnation,
		Records: s.Records, Kinds: s.Kinds, First: position(s.First), Last: position(s.Last),
	}
	if s.Stream.Facet != "" {
		line.Facet = &s.Stream.Facet
	}
	return json.Marshal(line)
}
