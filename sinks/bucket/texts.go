package bucket

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
)

// texts is a column of texts that come again and again, in any order: each is
// kept once, and a row is the number of its text.
type texts struct {
	codes  []int32 // of the rows that have a text
	values []parquet.ByteArray
	known  map[string]int32
	bytes  int64   // of the values as a dictionary page holds them
	seen   []int32 // by code: the page that had it last, from 1
}

// find appends a text that the column holds; false when it does not.
func (t *texts) find(s string) bool {
	if n := len(t.codes); n > 0 && string(t.values[t.codes[n-1]]) == s {
		t.repeat()
		return true
	}
	code, ok := t.known[s]
	if ok {
		t.codes = append(t.codes, code)
	}
	return ok
}

// add appends a text that the column does not hold, copied to value.
func (t *texts) add(s string, value parquet.ByteArray) {
	if t.known == nil {
		t.known = make(map[string]int32)
	}
	code := int32(len(t.values))
	t.known[s] = code
	t.codes = append(t.codes, code)
	t.values = append(t.values, value)
	t.bytes += int64(len(value) + arrow.Uint32SizeBytes)
}

// repeat appends the text of the row before.
func (t *texts) repeat() { t.codes = append(t.codes, t.codes[len(t.codes)-1]) }

func (t *texts) clear() {
	clear(t.values) // what they point to may go
	clear(t.known)
	t.codes, t.values, t.bytes = t.codes[:0], t.values[:0], 0
}

// writeCodes hands the column over as a dictionary and the numbers in it. The
// library would look every value up again, which takes a hash and an
// allocation each. It neither ends pages nor keeps statistics then: both are
// done here, as it does them with values. The column is a required one.
func (t *texts) writeCodes(w *file.ByteArrayColumnChunkWriter) error {
	encoder, ok := w.CurrentEncoder().(interface{ PutDictionary(arrow.Array) error })
	if !ok {
		return fmt.Errorf("encoder %T takes no dictionary", w.CurrentEncoder())
	}
	dictionary := t.dictionary()
	defer dictionary.Release()
	if err := encoder.PutDictionary(dictionary); err != nil {
		return err
	}
	t.seen = append(t.seen[:0], make([]int32, len(t.values))...)
	stats, _ := w.PageStatistics().(*metadata.ByteArrayStatistics)
	limit := w.Properties().DataPageSize()
	for page, done := int32(1), 0; done < len(t.codes); page++ {
		n, size := t.page(t.codes[done:], limit)
		part := t.codes[done : done+n]
		if stats != nil {
			t.describe(stats, part, page)
		}
		if err := w.WriteDictIndices(codesOf(part), nil, nil); err != nil {
			return err
		}
		if size >= limit {
			if err := w.FlushCurrentPage(); err != nil {
				return err
			}
		}
		done += n
	}
	return nil
}

// page is how many of codes make a page, and the size of their texts.
func (t *texts) page(codes []int32, limit int64) (n int, size int64) {
	for n < len(codes) && size < limit {
		rows, bytes := 0, 0
		for _, code := range codes[n:min(n+pageRows, len(codes))] {
			if bytes >= pageBytes {
				break
			}
			bytes += len(t.values[code])
			rows++
		}
		n, size = n+rows, size+int64(bytes+rows*arrow.Uint32SizeBytes)
	}
	return n, size
}

// describe enters a page in its statistics: its texts differ in few.
func (t *texts) describe(stats *metadata.ByteArrayStatistics, codes []int32, page int32) {
	several := 0
	for _, code := range codes {
		if t.seen[code] != page {
			t.seen[code] = page
			stats.Update(t.values[code:code+1], 0)
			several++
		}
	}
	stats.IncNumValues(int64(len(codes) - several))
}

// dictionary is the values as the library takes them.
func (t *texts) dictionary() arrow.Array {
	b := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)
	defer b.Release()
	b.ReserveData(int(t.bytes))
	b.Reserve(len(t.values))
	for _, v := range t.values {
		b.Append(v)
	}
	return b.NewArray()
}

// codesOf is codes as the library takes them.
func codesOf(codes []int32) arrow.Array {
	data := array.NewData(arrow.PrimitiveTypes.Int32, len(codes),
		[]*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(codes))}, nil, 0, 0)
	defer data.Release()
	return array.NewInt32Data(data)
}
