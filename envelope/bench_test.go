package envelope_test

import (
	"testing"

	"celldexport/envelope"
)

// BenchmarkRowsToJSON writes rows of eight mixed columns, about 170 bytes
// each, into records of up to 1 MiB, as the row encoder does.
func BenchmarkRowsToJSON(b *testing.B) {
	name, note := []byte("Amsterdam, Prinsengracht 263"), []byte("zwölf \"Stück\"")
	digest := []byte("0123456789abcdef0123")
	head := testHead
	head.Columns = []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	s := envelope.NewSplitter(testEnvelope, head, 1<<20, envelope.SplitOptions{})
	var row []byte
	var total int64
	emit := func(e *envelope.Encoded) error { total += int64(len(e.Body)); return nil }
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		i := int64(n)
		row = append(row[:0], `["I",[`...)
		row = append(envelope.AppendInt(row, i), `],[`...)
		row = append(envelope.AppendInt(row, i), ',')
		row = append(envelope.AppendText(row, name), ',')
		row = append(envelope.AppendReal(row, float64(i)*1.25), ',')
		row = append(envelope.AppendNull(row), ',')
		row = append(envelope.AppendText(row, note), ',')
		row = append(envelope.AppendInt(row, 1790000000000+i), ',')
		row = append(envelope.AppendBlob(row, digest), ',')
		row = append(envelope.AppendReal(row, 52.3675734), `]]`...)
		if err := s.Add(row); err != nil {
			b.Fatal(err)
		}
		if n++; n%5000 == 0 {
			if _, err := s.Finish(emit); err != nil {
				b.Fatal(err)
			}
			if err := s.Reset(testEnvelope, head); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.SetBytes(int64(len(row)))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkAppendJSON(b *testing.B) {
	e, err := envelope.Encode(exampleRecords()[4])
	if err != nil {
		b.Fatal(err)
	}
	var line []byte
	b.ReportAllocs()
	for b.Loop() {
		line = e.AppendJSON(line[:0])
	}
	b.SetBytes(int64(len(line)))
}

func BenchmarkDecode(b *testing.B) {
	line := readLines(b, "testdata/examples.jsonl")[4]
	b.ReportAllocs()
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, err := envelope.Decode(line); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodeRows reads a record of 2000 rows of eight mixed columns.
func BenchmarkDecodeRows(b *testing.B) {
	line := []byte(rowsWith("1"))
	line = line[:len(line)-len(`["I",[1],[1]]]}`)]
	for i := range 2000 {
		if i > 0 {
			line = append(line, ',')
		}
		line = append(line, `["I",[1234567],[1234567,"Amsterdam, Prinsengracht 263",1.25,null,"zwölf \"Stück\"",1790000000000,{"$blob":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM="},52.3675734]]`...)
	}
	line = append(line, "]}"...)
	b.ReportAllocs()
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, err := envelope.Decode(line); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(2000*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
