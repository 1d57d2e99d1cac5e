package duckdb

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/internal/objstore"
	"celldexport/sinks"
	"celldexport/sinks/bucket"
	"celldexport/sinks/delivery"

	"github.com/google/go-cmp/cmp"
)

// TestPQ01 sends 40 records of 60 MiB in one flush through spool, engine and
// sink, with the settings of the case: every object opens in DuckDB and in our
// reader with every record of it, absent and empty texts differ, and no size in
// a file is near the 32 bits of the format.
func TestPQ01(t *testing.T) {
	const records, size = 40, 60 << 20
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bucket"), 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := objstore.Open(t.Context(), objstore.Config{URL: "file://" + filepath.Join(dir, "bucket")})
	if err != nil {
		t.Fatal(err)
	}
	sink, err := bucket.New(bucket.Config{Store: store, Node: "node-a", FlushInterval: time.Hour, FlushBytes: 1 << 30, QueueBytes: 4 << 30})
	if err != nil {
		t.Fatal(err)
	}
	spool, err := delivery.OpenSpool(filepath.Join(dir, "spool"), delivery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	engine, err := delivery.New(delivery.Config{Spool: spool, Dir: dir, Sinks: []sinks.Sink{sink}})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()

	want := []string{}
	for i := range records {
		want = append(want, spoolLarge(t, spool, i, size))
	}
	if err := spool.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := engine.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)

	objects := filepath.Join(dir, "bucket", bucket.Prefix)
	db := openDB(t, "")
	run(t, db, fmt.Sprintf("SET VARIABLE export_path = '%s/**/*.parquet'", objects))
	got := lines(t, db, `SELECT cell, txid, cell_name, facet, length(body), sha256(body)
		FROM read_parquet(getvariable('export_path')) WHERE kind = 'rows'`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by DuckDB (-want +got):\n%s", diff)
	}
	if bad := lines(t, db, `SELECT file_name, row_group_id, path_in_schema, total_compressed_size, total_uncompressed_size
		FROM parquet_metadata(getvariable('export_path')) WHERE total_compressed_size <= 0 OR total_uncompressed_size <= 0 OR total_uncompressed_size > 1 << 30`); len(bad) > 0 {
		t.Errorf("sizes of column chunks: %v", bad)
	}
	ours := []string{}
	files := lines(t, db, "SELECT file FROM glob(getvariable('export_path'))")
	for _, file := range files {
		for rec, err := range reader(t, file).Records() {
			if err != nil {
				t.Fatal(err)
			}
			if rec.Kind == envelope.KindRows {
				ours = append(ours, largeLine(&rec))
			}
		}
	}
	slices.Sort(ours)
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Errorf("by our reader (-want +got):\n%s", diff)
	}
	t.Logf("%d records of %d MiB in %d objects", records, size>>20, len(files))
}

// spoolLarge spools unit i of one record and returns what DuckDB is to say of
// it: names that are absent, empty and set, with a facet and without.
func spoolLarge(t *testing.T, spool *delivery.Spool, i, size int) string {
	t.Helper()
	empty, name := "", "alice"
	id := envelope.Stream{Script: "shop", Class: "Cart", Cell: fmt.Sprint("Cart:", i%3), Incarnation: 3}
	if i%4 == 3 {
		id.Facet = "f"
	}
	txid := uint64(i + 1)
	u := delivery.Unit{
		Form: delivery.FormUnit, Stream: id, Scope: id.Cell, Node: "node-a", CommittedAt: 1_790_000_000_000 + int64(i), MinTXID: txid, MaxTXID: txid,
		Position: envelope.Position{Epoch: 3, TXID: txid, Commit: txid}, CellName: []*string{nil, &empty, &name}[i%3],
	}
	large := envelope.Text(strings.Repeat(string(rune('a'+i%26)), size))
	e, err := envelope.Encode(&envelope.Record{
		Envelope: envelope.Envelope{
			Stream: id, CellName: u.CellName, Position: u.Position, CommittedAt: u.CommittedAt, Node: u.Node,
			Origin: envelope.Live, Fragment: 1, Fragments: 1,
		},
		Body: &envelope.Rows{
			TableGeneration: envelope.TableGeneration{Table: "t", Generation: 1}, Columns: []string{"id", "text", "note"}, KeyColumns: []string{"id"},
			Changes: []envelope.RowChange{{
				Op: envelope.Insert, Key: []envelope.Value{envelope.Int(int64(i))}, Row: []envelope.Value{envelope.Int(int64(i)), large, envelope.Text("")},
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	entry, err := spool.Begin(u)
	if err != nil {
		t.Fatal(err)
	}
	if err := entry.Record(&e); err != nil {
		t.Fatal(err)
	}
	if _, err := entry.Commit(); err != nil {
		t.Fatal(err)
	}
	return largeLine(&e)
}

func largeLine(e *envelope.Encoded) string {
	name, facet := "-", "-"
	if e.CellName != nil {
		name = *e.CellName
	}
	if e.Stream.Facet != "" {
		facet = e.Stream.Facet
	}
	return fmt.Sprintf("%s | %d | %s | %s | %d | %x", e.Stream.Cell, e.Position.TXID, name, facet, len(e.Body), sha256.Sum256(e.Body))
}
