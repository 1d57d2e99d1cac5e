package exporter_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"celldexport/envelope"
	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/config"
	"celldexport/internal/objstore"
)

// Files that no code of ours wrote give exactly the records that were written
// by hand for them.
func TestCapturedNode(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.FromSlash("../examples/node"))); err != nil {
		t.Fatal(err)
	}
	s := config.Default()
	s.Watch, s.State, s.Node = filepath.Join(dir, "watch"), filepath.Join(dir, "state"), "node-a"
	s.Bucket = "file://" + filepath.Join(dir, "bucket")
	s.Export.Enabled = true
	s.Export.Flush = 20 * time.Millisecond
	e, err := exporter.New(t.Context(), exporter.Options{Settings: s, Logger: slog.New(slog.DiscardHandler), Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	left, err := e.Once(t.Context(), exportTime)
	if err != nil || len(left) > 0 {
		t.Fatalf("left %v, err %v", left, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	bucket, err := objstore.NewFile(filepath.Join(dir, "bucket"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := consumer.Load(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range c.Records {
		if r.Body.Kind() != envelope.KindWatermark {
			line, err := r.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(line))
		}
	}
	if diff := cmp.Diff(expected(t, filepath.Join(dir, "expected.jsonl")), got); diff != "" {
		t.Errorf("records differ from those written by hand (-want +got):\n%s", diff)
	}
	id, ok := c.Stream(c.Records[0].Stream.Cell)
	if through := c.State.Certified(id)[1]; !ok || through.TXID != 13 {
		t.Errorf("certified to %v, want txid 13", through)
	}
}

// expected reads the hand-written lines, spelled without spaces.
func expected(t *testing.T, name string) []string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []string
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var b bytes.Buffer
		if err := json.Compact(&b, sc.Bytes()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lines = append(lines, b.String())
	}
	return slices.DeleteFunc(lines, func(s string) bool { return strings.TrimSpace(s) == "" })
}

// The files of ../shared/fixtures were captured by another version of the
// Litestream library; they are not ours to keep and are read in place.
func TestFixtures(t *testing.T) {
	dir := filepath.FromSlash("../../shared/fixtures/golden-ltx")
	files, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		t.Skip("the folder shared/fixtures is not beside the project: its LTX files are not checked")
	}
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 0)
	a := w.host("node-a")
	scope := w.fleet.CellID(class, "golden")
	ltx := filepath.Join(a.settings.Watch, scope, "ltx", "e1", ".db.sqlite-litestream", "ltx", "0")
	w.must(os.MkdirAll(ltx, 0o755))
	put := func(key string, data []byte) {
		t.Helper()
		_, err := objstore.PutBytes(t.Context(), w.store, key, data, objstore.PutOptions{})
		w.must(err)
	}
	put("cells/"+scope+"/own.json", []byte(`{"node":"node-a","epoch":1}`))
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		w.must(err)
		w.must(os.WriteFile(filepath.Join(ltx, f.Name()), data, 0o644))
		put("cells/"+scope+"/ltx/e1/0000/"+f.Name(), data)
	}
	if left := a.once(); len(left) > 0 {
		t.Fatalf("left %v", left)
	}
	c := w.consumer()
	id, _ := c.Stream(scope)
	table := c.State.Table(id, "kv")
	if table == nil {
		// The application's own table is called kv, which is exported apart
		// from celld's key-value storage.
		table = c.State.Table(id, "_cf_SQL_kv")
	}
	if table == nil {
		t.Fatalf("no table, tables %v", c.State.Tables(id))
	}
	var rows []string
	for _, r := range table.Rows {
		rows = append(rows, string(envelope.AppendValues(nil, r.Values)))
	}
	want := []string{`["a","upd5"]`, `["b","2"]`, `["c","3"]`, `["k1","v1"]`, `["k2","v2"]`, `["k3","v3"]`, `["k4","v4"]`, `["k5","v5"]`}
	if !slices.Equal(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
	if table.Table != "_cf_SQL_kv" {
		t.Errorf("the application's table kv is exported as %s", table.Table)
	}
	if got, want := story(c, scope, 1), "rows _cf_SQL_kv/1 UI"; !strings.HasSuffix(got, want) {
		t.Errorf("story %s, want it to end in %s", got, want)
	}
	if through := c.State.Certified(id)[1]; through.TXID != uint64(len(files)) {
		t.Errorf("certified to %v of %d", through, len(files))
	}
}
