package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"celldexport/envelope"
	"celldexport/internal/config"
	"celldexport/internal/objstore"
)

// decodeOne stands in for Parquet: an object's text is the txid of its one
// record, and anything else does not decode.
func decodeOne(name string, r io.ReaderAt, size int64, _ string) iter.Seq2[envelope.Encoded, error] {
	return func(yield func(envelope.Encoded, error) bool) {
		text, err := io.ReadAll(io.NewSectionReader(r, 0, size))
		var txid uint64
		if err == nil {
			err = json.Unmarshal(text, &txid)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		yield(envelope.Encoded{Envelope: envelope.Envelope{
			Stream:   envelope.Stream{Script: "shop", Class: "Cart", Cell: "Cart:1", Incarnation: 1},
			Position: envelope.Position{Epoch: 1, TXID: txid, Commit: txid},
			Node:     "n", Origin: envelope.Live, Fragment: 1, Fragments: 1,
		}, Kind: envelope.KindBulk, Body: []byte(`{"kind":"bulk","tables":[]}`)}, err)
	}
}

type bench struct {
	*app
	out, err bytes.Buffer
	opened   []string
	store    objstore.Store
}

func newBench(t *testing.T, environ ...string) *bench {
	t.Helper()
	b := &bench{store: objstore.NewMemory()}
	for key, text := range map[string]string{"1": "11", "2": "12", "3": "13"} {
		if _, err := objstore.PutBytes(t.Context(), b.store, "export/changes/n/2026/11/30/00/"+key+".parquet", []byte(text), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.app = &app{stdout: &b.out, stderr: &b.err, environ: environ, decode: decodeOne,
		open: func(_ context.Context, s *config.Settings, bucket string) (objstore.Store, error) {
			b.opened = append(b.opened, bucket+" "+s.Endpoint+" "+s.Region)
			return b.store, nil
		}}
	return b
}

func TestInspectCommand(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.parquet"), filepath.Join(dir, "bad.parquet")
	for path, text := range map[string]string{good: "7", bad: "no"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const summary = `{"script":"shop","class":"Cart","cell":"Cart:1","facet":null,"incarnation":1,"records":3,"kinds":{"bulk":3},"first":{"epoch":1,"txid":11,"commit":11},"last":{"epoch":1,"txid":13,"commit":13}}` + "\n"
	const resume = "resume with --after export/changes/n/2026/11/30/00/2.parquet\n"
	cases := []struct {
		name    string
		args    string
		environ []string
		code    int
		lines   int
		out     string
		err     string
		opened  string
	}{
		{name: "bucket by flag", args: "inspect --bucket s3://fleet --endpoint h:1 --region r", lines: 3, opened: "s3://fleet h:1 r"},
		{name: "bucket by variable", args: "inspect", environ: []string{"CELLD_BUCKET=s3://fleet", "S3_ENDPOINT=h:2"}, lines: 3, opened: "s3://fleet h:2 "},
		{name: "flag over variable", args: "inspect --bucket s3://flag", environ: []string{"CELLD_BUCKET=s3://fleet"}, lines: 3, opened: "s3://flag  "},
		{name: "export bucket", args: "inspect --export-bucket s3://other", environ: []string{"CELLD_BUCKET=s3://fleet"}, lines: 3, opened: "s3://other  "},
		{name: "as on a node that exports", args: "inspect", environ: []string{"CELLD_EXPORT=1", "CELLD_BUCKET=s3://fleet"}, lines: 3},
		{name: "settings are checked", args: "inspect", environ: []string{"CELLD_BUCKET=s3://fleet", "CELLD_EXPORT_FLUSH_MS=10s"}, code: 2, err: "CELLD_EXPORT_FLUSH_MS: export.flush_ms"},
		{name: "flag named in errors", args: "inspect --bucket gs://fleet", code: 2, err: "--bucket: bucket: \"gs://fleet\""},
		{name: "no bucket", args: "inspect", code: 2, err: "no bucket"},
		{name: "summary", args: "inspect --bucket s3://fleet --summary", lines: 1, out: summary},
		{name: "limit", args: "inspect --bucket s3://fleet --objects 2", lines: 2, err: "more objects follow; " + resume},
		{name: "after", args: "inspect --bucket s3://fleet --after export/changes/n/2026/11/30/00/2.parquet", lines: 1, out: `"object":"export/changes/n/2026/11/30/00/3.parquet"}`},
		{name: "kind filters", args: "inspect --bucket s3://fleet --kind gap", lines: 0, err: "no record found; objects read: 3\n"},
		{name: "file", args: "inspect --file " + good, lines: 1, out: `"txid":7`},
		{name: "files", args: "inspect --file " + good + " --file " + good, lines: 2},
		{name: "bad file", args: "inspect --file " + good + " --file " + bad, code: 1, lines: 1, err: "read records: " + bad},
		{name: "missing file", args: "inspect --file /nonexistent/x.parquet", code: 1, err: "/nonexistent/x.parquet"},
		{name: "file and node", args: "inspect --node n --file " + good, code: 2, err: "inspect: "},
		{name: "hour without node", args: "inspect --bucket s3://fleet --hour 2026/11/30", code: 2, err: "an hour needs a node"},
		{name: "unknown kind", args: "inspect --bucket s3://fleet --kind row", code: 2, err: `kind "row"`},
		{name: "no value", args: "inspect --node", code: 2, err: "--node needs a value; see celld-export inspect --help"},
		{name: "unknown option", args: "inspect --nod n", code: 2, err: "unknown flag: --nod; see celld-export inspect --help"},
		{name: "help", args: "inspect --help", lines: -1, out: "EXIT STATUS"},
		{name: "version", args: "version", lines: 1, out: "celld-export "},
		{name: "unknown verb", args: "inspct", code: 2, err: `unknown command "inspct"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.environ...)
			code := b.main(t.Context(), strings.Fields(c.args))
			if code != c.code || !strings.Contains(b.out.String(), c.out) || !strings.Contains(b.err.String(), c.err) {
				t.Errorf("exit %d, want %d\nstdout: %s\nstderr: %s", code, c.code, &b.out, &b.err)
			}
			if n := strings.Count(b.out.String(), "\n"); c.lines >= 0 && n != c.lines {
				t.Errorf("%d lines, want %d:\n%s", n, c.lines, &b.out)
			}
			if c.opened != "" && strings.Join(b.opened, "|") != c.opened {
				t.Errorf("opened %q, want %q", b.opened, c.opened)
			}
		})
	}
}

// An error in the middle leaves whole records on stdout and says where to go
// on; a summary of a part would look like one of the whole.
func TestInspectStopsWithAPlaceToResume(t *testing.T) {
	for _, summary := range []bool{false, true} {
		b := newBench(t, "CELLD_BUCKET=s3://fleet")
		if _, err := objstore.PutBytes(t.Context(), b.store, "export/changes/n/2026/11/30/00/21.parquet", []byte("torn"), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		args, lines, hint := []string{"inspect"}, 2, true
		if summary {
			args, lines, hint = []string{"inspect", "--summary"}, 0, false
		}
		code := b.main(t.Context(), args)
		if code != 1 || strings.Count(b.out.String(), "\n") != lines || !strings.Contains(b.err.String(), "21.parquet") {
			t.Errorf("summary %t: exit %d\nstdout: %s\nstderr: %s", summary, code, &b.out, &b.err)
		}
		if got := strings.Contains(b.err.String(), "resume with --after export/changes/n/2026/11/30/00/2.parquet"); got != hint {
			t.Errorf("summary %t: place to resume: %s", summary, &b.err)
		}
	}
}

func TestBucketThatDoesNotOpen(t *testing.T) {
	b := newBench(t, "CELLD_BUCKET=s3://fleet")
	b.open = func(context.Context, *config.Settings, string) (objstore.Store, error) {
		return nil, errors.New("no region")
	}
	if code := b.main(t.Context(), []string{"inspect"}); code != 1 || b.err.String() != "celld-export: open s3://fleet: no region\n" {
		t.Errorf("exit %d: %s", code, &b.err)
	}
}

func TestOpenStore(t *testing.T) {
	if _, err := openStore(t.Context(), config.Default(), "file://"+t.TempDir()); err != nil {
		t.Error(err)
	}
	if _, err := openStore(t.Context(), config.Default(), "file:///nonexistent/bucket"); err == nil {
		t.Error("a bucket that does not exist was opened")
	}
}
