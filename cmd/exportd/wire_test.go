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

	b.out.Reset()
	if code := b.main(t.Context(), []string{"run", "--once"}); code != 0 {
		t.Fatalf("second run: exit %d: %s", code, &b.err)
	}
	again, err := inspector.Run(t.Context(), audit.Inspection{Objects: 100}, func(string, *envelope.Encoded) error { return nil })
	if err != nil || again.Records != done.Records {
		t.Errorf("nothing had changed, yet a second run left %d records where there were %d (%v)", again.Records, done.Records, err)
	}
}
