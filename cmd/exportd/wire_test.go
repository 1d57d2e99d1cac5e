package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"celldexport/audit"
	"celldexport/envelope"
	"celldexport/internal/objstore"
)

// TestOnceOverTheExample is the README's second example through the real
// exporter: what run --once leaves in the bucket, inspect reads back.
func TestOnceOverTheExample(t *testing.T) {
	work := t.TempDir()
	if err := os.CopyFS(work, os.DirFS("../../examples/node")); err != nil {
		t.Fatal(err)
	}
	bucket := filepath.Join(work, "bucket")
	b := newBench("CELLD_EXPORT=1", "CELLD_NODE=node-a", "CELLD_WATCH="+filepath.Join(work, "watch"),
		"EXPORTD_STATE="+filepath.Join(work, "state"), "CELLD_BUCKET=file://"+bucket)
	b.newEngine, b.connect = newEngine, connect
	if code := b.main(t.Context(), []string{"run", "--once"}); code != 0 {
		t.Fatalf("exit %d: %s", code, &b.err)
	}
	store, err := objstore.NewFile(bucket)
	if err != nil {
		t.Fatal(err)
	}
	before := exported(t, store)

	b.out.Reset()
	if code := b.main(t.Context(), []string{"run", "--once"}); code != 0 {
		t.Fatalf("second run: exit %d: %s", code, &b.err)
	}
	if again := exported(t, store); again != before {
		t.Errorf("nothing had changed, yet a second run left %d records where there were %d", again, before)
	}
}

// exported holds what a store has of the example's export against the example:
// one stream, linked, with rows, certified to its end. It returns the number
// of records.
func exported(t *testing.T, store objstore.Store) int {
	t.Helper()
	var summary audit.Summary
	var marked envelope.Position
	inspector := &audit.Inspector{Store: store, Decode: audit.Parquet}
	done, err := inspector.Run(t.Context(), audit.Inspection{Objects: 100}, func(object string, r *envelope.Encoded) error {
		summary.Add(r)
		if !strings.HasPrefix(object, "export/changes/node-a/") {
			t.Errorf("an object of another node: %s", object)
		}
		if r.Kind == envelope.KindWatermark {
			marked = r.Position
		}
		return nil
	})
	if err != nil || done.Objects == 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	streams := summary.Streams()
	if len(streams) != 1 {
		t.Fatalf("%d streams", len(streams))
	}
	if s := streams[0]; s.Kinds[envelope.KindLink] != 1 || s.Kinds[envelope.KindRows] == 0 || marked != s.Last {
		t.Errorf("kinds %v, certified to %s of %s", s.Kinds, marked, s.Last)
	}
	return int(done.Records)
}

// With an export bucket of its own in the settings, that one alone gets the
// export, and the fleet's what belongs to the fleet.
func TestExportBucketOfItsOwn(t *testing.T) {
	work := t.TempDir()
	if err := os.CopyFS(work, os.DirFS("../../examples/node")); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	b := newBench("CELLD_EXPORT=1", "CELLD_NODE=node-a", "CELLD_WATCH="+filepath.Join(work, "watch"),
		"EXPORTD_STATE="+filepath.Join(work, "state"), "CELLD_BUCKET=file://"+filepath.Join(work, "bucket"), "CELLD_EXPORT_BUCKET=file://"+other)
	b.newEngine, b.connect = newEngine, connect
	if code := b.main(t.Context(), []string{"run", "--once"}); code != 0 {
		t.Fatalf("exit %d: %s", code, &b.err)
	}
	fleet, export := keysOf(t, filepath.Join(work, "bucket")), keysOf(t, other)
	for _, key := range export {
		if !strings.HasPrefix(key, "export/") {
			t.Errorf("the export bucket has %s", key)
		}
	}
	ours := 0
	for _, key := range fleet {
		if strings.HasPrefix(key, "export/") {
			t.Errorf("the fleet's bucket has %s", key)
		}
		if strings.HasPrefix(key, "exportd/") {
			ours++
		}
	}
	if ours < 2 {
		t.Errorf("the fleet's bucket lacks the node's object or the ledger: %v", fleet)
	}
	store, err := objstore.NewFile(other)
	if err != nil {
		t.Fatal(err)
	}
	exported(t, store)
}

// keysOf are the keys of a file bucket.
func keysOf(t *testing.T, dir string) (keys []string) {
	t.Helper()
	store, err := objstore.NewFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	for obj, err := range store.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, obj.Key)
	}
	return keys
}
