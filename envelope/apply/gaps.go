package apply

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"celldexport/envelope"
)

// GapKind says what a [GapRow] comes from.
type GapKind string

// The kinds of gap.
const (
	GapRecord    GapKind = "gap"       // a producer or tool said so
	GapLink      GapKind = "link"      // an epoch went on from more than is certified
	GapRecovered GapKind = "recovered" // recovery saved more than is certified, or lost some of it
	GapBulk      GapKind = "bulk"      // a generation changed in a way not carried
)

// Bound is up to where a snapshot must reach to make a gap good.
type Bound struct{ Epoch, TXID uint64 }

// GapRow is one hole in a stream, a row of the EXPORT_GAPS view.
type GapRow struct {
	Stream envelope.Stream
	Kind   GapKind
	// Position is that of the record, nil for GapBulk.
	Position *envelope.Position
	// Bound is nil for GapBulk, which only a snapshot of the table after the
	// bulk closes.
	Bound *Bound
	// CertifiedTXID is what is certified of the bound's epoch, nil when
	// nothing is and for GapBulk.
	CertifiedTXID *uint64
	// Table is set for GapBulk.
	Table *envelope.TableGeneration
	// Reason is the record's for GapRecord, "bulk" for GapBulk, else "".
	Reason string
	// Detail is the record's body as JSON, nil for GapBulk.
	Detail []byte
}

// Gaps are the holes of all visible streams: by stream, kind and position, a
// bulk's by table.
func (s *State) Gaps() ([]GapRow, error) {
	var list []GapRow
	for _, id := range s.Streams() {
		rows, err := s.stream(id).gaps()
		if err != nil {
			return nil, fmt.Errorf("gaps of %s: %w", id, err)
		}
		list = append(list, rows...)
	}
	return list, nil
}

// gaps lists a stream's holes.
func (s *stream) gaps() ([]GapRow, error) {
	var list []GapRow
	for _, name := range slices.Sorted(maps.Keys(s.open)) {
		if g := s.open[name]; g.uncertain {
			list = append(list, GapRow{Stream: s.id, Kind: GapBulk, Table: &g.id, Reason: string(GapBulk)})
		}
	}
	for _, kind := range [...]envelope.Kind{envelope.KindGap, envelope.KindLink, envelope.KindRecovered} {
		for _, r := range s.held[kind] {
			bound, open := s.bound(r)
			if !open || s.covered(bound.Epoch, bound.TXID) {
				continue
			}
			row, err := s.gapRow(r, bound)
			if err != nil {
				return nil, err
			}
			list = append(list, row)
		}
	}
	slices.SortStableFunc(list, func(a, b GapRow) int { return cmp.Compare(a.Kind, b.Kind) })
	return list, nil
}

// bound is up to where changes may be missing by the record, false when it
// says that none are.
func (s *stream) bound(r *envelope.Record) (Bound, bool) {
	switch b := r.Body.(type) {
	case *envelope.Gap:
		return Bound{b.To.Epoch, b.To.TXID}, true
	case *envelope.Link:
		if b.PrevEpoch == nil || b.PrevTXID == nil {
			return Bound{}, false
		}
		return Bound{*b.PrevEpoch, *b.PrevTXID}, *b.PrevTXID > s.certified[*b.PrevEpoch].TXID
	case *envelope.Recovered:
		certified := s.certified[b.Head.Epoch].TXID
		if b.Loss {
			// Certified beyond what was saved: the consumer holds what the
			// cell lost.
			return Bound{b.Head.Epoch, max(b.Head.TXID, certified)}, b.Head.TXID != certified
		}
		return Bound{b.Head.Epoch, b.Head.TXID}, b.Head.TXID > certified
	default:
		return Bound{}, false
	}
}

// gapRow describes the hole that a record tells of.
func (s *stream) gapRow(r *envelope.Record, bound Bound) (GapRow, error) {
	e, err := envelope.Encode(r)
	if err != nil {
		return GapRow{}, err
	}
	row := GapRow{Stream: s.id, Kind: GapKind(e.Kind), Position: &r.Position, Bound: &bound, Detail: e.Body}
	if at, ok := s.certified[bound.Epoch]; ok {
		row.CertifiedTXID = &at.TXID
	}
	if gap, ok := r.Body.(*envelope.Gap); ok {
		row.Reason = gap.Reason
	}
	return row, nil
}
