package bucket

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"celldexport/envelope"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sample(n int) envelope.Encoded {
	e := envelope.Encoded{
		Envelope: envelope.Envelope{
			Stream:      envelope.Stream{Script: "shop", Class: "Cart", Cell: fmt.Sprintf("Cart:%d", n/3), Incarnation: 3},
			Position:    envelope.Position{Epoch: 3, TXID: uint64(n), Commit: uint64(n)},
			CommittedAt: 1_790_000_000_000 + int64(n), Node: "node-a", Origin: envelope.Live, Fragment: 1, Fragments: 1,
		},
		Kind: envelope.KindRows, Body: fmt.Appendf(nil, `{"kind":"rows","n":%d}`, n),
	}
	switch n % 5 {
	case 1:
		name := ""
		e.CellName = &name // not the same as none
	case 2:
		name := "alice"
		e.CellName, e.Stream.Facet = &name, "facets/ab"
	case 3:
		e.Origin, e.Kind, e.Body = envelope.Snapshot, envelope.KindSnapshotEnd, []byte(`{"kind":"snapshot_end"}`)
	case 4:
		e.Fragment, e.Fragments, e.Stream.Script = 2, 3, ""
		e.Position = envelope.Position{Epoch: math.MaxUint64, TXID: math.MaxUint64 - 1, Commit: math.MaxUint64}
		e.Stream.Incarnation, e.CommittedAt = math.MaxUint64, -1
	}
	return e
}

func encode(t testing.TB, records []envelope.Encoded) []byte {
	t.Helper()
	e, err := newEncoder("7d", compress.Codecs.Zstd, new(group))
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		if err := e.add(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	b, err := e.finish()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode(t testing.TB, object []byte) []envelope.Encoded {
	t.Helper()
	r, err := NewReader("test.parquet", bytes.NewReader(object), int64(len(object)))
	if err != nil {
		t.Fatal(err)
	}
	var out []envelope.Encoded
	for rec, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rec)
	}
	if r.Rows() != int64(len(out)) {
		t.Fatalf("%d rows, %d read", r.Rows(), len(out))
	}
	return out
}

func TestRecordsComeBackAsTheyWereWritten(t *testing.T) {
	for _, n := range []int{1, 2, readRows, readRows + 1, pageRows - 1, pageRows, pageRows + 1, 5000} {
		var want []envelope.Encoded
		for i := range n {
			want = append(want, sample(i))
		}
		if diff := cmp.Diff(want, decode(t, encode(t, want))); diff != "" {
			t.Errorf("%d records (-want +got):\n%s", n, diff)
		}
	}
}

func TestSameRecordsAreTheSameBytes(t *testing.T) {
	var records []envelope.Encoded
	for i := range 3000 {
		records = append(records, sample(i))
	}
	if !bytes.Equal(encode(t, records), encode(t, records)) {
		t.Error("two encodings of the same records differ")
	}
}

// The memory of a group serves object after object, large and small; what an
// object holds is not to depend on those before.
func TestMemoryServesObjectAfterObject(t *testing.T) {
	records := benchRecords(30_000)
	for i := range records[:5000] {
		records[i].Body = append(bytes.Repeat([]byte("x"), i%7*1000), records[i].Body...)
	}
	records[100].Body = bytes.Repeat([]byte("y"), blockBytes+1)
	var g group
	for _, part := range [][2]int{{0, 30_000}, {10, 20}, {0, 5000}, {2000, 30_000}, {0, 101}, {0, 30_000}} {
		some := records[part[0]:part[1]]
		e, err := newEncoder("7d", compress.Codecs.Zstd, &g)
		if err != nil {
			t.Fatal(err)
		}
		for i := range some {
			// What was read is gone when the next record comes.
			rec := some[i]
			rec.Body = bytes.Clone(rec.Body)
			if err := e.add(&rec); err != nil {
				t.Fatal(err)
			}
			clear(rec.Body)
		}
		got, err := e.finish()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, encode(t, some)) {
			t.Errorf("records %d to %d are other bytes in memory that was used before", part[0], part[1])
		}
	}
}

func TestLargeRecords(t *testing.T) {
	var want []envelope.Encoded
	for i := range 24 {
		e := sample(0)
		size := 6 << 20
		switch i {
		case 3:
			size = pageBytes
		case 4:
			size = 64 << 20
		case 5:
			size = 0
		}
		e.Body = []byte(`{"kind":"rows","text":"` + strings.Repeat(string(rune('a'+i)), size) + `"}`)
		want = append(want, e)
	}
	object := encode(t, want)
	i := 0
	r, err := NewReader("large", bytes.NewReader(object), int64(len(object)))
	if err != nil {
		t.Fatal(err)
	}
	for rec, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(rec.Body, want[i].Body) {
			t.Fatalf("body %d came back wrong", i)
		}
		i++
	}
	if i != len(want) {
		t.Errorf("%d records", i)
	}
	if n := r.file.NumRowGroups(); n != 8 {
		t.Errorf("%d row groups for 190 MiB, want 8", n)
	}
}

// TestSchema holds an object against the columns as the format says them.
func TestSchema(t *testing.T) {
	object := encode(t, []envelope.Encoded{sample(0), sample(2)})
	r, err := file.NewParquetReader(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want := `required byte_array field_id=-1 kind (String);
required byte_array field_id=-1 script (String);
required byte_array field_id=-1 class (String);
required byte_array field_id=-1 cell (String);
optional byte_array field_id=-1 cell_name (String);
optional byte_array field_id=-1 facet (String);
required int64 field_id=-1 incarnation (Int(bitWidth=64, isSigned=false));
required int64 field_id=-1 epoch (Int(bitWidth=64, isSigned=false));
required int64 field_id=-1 txid (Int(bitWidth=64, isSigned=false));
required int64 field_id=-1 commit (Int(bitWidth=64, isSigned=false));
required int64 field_id=-1 committed_at (Timestamp(isAdjustedToUTC=true, timeUnit=milliseconds, is_from_converted_type=false, force_set_converted_type=false));
required byte_array field_id=-1 node (String);
required byte_array field_id=-1 origin (String);
required int32 field_id=-1 fragment (Int(bitWidth=32, isSigned=false));
required int32 field_id=-1 fragments (Int(bitWidth=32, isSigned=false));
required byte_array field_id=-1 body (String);`
	var got []string
	meta := r.MetaData()
	for i := range meta.Schema.NumColumns() {
		node := meta.Schema.Column(i).SchemaNode()
		typ := strings.ToLower(meta.Schema.Column(i).PhysicalType().String())
		got = append(got, fmt.Sprintf("%s %s field_id=%d %s (%v);", node.RepetitionType(), typ, node.FieldID(), node.Name(), node.LogicalType()))
	}
	if diff := cmp.Diff(want, strings.Join(got, "\n")); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	for key, value := range map[string]string{MetaSchema: "v0-unstable", MetaRetention: "7d"} {
		if got := meta.KeyValueMetadata().FindValue(key); got == nil || *got != value {
			t.Errorf("metadata %s is %v, want %s", key, got, value)
		}
	}
	if r.NumRowGroups() != 1 || r.NumRows() != 2 {
		t.Errorf("%d row groups, %d rows", r.NumRowGroups(), r.NumRows())
	}
	for i := range meta.Schema.NumColumns() {
		chunk, err := meta.RowGroup(0).ColumnChunk(i)
		if err != nil {
			t.Fatal(err)
		}
		if got := chunk.Compression().String(); got != "ZSTD" {
			t.Errorf("column %d is compressed by %s", i, got)
		}
		dictionary := chunk.HasDictionaryPage() && slices.ContainsFunc(chunk.Encodings(), func(enc parquet.Encoding) bool {
			return enc == parquet.Encodings.RLEDict || enc == parquet.Encodings.PlainDict
		})
		name := meta.Schema.Column(i).Name()
		if want := slices.Contains([]string{"kind", "cell", "origin"}, name); dictionary != want || chunk.HasDictionaryPage() != want {
			t.Errorf("column %s has a dictionary: %v (a page of it: %v), want %v", name, dictionary, chunk.HasDictionaryPage(), want)
		}
	}
}

// TestStatistics: readers skip objects by them, so large unsigned numbers must
// not come out as negative ones.
func TestStatistics(t *testing.T) {
	object := encode(t, []envelope.Encoded{sample(0), sample(4)}) // epochs 3 and 2^64-1
	r, err := file.NewParquetReader(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for c, want := range map[int][2]int64{colEpoch: {3, -1}, colIncarnation: {3, -1}, colTXID: {0, -2}, colCommittedAt: {-1, 1_790_000_000_000}} {
		chunk, err := r.MetaData().RowGroup(0).ColumnChunk(c)
		if err != nil {
			t.Fatal(err)
		}
		stats, err := chunk.Statistics()
		if err != nil {
			t.Fatal(err)
		}
		if stats == nil || !stats.HasMinMax() {
			continue // none is allowed, wrong ones are not
		}
		s := stats.(*metadata.Int64Statistics)
		if got := [2]int64{s.Min(), s.Max()}; got != want {
			t.Errorf("column %s: statistics %v, want %v", columns[c].name, got, want)
		}
	}
	chunk, err := r.MetaData().RowGroup(0).ColumnChunk(colBody)
	if err != nil {
		t.Fatal(err)
	}
	if set, _ := chunk.StatsSet(); set {
		t.Error("body has statistics: they would repeat whole records")
	}
}

func TestReaderRefusesOtherFiles(t *testing.T) {
	whole := encode(t, []envelope.Encoded{sample(0), sample(1), sample(2)})
	open := func(b []byte) error {
		r, err := NewReader("export/x.parquet", bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return err
		}
		for _, err := range r.Records() {
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := open(whole); err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{nil, []byte("PAR1"), []byte("not parquet at all, but long enough"), whole[:len(whole)-9], whole[len(whole)/2:]} {
		if err := open(b); err == nil || !strings.Contains(err.Error(), "export/x.parquet") {
			t.Errorf("%d bytes: error %v, want one naming the object", len(b), err)
		}
	}
	// No flipped byte may panic; most are noticed.
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x55
		_ = open(b)
	}
	e := sample(0)
	e.Body = []byte(`{"kind":"gap"}`)
	if err := open(encode(t, []envelope.Encoded{e})); err == nil || !strings.Contains(err.Error(), "kind column") {
		t.Errorf("a body of another kind: %v", err)
	}
	e.Body = []byte(`{"n":1,"kind" : "rows"}`)
	if err := open(encode(t, []envelope.Encoded{e})); err != nil {
		t.Errorf("kind not first: %v", err)
	}
}
