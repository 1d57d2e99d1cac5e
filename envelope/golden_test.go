package envelope_test

import (
	"bytes"
	"encoding/hex"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/envelope"
)

func ptr[T any](v T) *T { return &v }

// exampleRecords are, in order, the records of testdata/examples.jsonl, which
// was written by hand.
func exampleRecords() []*envelope.Record {
	at := func(epoch, txid, commit uint64, ms int64) envelope.Envelope {
		return envelope.Envelope{
			Stream:   envelope.Stream{Script: "depot", Class: "Shelf", Cell: "Shelf:a17", Incarnation: 4},
			CellName: ptr("aisle 9"), Position: envelope.Position{Epoch: epoch, TXID: txid, Commit: commit},
			CommittedAt: ms, Node: "n1", Origin: envelope.Live, Fragment: 1, Fragments: 1,
		}
	}
	with := func(e envelope.Envelope, change func(*envelope.Envelope)) envelope.Envelope { change(&e); return e }
	snapshot := func(e *envelope.Envelope) { e.Origin = envelope.Snapshot }
	n2 := func(e *envelope.Envelope) { e.Node = "n2" }
	part := func(i uint32) func(*envelope.Envelope) {
		return func(e *envelope.Envelope) { e.CellName, e.Fragment, e.Fragments = nil, i, 2 }
	}
	tg := func(table string) envelope.TableGeneration {
		return envelope.TableGeneration{Table: table, Generation: 1}
	}
	text, list := envelope.Text, func(v ...envelope.Value) []envelope.Value { return v }
	change := func(op envelope.Op, name string, v envelope.Value) envelope.RowChange {
		return envelope.RowChange{Op: op, Key: list(text(name)), Row: list(text(name), v)}
	}
	log := func(rowid int64, msg string) *envelope.Rows {
		return &envelope.Rows{
			TableGeneration: tg("log"), Columns: []string{"msg"}, KeyColumns: []string{"_rowid_"},
			Changes: []envelope.RowChange{{Op: envelope.Insert, Key: list(envelope.Int(rowid)), Row: list(text(msg))}},
		}
	}
	head := envelope.Position{Epoch: 5, TXID: 11, Commit: math.MaxUint64}
	return []*envelope.Record{
		{Envelope: at(4, 1, 0, 1795000000000), Body: &envelope.Link{StartTXID: 1, Mode: envelope.ModeFresh}},
		{Envelope: at(4, 2, 1, 1795000000100), Body: &envelope.Schema{
			TableGeneration: tg("bins"),
			SQL:             "CREATE TABLE bins(b TEXT, a TEXT, w REAL, len AS (length(a)), PRIMARY KEY(a,b))",
			Columns: []envelope.ColumnDef{
				{Name: "b", Type: "TEXT", PrimaryKey: 2}, {Name: "a", Type: "TEXT", PrimaryKey: 1},
				{Name: "w", Type: "REAL"}, {Name: "len", Generated: true},
			},
		}},
		{Envelope: with(at(4, 2, 1, 1795000000100), snapshot), Body: &envelope.SnapshotRows{
			SnapshotID: "ddl-1795000000100-0",
			Rows:       envelope.Rows{TableGeneration: tg("bins"), Columns: []string{"b", "a", "w"}, KeyColumns: []string{"a", "b"}, Changes: []envelope.RowChange{}},
		}},
		{Envelope: with(at(4, 2, 1, 1795000000100), snapshot), Body: &envelope.SnapshotEnd{
			SnapshotID: "ddl-1795000000100-0", Scope: envelope.ScopeTables, Records: 3,
			Tables: []envelope.TableGeneration{tg("bins"), tg("log"), tg("tags")},
		}},
		{Envelope: at(4, 3, 2, 1795000000200), Body: &envelope.Rows{
			TableGeneration: tg("tags"), Columns: []string{"name", "x"}, KeyColumns: []string{"name"},
			Changes: []envelope.RowChange{
				change("I", "RED", envelope.Real(math.Copysign(0, -1))), change("D", "Red", envelope.Int(7)),
				change("U", "big", envelope.Real(1e300)), change("I", "inf", envelope.Real(math.Inf(1))),
				change("I", "raw", envelope.Blob([]byte{0, 255})), change("I", "nil", envelope.Null()),
			},
		}},
		{Envelope: with(at(4, 4, 3, 1795000000300), part(1)), Body: log(1, "a")},
		{Envelope: with(at(4, 4, 3, 1795000000300), part(2)), Body: log(2, "b")},
		{Envelope: at(4, 4, 3, 1795000000400), Body: &envelope.Watermark{
			Through: envelope.Position{Epoch: 4, TXID: 4, Commit: 3}, Commits: 4, Records: 10,
		}},
		{Envelope: with(at(5, 10, 0, 1795000001000), n2), Body: &envelope.Link{
			StartTXID: 10, PrevEpoch: ptr(uint64(4)), PrevTXID: ptr(uint64(9)), Mode: envelope.ModePaged,
		}},
		{Envelope: with(at(5, 12, 4, 1795000002000), n2), Body: &envelope.Deleted{
			TargetFacet: "facets/0123456789abcdef0123456789abcdef", Subtree: true, ThroughIncarnation: ptr(uint64(5497558139000)),
		}},
		{Envelope: envelope.Envelope{
			Stream: envelope.Stream{Class: "Shelf", Cell: "Shelf:a17"}, Position: head,
			CommittedAt: 1795000003000, Node: "n3", Origin: envelope.Live, Fragment: 1, Fragments: 1,
		}, Body: &envelope.Recovered{Session: "n2/8", Head: head, Loss: true, Cells: 1}},
	}
}

func readLines(t testing.TB, name string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
}

func TestExamplesByteForByte(t *testing.T) {
	lines, records := readLines(t, "testdata/examples.jsonl"), exampleRecords()
	if len(lines) != len(records) {
		t.Fatalf("%d lines, %d records", len(lines), len(records))
	}
	values := cmp.Comparer(func(a, b envelope.Value) bool { return a == b })
	for i, line := range lines {
		got, err := records[i].Append(nil)
		if err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		if diff := cmp.Diff(string(line), string(got)); diff != "" {
			t.Errorf("record %d is written differently (-want +got):\n%s", i, diff)
		}
		back, err := envelope.Decode(line)
		if err != nil {
			t.Fatalf("line %d: %v", i, err)
		}
		if diff := cmp.Diff(records[i], back, values); diff != "" {
			t.Errorf("line %d is read differently (-want +got):\n%s", i, diff)
		}
		e, err := envelope.Encode(records[i])
		if err != nil {
			t.Fatal(err)
		}
		apart, err := e.Decode()
		if err != nil {
			t.Fatalf("record %d from envelope and body: %v", i, err)
		}
		if diff := cmp.Diff(records[i], apart, values); diff != "" {
			t.Errorf("record %d from envelope and body is read differently (-want +got):\n%s", i, diff)
		}
	}
}

// The optional fields that the examples leave out.
func TestOptionalFields(t *testing.T) {
	at := envelope.Position{Epoch: 1, TXID: 2, Commit: 3}
	tg := envelope.TableGeneration{Table: "t", Generation: 2}
	for _, tt := range []struct {
		body envelope.Body
		want string
	}{
		{&envelope.Schema{TableGeneration: tg, SQL: "x", Dropped: true}, `"kind":"schema","table":"t","generation":2,"sql":"x","columns":[],"dropped":true}`},
		{&envelope.Schema{TableGeneration: tg, SQL: "x", RenamedFrom: ptr(""), Unsupported: true}, `"kind":"schema","table":"t","generation":2,"sql":"x","columns":[],"renamed_from":"","unsupported":true}`},
		{&envelope.Deleted{}, `"kind":"deleted"}`},
		{&envelope.Deleted{TargetFacet: "facets/a", TargetIncarnation: ptr(uint64(9))}, `"kind":"deleted","target_facet":"facets/a","target_incarnation":9}`},
		{&envelope.Recovered{Session: "n/1", Head: at}, `"kind":"recovered","session":"n/1","head":{"epoch":1,"txid":2,"commit":3},"cells":0}`},
		{&envelope.Watermark{From: &at, Through: at}, `"kind":"watermark","from":{"epoch":1,"txid":2,"commit":3},"through":{"epoch":1,"txid":2,"commit":3},"commits":0,"records":0}`},
		{&envelope.Bulk{}, `"kind":"bulk","tables":[]}`},
		{&envelope.Bulk{Tables: []envelope.TableGeneration{tg}}, `"kind":"bulk","tables":[{"table":"t","generation":2}]}`},
		{&envelope.Gap{From: at, To: at, Reason: "why\n"}, `"kind":"gap","from":{"epoch":1,"txid":2,"commit":3},"to":{"epoch":1,"txid":2,"commit":3},"reason":"why\n"}`},
		{&envelope.Link{Mode: envelope.ModeResume, PrevEpoch: ptr(uint64(math.MaxUint64))}, `"kind":"link","start_txid":0,"prev_epoch":18446744073709551615,"prev_txid":null,"mode":"resume"}`},
	} {
		r := &envelope.Record{Envelope: envelope.Envelope{Origin: envelope.Live, Fragment: 1, Fragments: 1}, Body: tt.body}
		got, err := r.Append(nil)
		if err != nil {
			t.Fatalf("%s: %v", tt.want, err)
		}
		if !strings.HasSuffix(string(got), `"fragments":1,`+tt.want) {
			t.Errorf("got %s, want it to end with %s", got, tt.want)
		}
		back, err := envelope.Decode(got)
		if err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if again, err := back.Append(nil); err != nil || string(again) != string(got) {
			t.Errorf("read and written again: %s (%v), want %s", again, err, got)
		}
	}
}

func TestEncodeRefusesWhatNoReaderTakes(t *testing.T) {
	good := envelope.Envelope{Origin: envelope.Live, Fragment: 1, Fragments: 1}
	for name, r := range map[string]*envelope.Record{
		"no body":         {Envelope: good},
		"fragment 0":      {Envelope: envelope.Envelope{Origin: envelope.Live, Fragments: 1}, Body: &envelope.Bulk{}},
		"fragment 2 of 1": {Envelope: envelope.Envelope{Origin: envelope.Live, Fragment: 2, Fragments: 1}, Body: &envelope.Bulk{}},
		"origin":          {Envelope: envelope.Envelope{Origin: "dead", Fragment: 1, Fragments: 1}, Body: &envelope.Bulk{}},
		"op":              {Envelope: good, Body: &envelope.Rows{Changes: []envelope.RowChange{{Op: "X"}}}},
		"scope":           {Envelope: good, Body: &envelope.SnapshotEnd{Scope: "all"}},
		"mode":            {Envelope: good, Body: &envelope.Link{}},
	} {
		if e, err := envelope.Encode(r); err == nil {
			t.Errorf("%s: encoded as %s", name, e.Body)
		}
	}
}

func TestStreamKey(t *testing.T) {
	for _, tt := range []struct {
		stream envelope.Stream
		want   string
	}{
		{
			envelope.Stream{Script: "depot", Class: "Shelf", Cell: "Shelf:a17", Incarnation: 4},
			"6465706f74" + "00" + "5368656c66" + "00" + "5368656c663a613137" + "00" + "00" + "0000000000000004",
		},
		{
			envelope.Stream{Script: "depot", Class: "Shelf", Cell: "Shelf:a17", Facet: "facets/ab", Incarnation: 5497558139000},
			"6465706f74" + "00" + "5368656c66" + "00" + "5368656c663a613137" + "00" + "6661636574732f6162" + "00" + "0000050000000078",
		},
		{envelope.Stream{Incarnation: math.MaxUint64}, "00000000" + "ffffffffffffffff"},
	} {
		if got := hex.EncodeToString(tt.stream.Key()); got != tt.want {
			t.Errorf("key of %s is %s, want %s", tt.stream, got, tt.want)
		}
	}
}

func TestOrders(t *testing.T) {
	positions := []envelope.Position{{}, {0, 0, 1}, {0, 1, 0}, {0, math.MaxUint64, 0}, {1, 0, 0}, {1, 0, math.MaxUint64}, {math.MaxUint64, 0, 0}}
	streams := []envelope.Stream{
		{}, {Incarnation: 9}, {Facet: "f"}, {Cell: "a", Facet: "f"}, {Cell: "b"}, {Class: "a"}, {Script: "a"}, {Script: "a", Class: "b"},
	}
	for i := range positions {
		for j := range positions {
			if got, want := sign(positions[i].Compare(positions[j])), sign(i-j); got != want {
				t.Errorf("%s against %s: %d, want %d", positions[i], positions[j], got, want)
			}
		}
	}
	for i := range streams {
		for j := range streams {
			if got, want := sign(streams[i].Compare(streams[j])), sign(i-j); got != want {
				t.Errorf("%s against %s: %d, want %d", streams[i], streams[j], got, want)
			}
		}
	}
	if got := (envelope.Position{Epoch: 3, TXID: 42, Commit: 7}).String(); got != "e3:42:7" {
		t.Errorf("position prints as %s", got)
	}
	if got := (envelope.Stream{Script: "s", Class: "C", Cell: "C:1", Facet: "facets/a", Incarnation: 2}).String(); got != "s/C:1/facets/a@2" {
		t.Errorf("stream prints as %s", got)
	}
}
