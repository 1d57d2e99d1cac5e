package rowset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"celldexport/diffpage"
	"celldexport/envelope"
	"celldexport/envelope/v8json"
)

// inScope says whether a row of the key-value table is of the stream's own
// scope. Rows of others are leftovers of a copied database.
func (e *encoder) inScope(r diffpage.Row) (bool, error) {
	c, err := r.Cell(e.scope)
	if err != nil {
		return false, fmt.Errorf("read column scope: %w", err)
	}
	if c.Class != diffpage.Text {
		return false, nil
	}
	text, ok := e.utf8(c.Bytes)
	return ok && string(text) == e.opt.Scope, nil
}

// appendKVValue appends a stored key-value value: the JSON text that it
// decodes to, as a text, or its stored bytes when it does not decode. Classes
// other than blob were written by old versions: JSON as text, and numbers.
func (e *encoder) appendKVValue(dst []byte, c *diffpage.Cell) []byte {
	switch c.Class {
	case diffpage.Integer:
		e.value = envelope.AppendInt(e.value[:0], c.Int)
		return envelope.AppendText(dst, e.value)
	case diffpage.Real:
		if infinite(c.Real) {
			e.value = binary.BigEndian.AppendUint64(e.value[:0], math.Float64bits(c.Real))
			return envelope.AppendBlob(dst, e.value)
		}
		e.value = envelope.AppendReal(e.value[:0], c.Real)
		return envelope.AppendText(dst, e.value)
	case diffpage.Text:
		return e.appendLegacyJSON(dst, c.Bytes)
	case diffpage.Blob:
		if e.opt.DecodeKV != nil {
			if text, ok := e.opt.DecodeKV(e.value[:0], c.Bytes); ok {
				e.value = text
				return envelope.AppendText(dst, text)
			}
		}
		return envelope.AppendBlob(dst, c.Bytes)
	}
	return envelope.AppendNull(dst)
}

// appendLegacyJSON appends a JSON text in its compact form, or the stored
// bytes of a text that is not JSON.
func (e *encoder) appendLegacyJSON(dst, stored []byte) []byte {
	if text, ok := e.utf8(stored); ok {
		if e.value, ok = v8json.AppendLegacy(e.value[:0], text); ok {
			return envelope.AppendText(dst, e.value)
		}
	}
	return envelope.AppendBlob(dst, stored)
}

// The alphabets of the parts of a blob_id.
const (
	decimal = "0123456789"
	base16  = "0123456789abcdef"
)

// appendBlobKey appends the fleet bucket's key of the object that holds a
// namespace value too large for its row, from the row's blob_id:
// "v2:e<epoch>:<digest>" or, of older versions, the digest alone.
func (e *encoder) appendBlobKey(dst []byte, c *diffpage.Cell) []byte {
	if c.Class != diffpage.Text {
		return envelope.AppendNull(dst)
	}
	id, ok := e.utf8(c.Bytes)
	if !ok {
		return envelope.AppendNull(dst)
	}
	key := e.value[:0]
	if rest, v2 := bytes.CutPrefix(id, []byte("v2:e")); v2 {
		epoch, digest, _ := bytes.Cut(rest, []byte(":"))
		if !made(epoch, decimal) || !made(digest, base16) {
			return envelope.AppendNull(dst)
		}
		key = append(append(key, "kv/blobs-v2/"...), e.opt.Scope...)
		key = append(append(key, "/e"...), epoch...)
		key = append(append(key, '/'), digest...)
	} else if made(id, base16) {
		key = append(append(key, "kv/blobs/"...), e.opt.Scope...)
		key = append(append(key, '/'), id...)
	} else {
		return envelope.AppendNull(dst)
	}
	e.value = key
	return envelope.AppendText(dst, key)
}

// made says whether b is not empty and consists of bytes of set.
func made(b []byte, set string) bool {
	for _, c := range b {
		if strings.IndexByte(set, c) < 0 {
			return false
		}
	}
	return len(b) > 0
}
