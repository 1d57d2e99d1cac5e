package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/envelope"
	"celldexport/internal/objstore"
)

// decodeLines stands in for Parquet: an object is JSON lines.
func decodeLines(name string, r io.ReaderAt, size int64, _ string) iter.Seq2[envelope.Encoded, error] {
	return func(yield func(envelope.Encoded, error) bool) {
		lines := bufio.NewScanner(io.NewSectionReader(r, 0, size))
		for lines.Scan() {
			record, err := envelope.Decode(lines.Bytes())
			if err != nil {
				yield(envelope.Encoded{}, fmt.Errorf("%s: %w", name, err))
				return
			}
			encoded, err := envelope.Encode(record)
			if !yield(encoded, err) || err != nil {
				return
			}
		}
	}
}

// line is a small record.
func line(cell, facet string, txid uint64, origin envelope.Origin, body envelope.Body) string {
	r := envelope.Record{Envelope: envelope.Envelope{
		Stream:   envelope.Stream{Script: "shop", Class: "Cart", Cell: cell, Facet: facet, Incarnation: 1 << 60},
		Position: envelope.Position{Epoch: 3, TXID: txid, Commit: txid},
		Node:     "node-a", Origin: origin, Fragment: 1, Fragments: 1,
	}, Body: body}
	text, err := r.Append(nil)
	if err != nil {
		panic(err)
	}
	return string(text) + "\n"
}

var facet = "facets/" + strings.Repeat("0", 32)

func filled(t *testing.T) objstore.Store {
	t.Helper()
	store := objstore.NewMemory()
	put := func(key, text string) {
		if _, err := objstore.PutBytes(t.Context(), store, key, []byte(text), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	gap := &envelope.Gap{Reason: "lost"}
	bulk := &envelope.Bulk{}
	put("export/changes/node-a/2026/11/30/02/1.parquet", line("Cart:1", "", 5, envelope.Live, gap)+line("Cart:1", facet, 2, envelope.Live, bulk))
	put("export/changes/node-a/2026/11/30/02/2.parquet", line("Cart:2", "", 1, envelope.Repair, gap))
	put("export/changes/node-a/2026/11/30/03/3.parquet", line("Cart:1", "", 4, envelope.Snapshot, bulk)+line("Cart:1", "", 9, envelope.Live, gap))
	put("export/changes/node-b/2026/11/30/02/4.parquet", line("Cart:1", "", 7, envelope.Live, gap))
	put("export/changes/node-b/2026/11/30/02/README.txt", "no records")
	put("cells/Cart:1/own.json", "{}")
	return store
}

// brief is what a record is recognised by in these tests.
func brief(object string, r *envelope.Encoded) string {
	name := strings.TrimSuffix(object[strings.LastIndex(object, "/")+1:], ".parquet")
	below := ""
	if r.Stream.Facet != "" {
		below = "/f"
	}
	return fmt.Sprintf("%s %s%s %d %s %s", name, r.Stream.Cell, below, r.Position.TXID, r.Kind, r.Origin)
}

func TestInspect(t *testing.T) {
	store := filled(t)
	const after = "export/changes/node-a/2026/11/30/02/1.parquet"
	cases := []struct {
		name string
		q    Inspection
		want []string
		last string
		more bool
	}{
		{name: "everything", q: Inspection{Objects: 100}, last: "4",
			want: []string{"1 Cart:1 5 gap live", "1 Cart:1/f 2 bulk live", "2 Cart:2 1 gap repair", "3 Cart:1 4 bulk snapshot", "3 Cart:1 9 gap live", "4 Cart:1 7 gap live"}},
		{name: "node", q: Inspection{Objects: 100, Node: "node-b"}, last: "4", want: []string{"4 Cart:1 7 gap live"}},
		{name: "a node's name that starts another's", q: Inspection{Objects: 100, Node: "node"}},
		{name: "hour", q: Inspection{Objects: 100, Node: "node-a", Hour: "2026/11/30/03"}, last: "3", want: []string{"3 Cart:1 4 bulk snapshot", "3 Cart:1 9 gap live"}},
		{name: "day", q: Inspection{Objects: 100, Node: "node-a", Hour: "2026/11/30", Filter: Filter{Kind: "gap"}}, last: "3",
			want: []string{"1 Cart:1 5 gap live", "2 Cart:2 1 gap repair", "3 Cart:1 9 gap live"}},
		{name: "limit", q: Inspection{Objects: 1}, last: "1", more: true, want: []string{"1 Cart:1 5 gap live", "1 Cart:1/f 2 bulk live"}},
		{name: "limit just met", q: Inspection{Objects: 4, Filter: Filter{Cell: "Cart:2"}}, last: "4", want: []string{"2 Cart:2 1 gap repair"}},
		{name: "after", q: Inspection{Objects: 1, After: after}, last: "2", more: true, want: []string{"2 Cart:2 1 gap repair"}},
		{name: "cell with its facets", q: Inspection{Objects: 2, Filter: Filter{Cell: "Cart:1"}}, last: "2", more: true,
			want: []string{"1 Cart:1 5 gap live", "1 Cart:1/f 2 bulk live"}},
		{name: "facet", q: Inspection{Objects: 100, Filter: Filter{Cell: "Cart:1/" + facet}}, last: "4", want: []string{"1 Cart:1/f 2 bulk live"}},
		{name: "origin", q: Inspection{Objects: 100, Filter: Filter{Origin: "repair"}}, last: "4", want: []string{"2 Cart:2 1 gap repair"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			done, err := (&Inspector{Store: store, Decode: decodeLines}).Run(t.Context(), c.q, func(object string, r *envelope.Encoded) error {
				got = append(got, brief(object, r))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.HasSuffix(done.Last, c.last+".parquet") && c.last != "" || done.More != c.more || done.Records != len(got) {
				t.Errorf("got %+v", done)
			}
		})
	}
}

func TestInspectFiles(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.parquet"), filepath.Join(dir, "two")
	for path, text := range map[string]string{one: line("Cart:1", "", 1, envelope.Live, &envelope.Gap{}), two: line("Cart:2", "", 1, envelope.Live, &envelope.Gap{})} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	inspector := &Inspector{Decode: decodeLines}
	done, err := inspector.Run(t.Context(), Inspection{Files: []string{two, one}, Objects: 1}, func(object string, r *envelope.Encoded) error {
		got = append(got, brief(object, r))
		return nil
	})
	if diff := cmp.Diff([]string{"two Cart:2 1 gap live", "one Cart:1 1 gap live"}, got); err != nil || diff != "" || done.More {
		t.Errorf("%v, %+v (-want +got):\n%s", err, done, diff)
	}
	missing := filepath.Join(dir, "none")
	if _, err := inspector.Run(t.Context(), Inspection{Files: []string{missing}, Objects: 1}, nil); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestInspectRefuses(t *testing.T) {
	for name, q := range map[string]Inspection{
		"hour without node": {Hour: "2026/11/30", Objects: 1},
		"month 13":          {Node: "n", Hour: "2026/13/30", Objects: 1},
		"hour 24":           {Node: "n", Hour: "2026/11/30/24", Objects: 1},
		"a minute":          {Node: "n", Hour: "2026/11/30/23/59", Objects: 1},
		"not digits":        {Node: "n", Hour: "today", Objects: 1},
		"node with slash":   {Node: "a/b", Objects: 1},
		"node up":           {Node: "..", Objects: 1},
		"no objects":        {},
		"negative objects":  {Objects: -1},
		"kind":              {Objects: 1, Filter: Filter{Kind: "row"}},
		"origin":            {Objects: 1, Filter: Filter{Origin: "Live"}},
		"cell":              {Objects: 1, Filter: Filter{Cell: "Cart 1"}},
		"facet":             {Objects: 1, Filter: Filter{Cell: "Cart:1/facets/x"}},
		"file and node":     {Objects: 1, Files: []string{"x"}, Node: "n"},
		"file and after":    {Objects: 1, Files: []string{"x"}, After: "k"},
	} {
		if _, err := (&Inspector{Store: objstore.NewMemory(), Decode: decodeLines}).Run(t.Context(), q, nil); !errors.Is(err, ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInspectNamesTheObjectThatFails(t *testing.T) {
	store := filled(t)
	const bad = "export/changes/node-a/2026/11/30/02/15.parquet"
	text := line("Cart:1", "", 1, envelope.Live, &envelope.Gap{}) + "{\n"
	if _, err := objstore.PutBytes(t.Context(), store, bad, []byte(text), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	done, err := (&Inspector{Store: store, Decode: decodeLines}).Run(t.Context(), Inspection{Objects: 100}, func(object string, _ *envelope.Encoded) error {
		got = append(got, object)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("got %v", err)
	}
	for _, object := range got {
		if object == bad {
			t.Error("records of an object that does not decode were shown")
		}
	}
	if !strings.HasSuffix(done.Last, "/1.parquet") {
		t.Errorf("last whole object: %s", done.Last)
	}
}

func TestFilesThatAreNoParquet(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "short": "PAR1", "text": "hello, this is text", "frame": "PAR1" + strings.Repeat("x", 100) + "PAR1"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := (&Inspector{Decode: Parquet}).Run(t.Context(), Inspection{Files: []string{path}, Objects: 1}, nil)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (&Inspector{Decode: Parquet}).Run(t.Context(), Inspection{Files: []string{dir}, Objects: 1}, nil); err == nil {
		t.Error("a directory was read")
	}
}

// Numbers above 2^53 must come out as they went in.
func TestLineAndSummary(t *testing.T) {
	var s Summary
	encoded := []envelope.Encoded{}
	for r, err := range decodeLines("x", strings.NewReader(
		line("Cart:2", "", 7, envelope.Live, &envelope.Gap{})+
			line("Cart:1", facet, 1, envelope.Live, &envelope.Gap{})+
			line("Cart:2", "", 3, envelope.Live, &envelope.Bulk{})), 1<<20, "") {
		if err != nil {
			t.Fatal(err)
		}
		encoded = append(encoded, r)
		s.Add(&r)
	}
	got, err := json.Marshal(s.Streams())
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"script":"shop","class":"Cart","cell":"Cart:1","facet":"` + facet + `","incarnation":1152921504606846976,"records":1,"kinds":{"gap":1},"first":{"epoch":3,"txid":1,"commit":1},"last":{"epoch":3,"txid":1,"commit":1}},` +
		`{"script":"shop","class":"Cart","cell":"Cart:2","facet":null,"incarnation":1152921504606846976,"records":2,"kinds":{"bulk":1,"gap":1},"first":{"epoch":3,"txid":3,"commit":3},"last":{"epoch":3,"txid":7,"commit":7}}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	printed := string(AppendLine(nil, "a \"key\"", &encoded[0]))
	plain := strings.TrimSuffix(string(encoded[0].AppendJSON(nil)), "}")
	if want := plain + `,"object":"a \"key\""}`; printed != want || !json.Valid([]byte(printed)) {
		t.Errorf("line %s\nwant %s", printed, want)
	}
	again, err := envelope.Decode([]byte(printed))
	if err != nil || again.Stream.Incarnation != 1<<60 {
		t.Errorf("the line does not decode as a record: %v", err)
	}
}
