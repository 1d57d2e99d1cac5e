package apply

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"

	"celldexport/envelope"
)

// WriteRows writes every row of every visible stream as a line of JSON:
// script, class, cell, facet, incarnation, table, generation, columns, key
// and row, spelled as in records. Lines come by stream, table and key, so
// equal states give equal bytes.
func (s *State) WriteRows(w io.Writer) error {
	out := bufio.NewWriter(w)
	var line []byte
	for _, id := range s.Streams() {
		head := appendStream([]byte("{"), id)
		for _, t := range s.Tables(id) {
			for i := range t.Rows {
				line = append(append(line[:0], head...), ',')
				line = append(t.appendRow(line, &t.Rows[i]), '}', '\n')
				if _, err := out.Write(line); err != nil {
					return fmt.Errorf("write rows of %s: %w", id, err)
				}
			}
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	return nil
}

// Fingerprint is the SHA-256, in hexadecimal, of a stream's rows: of the
// lines of [State.WriteRows] without the stream's name and with every table
// announced, so that an empty one and none differ.
func (s *State) Fingerprint(id envelope.Stream) string {
	sum := sha256.New()
	var line []byte
	for _, t := range s.Tables(id) {
		line = append(t.appendName(append(line[:0], '{')), '}', '\n')
		sum.Write(line)
		for i := range t.Rows {
			line = append(t.appendRow(append(line[:0], '{'), &t.Rows[i]), '}', '\n')
			sum.Write(line)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func appendStream(dst []byte, id envelope.Stream) []byte {
	dst = append(dst, `"script":`...)
	dst = envelope.AppendString(dst, id.Script)
	dst = append(dst, `,"class":`...)
	dst = envelope.AppendString(dst, id.Class)
	dst = append(dst, `,"cell":`...)
	dst = envelope.AppendString(dst, id.Cell)
	dst = append(dst, `,"facet":`...)
	if id.Facet == "" {
		dst = envelope.AppendNull(dst)
	} else {
		dst = envelope.AppendString(dst, id.Facet)
	}
	dst = append(dst, `,"incarnation":`...)
	return strconv.AppendUint(dst, id.Incarnation, 10)
}

func (t *Table) appendName(dst []byte) []byte {
	dst = append(dst, `"table":`...)
	dst = envelope.AppendString(dst, t.Table)
	dst = append(dst, `,"generation":`...)
	return strconv.AppendUint(dst, t.Generation, 10)
}

func (t *Table) appendRow(dst []byte, row *Row) []byte {
	dst = t.appendName(dst)
	dst = append(dst, `,"columns":[`...)
	for i, c := range row.Columns {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = envelope.AppendString(dst, c)
	}
	dst = append(dst, `],"key":`...)
	dst = envelope.AppendValues(dst, row.Key)
	dst = append(dst, `,"row":`...)
	return envelope.AppendValues(dst, row.Values)
}

// AppendJSON appends the row with the columns of EXPORT_GAPS, as repair and
// backfill read it.
func (g *GapRow) AppendJSON(dst []byte) []byte {
	dst = appendStream(append(dst, '{'), g.Stream)
	dst = append(dst, `,"gap_kind":`...)
	dst = envelope.AppendString(dst, string(g.Kind))
	var epoch, txid, commit, boundEpoch, boundTXID, generation *uint64
	if p := g.Position; p != nil {
		epoch, txid, commit = &p.Epoch, &p.TXID, &p.Commit
	}
	if b := g.Bound; b != nil {
		boundEpoch, boundTXID = &b.Epoch, &b.TXID
	}
	dst = appendNumber(dst, "epoch", epoch)
	dst = appendNumber(dst, "txid", txid)
	dst = appendNumber(dst, "commit", commit)
	dst = appendNumber(dst, "bound_epoch", boundEpoch)
	dst = appendNumber(dst, "bound_txid", boundTXID)
	dst = appendNumber(dst, "certified_txid", g.CertifiedTXID)
	dst = append(dst, `,"table_name":`...)
	if g.Table == nil {
		dst = envelope.AppendNull(dst)
	} else {
		dst = envelope.AppendString(dst, g.Table.Table)
		generation = &g.Table.Generation
	}
	dst = appendNumber(dst, "generation", generation)
	dst = append(dst, `,"reason":`...)
	if g.Kind == GapRecord || g.Kind == GapBulk {
		dst = envelope.AppendString(dst, g.Reason)
	} else {
		dst = envelope.AppendNull(dst)
	}
	dst = append(dst, `,"detail":`...)
	if g.Detail == nil {
		dst = envelope.AppendNull(dst)
	} else {
		dst = append(dst, g.Detail...)
	}
	return append(dst, '}')
}

func appendNumber(dst []byte, name string, n *uint64) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	if n == nil {
		return envelope.AppendNull(dst)
	}
	return strconv.AppendUint(dst, *n, 10)
}
