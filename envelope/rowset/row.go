package rowset

import (
	"fmt"
	"math"
	"unicode/utf8"

	"celldexport/diffpage"
	"celldexport/diffpage/schema"
	"celldexport/envelope"
)

// bulkError stops the walk over a table that cannot be exported as rows.
type bulkError struct{ reason string }

func (e *bulkError) Error() string { return e.reason }

// verdict is what the encoder found out about a row.
type verdict uint8

const (
	// take: the row is encoded.
	take verdict = iota
	// nullKey: the declared key holds NULL; such rows are left out.
	nullKey
	// foreign: the row belongs to another scope of the key-value table.
	foreign
)

// encoder writes the rows of one table as JSON. Its buffers are used again
// for every row.
type encoder struct {
	*shape
	encoding schema.Encoding
	opt      *Options
	// line is the row as it stands in a record, `["?",[key],[row]]`, with its
	// operation still open, and key its sort key, empty when rows come in key
	// order.
	line, key []byte
	// text and value hold a text in UTF-8 and the JSON text of a value.
	text, value []byte
}

// opening is what stands before the key of a row; the operation takes the
// place of the question mark.
const (
	opening = `["?",`
	opAt    = 2
)

// tail is the encoded row behind its operation.
func (e *encoder) tail() []byte { return e.line[len(opening):] }

// encode writes a row to line and key.
func (e *encoder) encode(r diffpage.Row) (verdict, error) {
	v, err := e.encodeKey(r)
	if err != nil || v != take {
		return v, err
	}
	dst, err := e.appendRow(append(e.line, "],["...), r)
	e.line = append(dst, "]]"...)
	return take, err
}

// encodeKey begins a row: its sort key and the JSON of its key.
func (e *encoder) encodeKey(r diffpage.Row) (verdict, error) {
	e.key, e.line = e.key[:0], append(append(e.line[:0], opening...), '[')
	if e.byRowid {
		e.line = envelope.AppendInt(e.line, r.Rowid())
		return take, nil
	}
	if e.form == formKV {
		if ok, err := e.inScope(r); err != nil || !ok {
			return foreign, err
		}
	}
	var v verdict
	var err error
	e.line, v, err = e.appendKey(e.line, r)
	return v, err
}

// appendKey appends the JSON values of the key and writes the sort key. A row
// with NULL in its key stops there.
func (e *encoder) appendKey(dst []byte, r diffpage.Row) ([]byte, verdict, error) {
	for i, col := range e.shape.key {
		c, err := r.Cell(col)
		if err != nil {
			return dst, take, fmt.Errorf("read key column %q: %w", e.keys[i], err)
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		switch c.Class {
		case diffpage.Null:
			return dst, nullKey, nil
		case diffpage.Integer:
			dst = envelope.AppendInt(dst, c.Int)
			e.key = appendIntKey(e.key, c.Int)
		case diffpage.Real:
			dst = envelope.AppendReal(dst, c.Real)
			e.key = appendRealKey(e.key, c.Real)
		case diffpage.Text:
			text, ok := e.utf8(c.Bytes)
			if !ok {
				return dst, take, &bulkError{"a key holds text that is not valid " + e.encoding.String()}
			}
			dst = envelope.AppendText(dst, text)
			e.key = appendBytesKey(e.key, diffpage.Text, text)
		default:
			dst = envelope.AppendBlob(dst, c.Bytes)
			e.key = appendBytesKey(e.key, diffpage.Blob, c.Bytes)
		}
	}
	return dst, take, nil
}

// appendRow appends the values of the exported columns.
func (e *encoder) appendRow(dst []byte, r diffpage.Row) ([]byte, error) {
	for i, col := range e.cells {
		c, err := r.Cell(col)
		if err != nil {
			return dst, fmt.Errorf("read column %q: %w", e.columns[i], err)
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		if e.form == formKV && i == 1 {
			dst = e.appendKVValue(dst, &c)
		} else {
			dst = e.appendCell(dst, &c)
		}
	}
	if e.form == formNS {
		c, err := r.Cell(e.blob)
		if err != nil {
			return dst, fmt.Errorf("read column blob_id: %w", err)
		}
		dst = e.appendBlobKey(append(dst, ','), &c)
	}
	return dst, nil
}

// appendCell appends a value. Text that is not valid in the database's
// encoding is written as the blob of its stored bytes, so nothing of it is
// lost.
func (e *encoder) appendCell(dst []byte, c *diffpage.Cell) []byte {
	switch c.Class {
	case diffpage.Integer:
		return envelope.AppendInt(dst, c.Int)
	case diffpage.Real:
		return envelope.AppendReal(dst, c.Real)
	case diffpage.Text:
		if e.encoding <= schema.UTF8 {
			return envelope.AppendText(dst, c.Bytes)
		}
		if text, ok := e.utf8(c.Bytes); ok {
			return envelope.AppendText(dst, text)
		}
		return envelope.AppendBlob(dst, c.Bytes)
	case diffpage.Blob:
		return envelope.AppendBlob(dst, c.Bytes)
	}
	return envelope.AppendNull(dst)
}

// utf8 is a stored text as UTF-8, valid until the next call; false when it is
// not valid in the database's encoding.
func (e *encoder) utf8(stored []byte) ([]byte, bool) {
	if e.encoding <= schema.UTF8 {
		return stored, utf8.Valid(stored)
	}
	var ok bool
	e.text, ok = e.encoding.AppendUTF8(e.text[:0], stored)
	return e.text, ok
}

// infinite says whether a real has no number text.
func infinite(f float64) bool { return math.IsInf(f, 0) || math.IsNaN(f) }
