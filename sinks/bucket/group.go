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
	texts [columnCount][]parquet.ByteArray // of text columns
	def   [columnCount][]int16             // of optional columns
	wide  [columnCount][]int64
	slim  [columnCount][]int32

	rows  int
	bytes int64
	cells map[string]parquet.ByteArray
	// block is what texts are copied to. It never grows, as texts point into
	// it: a full one joins those in full. free are those of the group before.
	block      []byte
	full, free [][]byte
	last       envelope.Envelope // of the record before
}

// add appends a record.
func (g *group) add(r *envelope.Encoded) {
	g.names(r)
	g.numbers(r)
	g.same(colKind, string(r.Kind))
	g.same(colOrigin, string(r.Origin))
	at := g.room(len(r.Body))
	g.block = append(g.block, r.Body...)
	g.texts[colBody] = append(g.texts[colBody], g.block[at:])
	g.rows++
	g.bytes += int64(len(r.Body)) + recordBytes
	g.last = r.Envelope
}

// names sets the columns that name the stream; consecutive records mostly
// share them.
func (g *group) names(r *envelope.Encoded) {
	again := g.rows > 0 && g.last.Stream == r.Stream
	if again {
		for _, c := range [...]int{colScript, colClass, colCell} {
			g.repeat(c)
		}
	} else {
		g.same(colScript, r.Stream.Script)
		g.same(colClass, r.Stream.Class)
		g.cell(r.Stream.Cell)
	}
	switch {
	case r.Stream.Facet == "":
	case again:
		g.repeat(colFacet)
	default:
		g.put(colFacet, r.Stream.Facet)
	}
	g.define(colFacet, r.Stream.Facet != "")
	g.same(colNode, r.Node)
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

// cell sets the cell of a record. Cells come again and again, in any order:
// each is copied once.
func (g *group) cell(name string) {
	known, ok := g.cells[name]
	if !ok {
		if g.cells == nil {
			g.cells = make(map[string]parquet.ByteArray)
		}
		known = g.copy(name)
		g.cells[name] = known
	}
	g.texts[colCell] = append(g.texts[colCell], known)
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

// copy keeps a text.
func (g *group) copy(s string) parquet.ByteArray {
	at := g.room(len(s))
	g.block = append(g.block, s...)
	return g.block[at:]
}

func (g *group) put(c int, s string) {
	g.texts[c] = append(g.texts[c], g.copy(s))
}

// same is put for a text that is mostly that of the record before.
func (g *group) same(c int, s string) {
	if g.rows > 0 && string(g.texts[c][g.rows-1]) == s {
		g.repeat(c)
		return
	}
	g.put(c, s)
}

func (g *group) repeat(c int) {
	values := g.texts[c]
	g.texts[c] = append(values, values[len(values)-1])
}

func (g *group) define(c int, present bool) {
	level := int16(0)
	if present {
		level = 1
	}
	g.def[c] = append(g.def[c], level)
}

// clear forgets the records. It keeps the memory of the columns, which that
// of records bounds, and the blocks that they took: a small group after large
// ones gives the others back.
func (g *group) clear() {
	for c := range columns {
		clear(g.texts[c]) // what they point to may go
		g.texts[c], g.def[c], g.wide[c], g.slim[c] = g.texts[c][:0], g.def[c][:0], g.wide[c][:0], g.slim[c][:0]
	}
	if g.rows > 0 {
		clear(g.free)
		g.free, g.full = g.full, g.free[:0]
	}
	clear(g.cells)
	g.rows, g.bytes = 0, 0
	g.block = g.block[:0]
	if cap(g.block) > blockBytes {
		g.block = nil
	}
	g.last = envelope.Envelope{}
}

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

// writeTexts hands a text column over in pieces, so that no page becomes much
// larger than what it holds of a single record.
func (g *group) writeTexts(w *file.ByteArrayColumnChunkWriter, c int) error {
	values, def := g.texts[c], g.def[c]
	for done := 0; done < g.rows; {
		n, size := 0, 0 // rows and bytes of the piece
		taken := 0      // values of it
		for n < pageRows && done+n < g.rows && (n == 0 || size < pageBytes) {
			if def == nil || def[done+n] > 0 {
				size += len(values[taken])
				taken++
			}
			n++
		}
		var levels []int16
		if def != nil {
			levels = def[done : done+n]
		}
		if _, err := w.WriteBatch(values[:taken], levels, nil); err != nil {
			return err
		}
		values = values[taken:]
		done += n
	}
	return nil
}
