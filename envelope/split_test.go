package envelope_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"celldexport/envelope"
)

var testEnvelope = envelope.Envelope{
	Stream:   envelope.Stream{Script: "s", Class: "C", Cell: "C:1", Incarnation: 1},
	Position: envelope.Position{Epoch: 1, TXID: 2, Commit: 2}, CommittedAt: 1, Node: "n", Origin: envelope.Live,
}

var testHead = envelope.RowsHead{
	Kind: envelope.KindRows, Table: "t", Generation: 1, Columns: []string{"a", "b"}, KeyColumns: []string{"a"},
}

// split runs a Splitter and returns copies of what it emits.
func split(t testing.TB, head envelope.RowsHead, limit int64, opt envelope.SplitOptions, rows []string) ([]envelope.Encoded, envelope.Split) {
	t.Helper()
	s := envelope.NewSplitter(testEnvelope, head, limit, opt)
	for _, row := range rows {
		if err := s.Add([]byte(row)); err != nil {
			t.Fatal(err)
		}
	}
	var out []envelope.Encoded
	result, err := s.Finish(func(e *envelope.Encoded) error {
		c := *e
		c.Body = bytes.Clone(e.Body)
		out = append(out, c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, result
}

// row is a row of n bytes.
func row(n int) string {
	frame := `["I",[""],[]]`
	return `["I",["` + strings.Repeat("x", n-len(frame)) + `"],[]]`
}

// emptyLen is the length of the record without rows, with the given numbers.
func emptyLen(t testing.TB, fragment, fragments uint32) int64 {
	e := testEnvelope
	e.Fragment, e.Fragments = fragment, fragments
	line, err := (&envelope.Record{Envelope: e, Body: &envelope.Rows{
		TableGeneration: envelope.TableGeneration{Table: "t", Generation: 1}, Columns: []string{"a", "b"}, KeyColumns: []string{"a"},
	}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(line))
}

// The limits of the rule, to the byte.
func TestSplitBoundaries(t *testing.T) {
	whole, base := emptyLen(t, 1, 1), emptyLen(t, 4294967295, 4294967295)
	if base != whole+18 {
		t.Fatalf("widest record without rows is %d bytes, the other %d", base, whole)
	}
	for _, tt := range []struct {
		name     string
		rows     []int
		limit    int64
		oversize bool
		want     []int // rows per fragment
		result   envelope.Split
	}{
		{"no rows over the limit", nil, 1, false, []int{0}, envelope.Split{Fragments: 1}},
		{"whole to the byte", []int{40, 40}, whole + 81, false, []int{2}, envelope.Split{Fragments: 1, Rows: 2}},
		{"one byte short, and both fit apart", []int{40, 40}, whole + 80, false, []int{1, 1}, envelope.Split{Fragments: 2, Rows: 2}},
		{"one row whole though too wide for a fragment", []int{40}, whole + 40, false, []int{1}, envelope.Split{Fragments: 1, Rows: 1}},
		{"one row a byte too long", []int{40}, whole + 39, false, nil, envelope.Split{Rows: 1, Bulk: true}},
		{"two to a fragment to the byte", []int{40, 40, 40, 40, 40}, base + 81, false, []int{2, 2, 1}, envelope.Split{Fragments: 3, Rows: 5}},
		{"two a byte too long", []int{40, 40, 40, 40, 40}, base + 80, false, []int{1, 1, 1, 1, 1}, envelope.Split{Fragments: 5, Rows: 5}},
		{"row that fits a fragment to the byte", []int{40, 90, 40}, base + 90, false, []int{1, 1, 1}, envelope.Split{Fragments: 3, Rows: 3}},
		{"row a byte too long for a fragment", []int{40, 91, 40}, base + 90, false, nil, envelope.Split{Rows: 3, Bulk: true}},
		{"oversized row rides alone", []int{40, 91, 40, 40}, base + 90, true, []int{1, 1, 2}, envelope.Split{Fragments: 3, Rows: 4, OversizedRows: 1}},
		{"oversized first and last", []int{200, 40, 200}, base + 90, true, []int{1, 1, 1}, envelope.Split{Fragments: 3, Rows: 3, OversizedRows: 2}},
		{"only an oversized row", []int{200}, base + 90, true, []int{1}, envelope.Split{Fragments: 1, Rows: 1, OversizedRows: 1}},
		{"too wide for a fragment but whole", []int{40}, whole + 40, true, []int{1}, envelope.Split{Fragments: 1, Rows: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rows []string
			for _, n := range tt.rows {
				rows = append(rows, row(n))
			}
			out, result := split(t, testHead, tt.limit, envelope.SplitOptions{Oversize: tt.oversize}, rows)
			if diff := cmp.Diff(tt.result, result); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			var got []int
			for _, e := range out {
				r, err := e.Decode()
				if err != nil {
					t.Fatalf("%s: %v", e.Body, err)
				}
				got = append(got, len(r.Body.(*envelope.Rows).Changes))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("rows per fragment %v, want %v", got, tt.want)
			}
		})
	}
}

// modelSplit is the rule of fragments as it is written down, over whole
// records: cut points, or nil when the record becomes bulk.
func modelSplit(whole, base, limit int64, rows []string, oversize bool) []int {
	total := whole
	for i, r := range rows {
		total += int64(len(r))
		if i > 0 {
			total++
		}
	}
	if total <= limit || len(rows) == 0 {
		return []int{len(rows)}
	}
	var counts []int
	size, n := base, 0
	for _, r := range rows {
		length := int64(len(r))
		if base+length > limit && !oversize {
			return nil
		}
		comma := int64(min(n, 1))
		if n > 0 && size+length+comma > limit {
			counts = append(counts, n)
			size, n, comma = base, 0, 0
		}
		size += length + comma
		n++
	}
	return append(counts, n)
}

// Fragments follow the rule, keep the limit, and join to the rows they came
// from, whatever the buffer and the order in which they arrive.
func TestSplitAndJoin(t *testing.T) {
	whole, base := emptyLen(t, 1, 1), emptyLen(t, 4294967295, 4294967295)
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var rows []string
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, 120), 0, 30).Draw(t, "sizes") {
			rows = append(rows, fmt.Sprintf(`["I",[%d],[%d,"%s"]]`, i, i, strings.Repeat("y", n)))
		}
		limit := base + rapid.Int64Range(-30, 600).Draw(t, "limit")
		opt := envelope.SplitOptions{Oversize: rapid.Bool().Draw(t, "oversize")}
		if spill := rapid.Int64Range(-1, 300).Draw(t, "memory"); spill >= 0 {
			b := &envelope.Spill{Dir: dir, Limit: spill}
			defer b.Close()
			opt.Buffer = b
		}
		want := modelSplit(whole, base, limit, rows, opt.Oversize)
		s := envelope.NewSplitter(testEnvelope, testHead, limit, opt)
		for round := range 2 { // a Splitter starts anew after Reset
			var parts []*envelope.Record
			for _, r := range rows {
				if err := s.Add([]byte(r)); err != nil {
					t.Fatal(err)
				}
			}
			result, err := s.Finish(func(e *envelope.Encoded) error {
				line := e.AppendJSON(nil)
				if !opt.Oversize && len(rows) > 0 && int64(len(line)) > limit {
					t.Fatalf("fragment of %d bytes, limit %d", len(line), limit)
				}
				r, err := envelope.Decode(line)
				parts = append(parts, r)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			checkParts(t, round, want, rows, parts, result)
			if err := s.Reset(testEnvelope, testHead); err != nil {
				t.Fatal(err)
			}
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("spilled files left behind: %v, %v", left, err)
	}
}

func checkParts(t *rapid.T, round int, want []int, rows []string, parts []*envelope.Record, result envelope.Split) {
	var got []int
	for _, p := range parts {
		got = append(got, len(p.Body.(*envelope.Rows).Changes))
	}
	if !slices.Equal(got, want) || int(result.Fragments) != len(want) || result.Bulk != (want == nil) {
		t.Fatalf("round %d: rows per fragment %v, want %v; result %+v", round, got, want, result)
	}
	if want == nil {
		return
	}
	arrival := rapid.Permutation(parts).Draw(t, "arrival")
	arrival = append(arrival, rapid.SliceOf(rapid.SampledFrom(parts)).Draw(t, "again")...)
	joined, err := envelope.Join(arrival...)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	changes := joined.Body.(*envelope.Rows).Changes
	for i := range changes {
		lines = append(lines, string(changes[i].Append(nil)))
	}
	if !slices.Equal(lines, rows) || joined.Fragment != 1 || joined.Fragments != 1 {
		t.Fatalf("joined as %d of %d: %v, want %v", joined.Fragment, joined.Fragments, lines, rows)
	}
}

func TestSplitSnapshot(t *testing.T) {
	head := testHead
	head.Kind, head.SnapshotID = envelope.KindSnapshot, `id"1`
	out, result := split(t, head, 1<<20, envelope.SplitOptions{}, []string{`["I",[1],[1,2]]`, `["I",[2],[2,3]]`})
	if len(out) != 1 || result.Fragments != 1 {
		t.Fatalf("%d records, %+v", len(out), result)
	}
	want := `{"kind":"snapshot","snapshot_id":"id\"1","table":"t","generation":1,"columns":["a","b"],"key_columns":["a"],"rows":[["I",[1],[1,2]],["I",[2],[2,3]]]}`
	if string(out[0].Body) != want {
		t.Errorf("body is %s, want %s", out[0].Body, want)
	}
}

func TestSplitterOutOfOrder(t *testing.T) {
	s := envelope.NewSplitter(testEnvelope, testHead, 1<<20, envelope.SplitOptions{})
	none := func(*envelope.Encoded) error { return nil }
	if _, err := s.Finish(none); err != nil {
		t.Fatal(err)
	}
	if err := s.Add([]byte("[]")); err == nil {
		t.Error("a row is taken after the end")
	}
	if _, err := s.Finish(none); err == nil {
		t.Error("the end comes twice")
	}
}

func TestSplitterPassesErrorsOn(t *testing.T) {
	boom := errors.New("boom")
	s := envelope.NewSplitter(testEnvelope, testHead, 1<<20, envelope.SplitOptions{})
	if _, err := s.Finish(func(*envelope.Encoded) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("error of emit came out as %v", err)
	}
	bulk := testHead
	bulk.Kind = envelope.KindBulk
	s = envelope.NewSplitter(testEnvelope, bulk, 1<<20, envelope.SplitOptions{})
	if _, err := s.Finish(func(*envelope.Encoded) error { return nil }); err == nil {
		t.Error("a bulk record is written with rows")
	}
	b := &envelope.Spill{Dir: t.TempDir() + "/missing", Limit: 1}
	s = envelope.NewSplitter(testEnvelope, testHead, 1<<20, envelope.SplitOptions{Buffer: b})
	var err error
	for range 3 {
		err = errors.Join(err, s.Add([]byte(row(20))))
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error of the buffer came out as %v", err)
	}
}

// A spilled file that lost its bytes is an error, not a record of zeros.
func TestSpillNoticesLostBytes(t *testing.T) {
	dir := t.TempDir()
	b := &envelope.Spill{Dir: dir, Limit: 10}
	defer b.Close()
	s := envelope.NewSplitter(testEnvelope, testHead, 1<<20, envelope.SplitOptions{Buffer: b})
	for range 5 {
		if err := s.Add([]byte(row(20))); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("spilled to %v, %v", files, err)
	}
	if err := os.Truncate(dir+"/"+files[0].Name(), 30); err != nil {
		t.Fatal(err)
	}
	_, err = s.Finish(func(e *envelope.Encoded) error {
		t.Errorf("emitted %s", e.Body)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), files[0].Name()) {
		t.Errorf("error is %v", err)
	}
}

func TestSplitterAllocatesNothingPerRow(t *testing.T) {
	s := envelope.NewSplitter(testEnvelope, testHead, 4096, envelope.SplitOptions{})
	r := []byte(row(100))
	fill := func() {
		if err := s.Reset(testEnvelope, testHead); err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			if err := s.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Finish(func(*envelope.Encoded) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if got := testing.AllocsPerRun(10, fill); got > 2 {
		t.Errorf("%v allocations for 1000 rows, want at most those of the record", got)
	}
}
