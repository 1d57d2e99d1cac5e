package envelope

import (
	"errors"
	"fmt"
	"strconv"
)

// usualBody is room for most bodies without rows, in bytes.
const usualBody = 512

// Encode writes the record's body in its canonical spelling. It fails on a
// record that [Decode] would refuse.
func Encode(r *Record) (Encoded, error) {
	if r.Body == nil {
		return Encoded{}, fmt.Errorf("encode record of %s at %s: it has no body", r.Stream, r.Position)
	}
	kind := r.Body.Kind()
	if err := r.check(); err != nil {
		return Encoded{}, fmt.Errorf("encode %s record of %s at %s: %w", kind, r.Stream, r.Position, err)
	}
	body, err := r.Body.appendFields(appendKind(make([]byte, 0, usualBody), kind))
	if err != nil {
		return Encoded{}, fmt.Errorf("encode %s record of %s at %s: %w", kind, r.Stream, r.Position, err)
	}
	return Encoded{Envelope: r.Envelope, Kind: kind, Body: append(body, '}')}, nil
}

// check holds what [Decode] demands of an envelope.
func (e *Envelope) check() error {
	if e.Fragment == 0 || e.Fragments == 0 || e.Fragment > e.Fragments {
		return fmt.Errorf("fragment %d of %d is out of range", e.Fragment, e.Fragments)
	}
	if !e.Origin.valid() {
		return fmt.Errorf("unknown origin %q", e.Origin)
	}
	return nil
}

// appendKind appends the opening of a body.
func appendKind(dst []byte, kind Kind) []byte {
	dst = append(dst, `{"kind":"`...)
	dst = append(dst, kind...)
	return append(dst, '"')
}

// AppendHead appends the opening brace and the envelope's fields, ending with
// a comma: what stands before "kind" in a record. It allocates nothing.
func (e *Envelope) AppendHead(dst []byte) []byte {
	dst = append(dst, `{"script":`...)
	dst = AppendString(dst, e.Stream.Script)
	dst = appendField(dst, "class")
	dst = AppendString(dst, e.Stream.Class)
	dst = appendField(dst, "cell")
	dst = AppendString(dst, e.Stream.Cell)
	dst = appendField(dst, "facet")
	if e.Stream.Facet == "" {
		dst = AppendNull(dst)
	} else {
		dst = AppendString(dst, e.Stream.Facet)
	}
	dst = appendUintField(dst, "incarnation", e.Stream.Incarnation)
	dst = appendField(dst, "cell_name")
	dst = appendStringOrNull(dst, e.CellName)
	dst = appendUintField(dst, "epoch", e.Position.Epoch)
	dst = appendUintField(dst, "txid", e.Position.TXID)
	dst = appendUintField(dst, "commit", e.Position.Commit)
	dst = appendField(dst, "committed_at")
	dst = strconv.AppendInt(dst, e.CommittedAt, 10)
	dst = appendField(dst, "node")
	dst = AppendString(dst, e.Node)
	dst = appendField(dst, "origin")
	dst = AppendString(dst, string(e.Origin))
	dst = appendUintField(dst, "fragment", uint64(e.Fragment))
	dst = appendUintField(dst, "fragments", uint64(e.Fragments))
	return append(dst, ',')
}

// AppendJSON appends the whole record as one line of JSON, without a newline.
// The body must be one, as [Encode] and [Splitter] write it.
func (e *Encoded) AppendJSON(dst []byte) []byte {
	dst = e.AppendHead(dst)
	if len(e.Body) == 0 {
		return dst
	}
	return append(dst, e.Body[1:]...)
}

// Decode reads the record back from its body; see [DecodeBody].
func (e *Encoded) Decode() (*Record, error) {
	return DecodeBody(e.Envelope, e.Kind, e.Body)
}

// Append appends the record as one line of JSON, without a newline.
func (r *Record) Append(dst []byte) ([]byte, error) {
	e, err := Encode(r)
	if err != nil {
		return dst, err
	}
	return e.AppendJSON(dst), nil
}

// ErrMalformed is wrapped by every error of [Decode] and [DecodeBody]: the
// bytes are not a record of this format.
var ErrMalformed = errors.New("malformed record")
