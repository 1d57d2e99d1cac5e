package main

import (
	"bytes"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// example is the checked-in example.
const example = "../../examples/node"

// expectedRecord is what the test needs of an expected record.
type expectedRecord struct {
	Kind        string  `json:"kind"`
	Cell        string  `json:"cell"`
	Epoch       uint64  `json:"epoch"`
	TXID        uint64  `json:"txid"`
	Commit      uint64  `json:"commit"`
	CommittedAt int64   `json:"committed_at"`
	SnapshotID  string  `json:"snapshot_id"`
	Table       string  `json:"table"`
	SQL         string  `json:"sql"`
	Dropped     bool    `json:"dropped"`
	RenamedFrom string  `json:"renamed_from"`
	Rows        [][]any `json:"rows"`
}

func expectedRecords(t *testing.T) []expectedRecord {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(example, "expected.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var records []expectedRecord
	for dec.More() {
		var r expectedRecord
		if err := dec.Decode(&r); err != nil {
			t.Fatalf("record %d: %v", len(records)+1, err)
		}
		records = append(records, r)
	}
	return records
}

func exampleFiles(t *testing.T) []capturedFile {
	t.Helper()
	files, err := readFiles(example)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("the example holds no captured files")
	}
	return files
}

func TestBucketHoldsTheSameBytes(t *testing.T) {
	local := filepath.Join(example, "watch", cellName(), "ltx", "e1", ".db.sqlite-litestream", "ltx", "0")
	remote := filepath.Join(example, "bucket", "cells", cellName(), "ltx", "e1", "0000")
	for _, f := range exampleFiles(t) {
		a, errA := os.ReadFile(filepath.Join(local, f.name))
		b, errB := os.ReadFile(filepath.Join(remote, f.name))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs (%v, %v)", f.name, errA, errB)
		}
	}
}

func TestExpectedRecordsNameTheirFiles(t *testing.T) {
	times := map[uint64]int64{}
	for _, f := range exampleFiles(t) {
		times[uint64(f.header.MaxTXID)] = f.header.Timestamp
	}
	for i, r := range expectedRecords(t) {
		if r.Cell != cellName() || r.Epoch != 1 || r.CommittedAt != times[r.TXID] {
			t.Errorf("record %d: cell %s, epoch %d, txid %d at %d, the file says %d", i+1, r.Cell, r.Epoch, r.TXID, r.CommittedAt, times[r.TXID])
		}
		if want := r.TXID; r.Commit != want && r.Kind != "link" {
			t.Errorf("record %d: commit %d, want %d", i+1, r.Commit, want)
		}
		if want := fmt.Sprintf("ddl-%d-%d-0", r.CommittedAt, r.TXID); r.SnapshotID != "" && r.SnapshotID != want {
			t.Errorf("record %d: snapshot %s, want %s", i+1, r.SnapshotID, want)
		}
	}
}

// TestExpectedRecordsGiveEveryState replays the expected records txid by txid
// and compares each state with the database that the files restore to.
func TestExpectedRecordsGiveEveryState(t *testing.T) {
	records := expectedRecords(t)
	state := map[string]map[string]string{}
	var image []byte
	for _, f := range exampleFiles(t) {
		image = apply(image, f)
		for len(records) > 0 && records[0].TXID <= uint64(f.header.MaxTXID) {
			replay(t, state, records[0])
			records = records[1:]
		}
		want := readState(t, image)
		if len(want) != len(state) {
			t.Errorf("txid %v: records give tables %v, the database has %v", f.header.MaxTXID,
				slices.Sorted(maps.Keys(state)), slices.Sorted(maps.Keys(want)))
		}
		for table, rows := range want {
			if !maps.Equal(rows, state[table]) {
				t.Errorf("txid %v, table %s: records give\n%v\nthe database has\n%v", f.header.MaxTXID, table, state[table], rows)
			}
		}
	}
	if len(records) > 0 {
		t.Errorf("%d records belong to no file", len(records))
	}
}

// apply puts a file's pages over a database image.
func apply(image []byte, f capturedFile) []byte {
	size := int(f.header.PageSize)
	next := make([]byte, int(f.header.Commit)*size)
	copy(next, image)
	for _, p := range f.pages {
		copy(next[(int(p.number)-1)*size:], p.data)
	}
	return next
}

// replay applies one record to the state, table by table and key by key.
func replay(t *testing.T, state map[string]map[string]string, r expectedRecord) {
	t.Helper()
	switch r.Kind {
	case "schema":
		delete(state, r.RenamedFrom)
		if r.Dropped {
			delete(state, r.Table)
		}
	case "snapshot":
		state[r.Table] = map[string]string{}
	case "link", "snapshot_end":
		return
	}
	for _, change := range r.Rows {
		key, row := canonical(t, change[1]), canonical(t, change[2])
		if r.Table == "kv" {
			row = key // values are in the runtime's own encoding in the database
		}
		_, held := state[r.Table][key]
		switch op := change[0]; {
		case op == "I" && !held, op == "U" && held:
			state[r.Table][key] = row
		case op == "D" && held && state[r.Table][key] == row:
			delete(state[r.Table], key)
		default:
			t.Errorf("txid %d, table %s: %v of key %s does not fit what is held", r.TXID, r.Table, op, key)
		}
	}
}

// canonical spells an array of values so that equal values are equal text.
func canonical(t *testing.T, list any) string {
	t.Helper()
	values, ok := list.([]any)
	if !ok {
		t.Fatalf("%v is no array", list)
	}
	var b strings.Builder
	for _, v := range values {
		switch v := v.(type) {
		case json.Number:
			if strings.ContainsAny(v.String(), ".e") {
				x, err := v.Float64()
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "real %v; ", x)
			} else {
				fmt.Fprintf(&b, "integer %s; ", v)
			}
		case map[string]any:
			text, _ := v["$blob"].(string)
			raw, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "blob %x; ", raw)
		case string:
			fmt.Fprintf(&b, "text %q; ", v)
		case nil:
			b.WriteString("null; ")
		default:
			t.Fatalf("a %T is no SQL value", v)
		}
	}
	return b.String()
}

// readState reads the application's tables of a database image.
func readState(t *testing.T, image []byte) map[string]map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db.sqlite")
	if err := os.WriteFile(path, image, 0o644); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	keys := map[string]string{"bins": "id", "tags": "name", "log": "rowid", "journal": "rowid", "_cf_KV": "k"}
	state := map[string]map[string]string{}
	for _, table := range tables(t, db) {
		key, known := keys[table]
		switch {
		case !known && (strings.HasPrefix(table, "_cf_") || strings.HasPrefix(table, "_litestream_")):
		case !known:
			t.Fatalf("no key known of table %s", table)
		case table == "_cf_KV":
			state["kv"] = readTable(t, db, `SELECT k, k FROM _cf_KV WHERE scope = '`+cellName()+`'`)
		default:
			state[table] = readTable(t, db, "SELECT "+key+", * FROM "+table)
		}
	}
	return state
}

func tables(t *testing.T, db *sql.DB) []string {
	t.Helper()
	var list string
	err := db.QueryRow(`SELECT coalesce(group_concat(name), '') FROM sqlite_schema WHERE type = 'table'`).Scan(&list)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(list, ",")
}

// readTable reads rows whose first column is the key.
func readTable(t *testing.T, db *sql.DB, query string) map[string]string {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]string{}
	for rows.Next() {
		values := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		var spelled []string
		for _, v := range values {
			spelled = append(spelled, spell(t, v))
		}
		table[spelled[0]] = strings.Join(spelled[1:], "")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return table
}

// spell spells a value of the driver as canonical does.
func spell(t *testing.T, v any) string {
	t.Helper()
	switch v := v.(type) {
	case int64:
		return fmt.Sprintf("integer %d; ", v)
	case float64:
		return fmt.Sprintf("real %v; ", v)
	case []byte:
		return fmt.Sprintf("blob %x; ", v)
	case string:
		return fmt.Sprintf("text %q; ", v)
	case nil:
		return "null; "
	}
	t.Fatalf("the driver gave a %T", v)
	return ""
}

// TestExampleComesFromTheScript runs the script anew and compares the result
// with what the files restore to.
func TestExampleComesFromTheScript(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(example, "script.sql"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := makeExample(t.Context(), string(text), dir); err != nil {
		t.Fatal(err)
	}
	again, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	var image, anew []byte
	for _, f := range exampleFiles(t) {
		image = apply(image, f)
	}
	for _, f := range again {
		anew = apply(anew, f)
	}
	got, want := readState(t, image), readState(t, anew)
	if !maps.EqualFunc(got, want, maps.Equal[map[string]string, map[string]string]) {
		t.Errorf("the example holds\n%v\nthe script gives\n%v", got, want)
	}
}
