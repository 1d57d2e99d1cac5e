package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// encode writes the document as one line of JSON. Maps come out in byte order
// of their keys.
func (d *Document) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(d); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// decode reads a document of this key and holds it to every rule that this
// package keeps, so that a damaged or misplaced object is noticed and not
// continued.
func decode(key string, data []byte) (*Document, error) {
	var d Document
	if err := decodeJSON(data, &d); err != nil {
		return nil, err
	}
	if d.Token == "" {
		return nil, fmt.Errorf("%w: no token", ErrCorrupt)
	}
	for i := range d.Streams {
		s := &d.Streams[i]
		if i > 0 && (s.Incarnation <= d.Streams[i-1].Incarnation || !s.sameName(d.Streams[i-1].Identity)) {
			return nil, fmt.Errorf("%w: %s follows %s", ErrCorrupt, s.Identity, d.Streams[i-1].Identity)
		}
		if at := Key(s.Cell, s.Facet); at != key {
			return nil, fmt.Errorf("%w: it is the ledger of %s and belongs to %s", ErrCorrupt, s.Identity, at)
		}
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, s.Identity, err)
		}
	}
	return &d, nil
}

// check holds a stream that was read to the rules of its methods.
func (s *Stream) check() error {
	for i, e := range s.Epochs {
		if i > 0 && e.Epoch <= s.Epochs[i-1].Epoch {
			return fmt.Errorf("e%d follows e%d", e.Epoch, s.Epochs[i-1].Epoch)
		}
		if err := e.check(); err != nil {
			return fmt.Errorf("e%d: %w", e.Epoch, err)
		}
	}
	for name, list := range s.Tables {
		if err := checkList(list); err != nil {
			return fmt.Errorf("table %q: %w", name, err)
		}
	}
	return nil
}

// decodeJSON reads one JSON object with a format number. Fields that this
// program does not know are refused: it would lose them when it writes.
func decodeJSON(data []byte, into any) error {
	var version struct {
		Format *int `json:"format"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return fmt.Errorf("%w: not JSON: %w", ErrCorrupt, err)
	}
	switch {
	case version.Format == nil || *version.Format < 1:
		return fmt.Errorf("%w: no format number", ErrCorrupt)
	case *version.Format > Format:
		return fmt.Errorf("format %d, at most %d is known: %w", *version.Format, Format, ErrNewer)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}
