package bucket

import (
	"fmt"

	"celldexport/envelope"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
)

const (
	// pageRows and pageBytes bound what is handed to a column writer at once:
	// a page ends between two such pieces only.
	pageRows  = 512
	pageBytes = 1 << 20
	// blockBytes is the memory that collected texts are copied to at a time.
	blockBytes = 1 << 20
)

// group is the records of a row group, by column.
type group struct {
	texts  [columnCount]texts // of text columns but body
	bodies []parquet.ByteArray
	def    [columnCount][]int16 // of optional columns
	wide   [columnCount][]int64
	slim   [columnCount][]int32

	rows  int
	bytes int64
	// block is what texts are copied to. It never grows, as texts point into
	// it: a full one joins those in full. free are those of the group before.
	block      []byte
	full, free [][]byte
	stream     envelope.Stream // of the record before
	piece      []parquet.ByteArray
	// ratio is what a byte of the group before became in the object.
	ratio float64
}

// add appends a record.
func (g *group) add(r *envelope.Encoded) {
	g.names(r)
	g.numbers(r)
	g.put(colKind, string(r.Kind))
	g.put(colOrigin, string(r.Origin))
	at := g.room(len(r.Body))
	g.block = append(g.block, r.Body...)
	g.bodies = append(g.bodies, g.block[at:])
	g.rows++
	g.bytes += int64(len(r.Body)) + recordBytes
}

// names sets the columns that name the stream; consecutive records mostly
// share them.
func (g *group) names(r *envelope.Encoded) {
	if g.rows > 0 && g.stream == r.Stream {
		g.texts[colScript].repeat()
		g.texts[colClass].repeat()
		g.texts[colCell].repeat()
	} else {
		g.put(colScript, r.Stream.Script)
		g.put(colClass, r.Stream.Class)
		g.put(colCell, r.Stream.Cell)
		g.stream = r.Stream
	}
	if r.Stream.Facet != "" {
		g.put(colFacet, r.Stream.Facet)
	}
	g.define(colFacet, r.Stream.Facet != "")
	g.put(colNode, r.Node)
	if r.CellName != nil {
		g.put(colCellName, *r.CellName)
	}
	g.define(colCellName, r.CellName != nil)
}

func (g *group) numbers(r *envelope.Encoded) {
	g.wide[colIncarnation] = append(g.wide[colIncarnation], int64(r.Stream.Incarnation))
	g.wide[colEpoch] = append(g.wide[colEpoch], int64(r.Position.Epoch))
	g.wide[colTXID] = append(g.wide[colTXID], int64(r.Position.TXID))
	g.wide[colCommit] = append(g.wide[colCommit], int64(r.Position.Commit))
	g.wide[colCommittedAt] = append(g.wide[colCommittedAt], r.CommittedAt)
	g.slim[colFragment] = append(g.slim[colFragment], int32(r.Fragment))
	g.slim[colFragments] = append(g.slim[colFragments], int32(r.Fragments))
}

// room makes the block take n more bytes and returns where they begin.
func (g *group) room(n int) int {
	if len(g.block)+n > cap(g.block) {
		g.nextBlock(n)
	}
	return len(g.block)
}

// nextBlock begins a block of at least n bytes, one of before if it can.
func (g *group) nextBlock(n int) {
	if cap(g.block) == blockBytes {
		g.full = append(g.full, g.block[:0])
	}
	if last := len(g.free) - 1; n <= blockBytes && last >= 0 {
		g.block, g.free = g.free[last], g.free[:last]
		return
	}
	g.block = make([]byte, 0, max(blockBytes, n))
}

// put sets a text of a record; each different one is copied once.
func (g *group) put(c int, s string) {
	t := &g.texts[c]
	if t.find(s) {
		return
	}
	at := g.room(len(s))
	g.block = append(g.block, s...)
	t.add(s, g.block[at:])
}

func (g *group) define(c int, present bool) {
	level := int16(0)
	if present {
		level = 1
	}
	g.def[c] = append(g.def[c], level)
}

// cells is the number of different cells.
func (g *group) cells() int { return len(g.texts[colCell].values) }

// clear forgets the records. It keeps the memory of the columns, which that
// of records bounds, and the blocks that they took: a small group after large
// ones gives the others back.
func (g *group) clear() {
	for c := range columns {
		g.texts[c].clear()
		g.def[c], g.wide[c], g.slim[c] = g.def[c][:0], g.wide[c][:0], g.slim[c][:0]
	}
	// What these point to may go.
	clear(g.bodies)
	clear(g.piece[:cap(g.piece)])
	g.bodies = g.bodies[:0]
	if g.rows > 0 {
		clear(g.free)
		g.free, g.full = g.full, g.free[:0]
	}
	g.rows, g.bytes = 0, 0
	g.block = g.block[:0]
	if cap(g.block) > blockBytes {
		g.block = nil
	}
	g.stream = envelope.Stream{}
}

// packs is about how many bytes the row group will be.
func (g *group) packs() int {
	ratio := g.ratio
	if ratio == 0 {
		ratio = 1. / 16
	}
	return 4<<10 + int(float64(g.bytes)*min(ratio, 1)*9/8)
}

// packed remembers that the row group became n bytes.
func (g *group) packed(n int) { g.ratio = float64(n) / float64(g.bytes) }

// write hands column c to the row group, which closes the column before.
func (g *group) write(rows file.SerialRowGroupWriter, c int) error {
	col, err := rows.NextColumn()
	if err != nil {
		return err
	}
	switch w := col.(type) {
	case *file.ByteArrayColumnChunkWriter:
		err = g.writeTexts(w, c)
	case *file.Int64ColumnChunkWriter:
		_, err = w.WriteBatch(g.wide[c], nil, nil)
	case *file.Int32ColumnChunkWriter:
		_, err = w.WriteBatch(g.slim[c], nil, nil)
	default:
		err = fmt.Errorf("unexpected writer %T", w)
	}
	return err
}

func (g *group) writeTexts(w *file.ByteArrayColumnChunkWriter, c int) error {
	switch t := &g.texts[c]; {
	case c == colBody:
		return writeBodies(w, g.bodies)
	case columns[c].dictionary && t.bytes < w.Properties().DictionaryPageSizeLimit():
		return t.writeCodes(w)
	default:
		return g.writePlain(w, t, g.def[c])
	}
}

// writeBodies hands the bodies over in pieces, so that no page becomes much
// larger than what it holds of a single record.
func writeBodies(w *file.ByteArrayColumnChunkWriter, values []parquet.ByteArray) error {
	for len(values) > 0 {
		n, size := 0, 0
		for n < min(pageRows, len(values)) && (n == 0 || size < pageBytes) {
			size += len(values[n])
			n++
		}
		if _, err := w.WriteBatch(values[:n], nil, nil); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}

// writePlain hands a text column over as values, in pieces like those of
// bodies; the library makes a dictionary of them where it is to.
func (g *group) writePlain(w *file.ByteArrayColumnChunkWriter, t *texts, def []int16) error {
	taken := 0 // values before the piece
	for done := 0; done < g.rows; {
		g.piece = g.piece[:0]
		n, size := 0, 0 // rows and bytes of the piece
		for n < pageRows && done+n < g.rows && (n == 0 || size < pageBytes) {
			if def == nil || def[done+n] > 0 {
				v := t.values[t.codes[taken+len(g.piece)]]
				g.piece = append(g.piece, v)
				size += len(v)
			}
			n++
		}
		var levels []int16
		if def != nil {
			levels = def[done : done+n]
		}
		if _, err := w.WriteBatch(g.piece, levels, nil); err != nil {
			return err
		}
		taken += len(g.piece)
		done += n
	}
	return nil
}
