package envelope

import "fmt"

// Decode reads one record. Fields may come in any order; fields that the
// record's kind does not know are skipped but must be well formed. A known
// field twice, a missing one, a value of the wrong type or range, an unknown
// kind, bad UTF-8 and data after the record are errors; all wrap
// [ErrMalformed]. Only facet, cell_name and what writers leave out may be
// missing; an empty facet is the root's, as null is.
func Decode(b []byte) (*Record, error) {
	s := &scanner{buf: b}
	var h header
	if err := s.object(func(name string) error { return h.member(s, name) }); err != nil {
		return nil, malformed(err)
	}
	if err := s.end(); err != nil {
		return nil, malformed(err)
	}
	if err := h.complete(); err != nil {
		return nil, malformed(err)
	}
	body, err := decodeBody(h.kind, h.rest)
	if err != nil {
		return nil, malformed(fmt.Errorf("%s record: %w", h.kind, err))
	}
	return &Record{Envelope: h.env, Body: body}, nil
}

// DecodeBody reads a record whose envelope and body are kept apart, as in a
// Parquet object: body is a JSON object of the body's fields and "kind",
// which must be the given kind. Errors wrap [ErrMalformed].
func DecodeBody(env Envelope, kind Kind, body []byte) (*Record, error) {
	if err := env.check(); err != nil {
		return nil, malformed(err)
	}
	s := &scanner{buf: body}
	members, err := readMembers(s)
	if err != nil {
		return nil, malformed(err)
	}
	if err := s.end(); err != nil {
		return nil, malformed(err)
	}
	f := fields{members: members}
	var inner string
	f.required("kind", str(&inner))
	if f.err != nil {
		return nil, malformed(f.err)
	}
	if Kind(inner) != kind {
		return nil, malformed(fmt.Errorf("the body is of kind %q, the record of kind %q", inner, kind))
	}
	b, err := decodeBody(kind, members)
	if err != nil {
		return nil, malformed(fmt.Errorf("%s record: %w", kind, err))
	}
	return &Record{Envelope: env, Body: b}, nil
}

func malformed(err error) error { return fmt.Errorf("%w: %w", ErrMalformed, err) }

// header collects the envelope of a record, and the rest for its body.
type header struct {
	env  Envelope
	kind Kind
	seen uint32
	rest []member
}

// The bits of header.seen. Facet and cell_name alone may be missing.
const (
	seenScript = 1 << iota
	seenClass
	seenCell
	seenIncarnation
	seenEpoch
	seenTXID
	seenCommit
	seenCommittedAt
	seenNode
	seenOrigin
	seenFragment
	seenFragments
	seenKind
	seenRequired = 1<<iota - 1
	seenFacet    = 1 << (iota - 1)
	seenCellName = 1 << (iota - 1)
)

// member takes one field of the record.
func (h *header) member(s *scanner, name string) error {
	bit, read := h.field(name)
	if bit == 0 {
		raw, err := s.raw()
		h.rest = append(h.rest, member{name, raw})
		return err
	}
	if h.seen&bit != 0 {
		return fmt.Errorf("field %q comes twice", name)
	}
	h.seen |= bit
	if err := read(s); err != nil {
		return fmt.Errorf("field %q: %w", name, err)
	}
	return nil
}

// field is the bit and the reader of an envelope field, 0 for others.
func (h *header) field(name string) (uint32, func(*scanner) error) {
	e := &h.env
	switch name {
	case "script":
		return seenScript, str(&e.Stream.Script)
	case "class":
		return seenClass, str(&e.Stream.Class)
	case "cell":
		return seenCell, str(&e.Stream.Cell)
	case "facet":
		return seenFacet, strOr(&e.Stream.Facet)
	case "incarnation":
		return seenIncarnation, num(&e.Stream.Incarnation)
	case "cell_name":
		return seenCellName, func(s *scanner) (err error) { e.CellName, err = readStringOrNull(s); return }
	case "epoch":
		return seenEpoch, num(&e.Position.Epoch)
	case "txid":
		return seenTXID, num(&e.Position.TXID)
	case "commit":
		return seenCommit, num(&e.Position.Commit)
	case "committed_at":
		return seenCommittedAt, func(s *scanner) (err error) { e.CommittedAt, err = readInt(s); return }
	case "node":
		return seenNode, str(&e.Node)
	case "origin":
		return seenOrigin, str(&e.Origin)
	case "fragment":
		return seenFragment, num(&e.Fragment)
	case "fragments":
		return seenFragments, num(&e.Fragments)
	case "kind":
		return seenKind, str(&h.kind)
	}
	return 0, nil
}

// complete checks the envelope once all fields are read.
func (h *header) complete() error {
	if h.seen&seenRequired != seenRequired {
		required := [...]string{"script", "class", "cell", "incarnation", "epoch", "txid", "commit",
			"committed_at", "node", "origin", "fragment", "fragments", "kind"}
		for i, name := range required {
			if h.seen&(1<<i) == 0 {
				return fmt.Errorf("field %q is missing", name)
			}
		}
	}
	return h.env.check()
}
