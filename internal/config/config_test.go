package config

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// write puts a settings file into a scratch folder.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// one is a setting written in both ways, and the settings that result.
type one struct {
	key, yaml, variable, text string
	want                      func(*Settings)
}

func everySetting() []one {
	return []one{
		{"watch", "/w", "CELLD_WATCH", "/w", func(s *Settings) { s.Watch = "/w" }},
		{"state", "/s", "EXPORTD_STATE", "/s", func(s *Settings) { s.State = "/s" }},
		{"node", "node-a", "CELLD_NODE", "node-a", func(s *Settings) { s.Node = "node-a" }},
		{"node", "007", "CELLD_NODE", "007", func(s *Settings) { s.Node = "007" }},
		{"bucket", "s3://fleet/a/b", "CELLD_BUCKET", "s3://fleet/a/b", func(s *Settings) { s.Bucket = "s3://fleet/a/b" }},
		{"bucket", "file:///data/b", "CELLD_BUCKET", "file:///data/b", func(s *Settings) { s.Bucket = "file:///data/b" }},
		{"endpoint", "https://s3.example:9000", "S3_ENDPOINT", "https://s3.example:9000", func(s *Settings) { s.Endpoint = "https://s3.example:9000" }},
		{"endpoint", "localhost:9000", "S3_ENDPOINT", "localhost:9000", func(s *Settings) { s.Endpoint = "localhost:9000" }},
		{"region", "auto", "AWS_REGION", "auto", func(s *Settings) { s.Region = "auto" }},
		{"listen", "':9464'", "EXPORTD_LISTEN", ":9464", func(s *Settings) { s.Listen = ":9464" }},
		{"listen", "'[::1]:0'", "EXPORTD_LISTEN", "[::1]:0", func(s *Settings) { s.Listen = "[::1]:0" }},
		{"script", "shop", "EXPORTD_SCRIPT", "shop", func(s *Settings) { s.Script = "shop" }},
		{"export.enabled", "false", "CELLD_EXPORT", "0", func(s *Settings) {}},
		{"export.sinks", "[bucket, kafka]", "CELLD_EXPORT_SINK", "bucket, kafka", func(s *Settings) { s.Export.Sinks = []string{"bucket", "kafka"} }},
		{"export.sinks", "[blob-stream]", "CELLD_EXPORT_SINK", "blob-stream", func(s *Settings) { s.Export.Sinks = []string{"blob-stream"} }},
		{"export.classes", "[Cart, __D1Database]", "CELLD_EXPORT_CLASSES", "Cart,__D1Database", func(s *Settings) { s.Export.Classes = []string{"Cart", "__D1Database"} }},
		{"export.deny_tables", "[Cart.kv, Cart.a.b]", "CELLD_EXPORT_TABLES", "Cart.kv,Cart.a.b", func(s *Settings) {
			s.Export.DenyTables = []Table{{"Cart", "kv"}, {"Cart", "a.b"}}
		}},
		{"export.deny_tables", "[Cart.x y]", "CELLD_EXPORT_TABLES", "Cart.x y", func(s *Settings) { s.Export.DenyTables = []Table{{"Cart", "x y"}} }},
		{"export.bucket", "s3://other", "CELLD_EXPORT_BUCKET", "s3://other", func(s *Settings) { s.Export.Bucket = "s3://other" }},
		{"export.max_tx_bytes", "1KiB", "CELLD_EXPORT_MAX_TX_BYTES", "1024", func(s *Settings) { s.Export.MaxTxBytes = 1 << 10 }},
		{"export.max_record_bytes", "2MiB", "CELLD_EXPORT_MAX_RECORD_BYTES", "2097152", func(s *Settings) { s.Export.MaxRecordBytes = 2 << 20 }},
		{"export.queue_bytes", "3GiB", "CELLD_EXPORT_QUEUE_BYTES", "3221225472", func(s *Settings) { s.Export.QueueBytes = 3 << 30 }},
		{"export.spool_bytes", "4TiB", "EXPORTD_SPOOL_BYTES", "4398046511104", func(s *Settings) { s.Export.SpoolBytes = 4 << 40 }},
		{"export.cache_bytes", "1048576", "EXPORTD_CACHE_BYTES", "1048576", func(s *Settings) { s.Export.CacheBytes = 1 << 20 }},
		{"export.flush_ms", "250", "CELLD_EXPORT_FLUSH_MS", "250", func(s *Settings) { s.Export.Flush = 250 * time.Millisecond }},
		{"export.flush_bytes", "'4096'", "CELLD_EXPORT_FLUSH_BYTES", "4096", func(s *Settings) { s.Export.FlushBytes = 4096 }},
		{"export.retention", "14d", "CELLD_EXPORT_RETENTION", "14d", func(s *Settings) { s.Export.Retention = 14 }},
		{"export.retention", "none", "CELLD_EXPORT_RETENTION", "none", func(s *Settings) {}},
		{"export.topic", "changes", "CELLD_EXPORT_TOPIC", "changes", func(s *Settings) { s.Export.Topic = "changes" }},
		{"export.retry_ms", "1", "CELLD_EXPORT_RETRY_MS", "1", func(s *Settings) { s.Export.Retry = time.Millisecond }},
		{"export.reconcile", "90s", "CELLD_EXPORT_RECONCILE", "90s", func(s *Settings) { s.Export.Reconcile = 90 * time.Second }},
		{"export.reconcile", "2d", "CELLD_EXPORT_RECONCILE", "2d", func(s *Settings) { s.Export.Reconcile = 48 * time.Hour }},
		{"kafka.brokers", "['k0:9092', '[::1]:9092']", "CELLD_EXPORT_KAFKA_BROKERS", "k0:9092,[::1]:9092", func(s *Settings) { s.Kafka.Brokers = []string{"k0:9092", "[::1]:9092"} }},
		{"kafka.properties", "/etc/k.properties", "CELLD_EXPORT_KAFKA_PROPERTIES", "/etc/k.properties", func(s *Settings) { s.Kafka.Properties = "/etc/k.properties" }},
		{"kafka.auth", "aws-msk-iam", "CELLD_EXPORT_KAFKA_AUTH", "aws-msk-iam", func(s *Settings) { s.Kafka.Auth = AuthMSKIAM }},
		{"blob_stream.brokers", "[a=b0:7000, c=b1:7000]", "CELLD_EXPORT_BROKERS", "a=b0:7000, c=b1:7000", func(s *Settings) { s.BlobStream.Brokers = []string{"a=b0:7000", "c=b1:7000"} }},
		{"blob_stream.brokers", "['k8s://blob-stream/brokers']", "CELLD_EXPORT_BROKERS", "k8s://blob-stream/brokers", func(s *Settings) { s.BlobStream.Brokers = []string{"k8s://blob-stream/brokers"} }},
		{"blob_stream.partitions", "64", "CELLD_EXPORT_PARTITIONS", "64", func(s *Settings) { s.BlobStream.Partitions = 64 }},
		{"blob_stream.zones", "[us-1a, us-1b]", "CELLD_EXPORT_ZONES", "us-1a,us-1b", func(s *Settings) { s.BlobStream.Zones = []string{"us-1a", "us-1b"} }},
		{"blob_stream.zone", "us-1a", "CELLD_ZONE", "us-1a", func(s *Settings) { s.BlobStream.Zone = "us-1a" }},
		{"blob_stream.writer_id", "us-1b", "CELLD_EXPORT_WRITER_ID", "us-1b", func(s *Settings) { s.BlobStream.WriterID = "us-1b" }},
	}
}

// inFile is a file with one key set.
func inFile(key, text string) string {
	section, name, nested := strings.Cut(key, ".")
	if !nested {
		return key + ": " + text + "\n"
	}
	return section + ":\n  " + name + ": " + text + "\n"
}

func TestEverySettingFromFileVariableAndFlag(t *testing.T) {
	covered := map[string]bool{}
	for _, c := range everySetting() {
		covered[c.key] = true
		want := Default()
		c.want(want)
		t.Run(c.key+"="+c.yaml, func(t *testing.T) {
			got, _, err := Load(write(t, inFile(c.key, c.yaml)), nil)
			check(t, "file", want, got, err)
			got, _, err = Load("", []string{c.variable + "=" + c.text})
			check(t, "variable", want, got, err)
			got, _, err = Load("", nil, Flag{Name: "--x", Key: c.key, Value: c.text})
			check(t, "flag", want, got, err)
		})
	}
	keys, variables := Variables()
	for i, key := range keys {
		if !covered[key] {
			t.Errorf("no case sets %s", key)
		}
		if variables[i] == "" {
			t.Errorf("%s has no variable", key)
		}
	}
}

func check(t *testing.T, from string, want, got *Settings, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", from, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", from, diff)
	}
}

// onEnviron is the least that turns the export on.
func onEnviron() []string {
	return []string{"CELLD_EXPORT=1", "CELLD_WATCH=/w", "EXPORTD_STATE=/s", "CELLD_NODE=n", "CELLD_BUCKET=s3://fleet", "AWS_REGION=r"}
}

func TestMalformedValuesFailInBothModes(t *testing.T) {
	bad := map[string][]string{
		"CELLD_EXPORT":                  {"true", "on", "2", " 1"},
		"CELLD_EXPORT_RETENTION":        {"0d", "-1d", "14", "14D", "None", "d", "1.5d", "99999999999999999999d"},
		"CELLD_EXPORT_FLUSH_MS":         {"0", "1e3", "10s", " 1000", "+1", "-1", "1_000", "0x10", "9223372036854775807"},
		"CELLD_EXPORT_RETRY_MS":         {"0", "30s"},
		"CELLD_EXPORT_MAX_RECORD_BYTES": {"1MiB", "0", "-1", "9223372036854775808", "1 "},
		"CELLD_EXPORT_MAX_TX_BYTES":     {"4MiB"},
		"CELLD_EXPORT_QUEUE_BYTES":      {"1e9"},
		"CELLD_EXPORT_FLUSH_BYTES":      {"1k"},
		"EXPORTD_SPOOL_BYTES":           {"4GiB"},
		"EXPORTD_CACHE_BYTES":           {"x"},
		"CELLD_EXPORT_SINK":             {"bucket,", "bucket,bucket", "Bucket", ",", " ", "s3"},
		"CELLD_EXPORT_CLASSES":          {"Cart,,Order,", "__Queue", "__Workflow", ".cron", ".cron.x", "__Workflow.x", "Cart:1", "Cart,Cart", "Ca rt"},
		"CELLD_EXPORT_TABLES":           {"Cart", "Cart.", ".items", `Cart."x y"`, "Cart.`x`", "Cart.[x]", "Ca rt.x", "Cart.x,Cart.x"},
		"CELLD_EXPORT_RECONCILE":        {"24", "0s", "1w", "h", "1h30m", "1H", "-1h", "106752d"},
		"CELLD_EXPORT_BUCKET":           {"other", "gs://x", "az://x", "s3://", "s3://ab", "s3://a/b", "s3://bucket?x=1", "s3://k:s@bucket", "s3://bucket//x", "s3://bucket/../x", "file://x", "file:///a/../b", "http://bucket"},
		"CELLD_BUCKET":                  {"gs://fleet", "fleet"},
		"CELLD_NODE":                    {".a", "a/b", "a b", "ä", strings.Repeat("n", 129)},
		"CELLD_WATCH":                   {" /w", "/w\n"},
		"EXPORTD_STATE":                 {"/s "},
		"EXPORTD_SCRIPT":                {" shop", "a\x00b"},
		"EXPORTD_LISTEN":                {"9464", "localhost", ":x", ":65536", ":01", "a b:1"},
		"S3_ENDPOINT":                   {"ftp://x", "https://", "https://u:p@x", "https://x/path", "https://x?y", "https://x:0", "https://x:", "::"},
		"AWS_REGION":                    {"eu central", "eu/1"},
		"CELLD_EXPORT_TOPIC":            {" ", " x", "x\t", strings.Repeat("t", 250)},
		"CELLD_EXPORT_KAFKA_BROKERS":    {"k0", "k0:0", "k0:65536", ":9092", "k0:9092,", "u:p@k0:9092"},
		"CELLD_EXPORT_KAFKA_AUTH":       {"iam", "NONE"},
		"CELLD_EXPORT_KAFKA_PROPERTIES": {" /x"},
		"CELLD_EXPORT_BROKERS":          {"b0:7000", "=b0:7000", "a=b0", "a=b0:0", "a=b0:1,a=b1:1", "k8s://ns", "k8s://ns/", "k8s://NS/svc", "k8s://a/b,k8s://c/d", "k8s://a/b,x=y:1"},
		"CELLD_EXPORT_PARTITIONS":       {"0", "-1", "x", "4294967296"},
		"CELLD_EXPORT_ZONES":            {"a,a", "a,,b", "a/b", strings.Repeat("z", 129), "a" + manyZones(1024)},
		"CELLD_ZONE":                    {"a b"},
		"CELLD_EXPORT_WRITER_ID":        {"a/b"},
	}
	_, variables := Variables()
	for _, variable := range variables {
		if len(bad[variable]) == 0 {
			t.Errorf("no malformed value of %s is tried", variable)
		}
		for _, text := range bad[variable] {
			for _, environ := range [][]string{nil, onEnviron()} {
				_, _, err := Load("", append(environ, variable+"="+text))
				var problems Problems
				if !errors.As(err, &problems) {
					t.Errorf("%s=%q (on: %t): got %v, want a problem", variable, text, environ != nil, err)
					continue
				}
				i := slices.IndexFunc(problems, func(p Problem) bool { return p.Place.Source == variable })
				if i < 0 || problems[i].Value == "" || problems[i].Reason == "" {
					t.Errorf("%s=%q: no problem names variable and value: %v", variable, text, err)
				}
			}
		}
	}
}

// manyZones is n more zones.
func manyZones(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(",z" + strings.Repeat("x", i%100) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)))
	}
	return b.String()
}

func TestEmptyCountsAsUnsetEverywhere(t *testing.T) {
	keys, variables := Variables()
	file := "export:\nkafka: {}\n"
	for i, key := range keys {
		for _, text := range []string{"", "''", "null", "~"} {
			if got, _, err := Load(write(t, inFile(key, text)), nil); err != nil || !cmp.Equal(got, Default()) {
				t.Errorf("%s: %s in the file: %v, %v", key, text, got, err)
			}
		}
		if got, _, err := Load(write(t, file), []string{variables[i] + "="}); err != nil || !cmp.Equal(got, Default()) {
			t.Errorf("%s= : %v, %v", variables[i], got, err)
		}
		if got, _, err := Load("", nil, Flag{Name: "--x", Key: key}); err != nil || !cmp.Equal(got, Default()) {
			t.Errorf("flag of %s, empty: %v, %v", key, got, err)
		}
	}
	for _, key := range []string{"export.sinks", "export.classes", "export.deny_tables", "kafka.brokers", "blob_stream.zones"} {
		if got, _, err := Load(write(t, inFile(key, "[]")), nil); err != nil || !cmp.Equal(got, Default()) {
			t.Errorf("%s: [] in the file: %v, %v", key, got, err)
		}
	}
}

func TestPrecedence(t *testing.T) {
	file := write(t, "node: from-file\nregion: file-1\nscript: file\n")
	got, _, err := Load(file, []string{"CELLD_NODE=from-variable", "AWS_REGION=variable-1"},
		Flag{Name: "--node", Key: "node", Value: "from-flag"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Node != "from-flag" || got.Region != "variable-1" || got.Script != "file" {
		t.Errorf("got %s, %s, %s", got.Node, got.Region, got.Script)
	}
	if _, _, err := Load("", nil, Flag{Name: "--x", Key: "nothing", Value: "1"}); err == nil {
		t.Error("a flag of an unknown setting was accepted")
	}
	if _, _, err := Load(write(t, "node: .bad\n"), []string{"CELLD_NODE=good"}); err == nil {
		t.Error("a wrong value of the file was accepted because a variable replaces it")
	}
}

func TestUnknownVariablesWarn(t *testing.T) {
	_, warnings, err := Load("", []string{"CELLD_EXPORT_FOO=1", "CELLD_EXPORT_FLUSH_MSS=1", "CELLD_EXPORT_CONSUMER=bucket",
		"CELLD_EXPORTER=1", "PATH=/bin", "CELLD_EXPORT_TOPIC=t"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range warnings {
		if !w.Staged {
			got = append(got, w.Error())
		}
	}
	want := []string{
		"CELLD_EXPORT_FLUSH_MSS: unknown variable, ignored; did you mean CELLD_EXPORT_FLUSH_MS?",
		"CELLD_EXPORT_FOO: unknown variable, ignored",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestManyErrorsAtOnce(t *testing.T) {
	_, _, err := Load("testdata/broken.yaml", []string{"CELLD_EXPORT_PARTITIONS=none", "CELLD_EXPORT_FLUSH_BYTES=8MiB"})
	if err == nil {
		t.Fatal("no error")
	}
	const golden = "testdata/broken.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, readErr := os.ReadFile(golden)
	if readErr != nil {
		t.Fatal(readErr)
	}
	if diff := cmp.Diff(string(want), err.Error()+"\n"); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFilesThatAreNoSettings(t *testing.T) {
	cases := map[string]string{
		"not YAML":        "a: [1, 2\nb: }",
		"a list":          "- a\n- b\n",
		"a scalar":        "hello\n",
		"two documents":   "node: a\n---\nnode: b\n",
		"a tab":           "export:\n\tenabled: true\n",
		"a merge":         "x: &x {a: 1}\nexport:\n  <<: *x\n",
		"an alias":        "node: &n a\nscript: *n\n",
		"a number as key": "1: a\n",
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			path := write(t, text)
			_, _, err := Load(path, nil)
			if err == nil || !strings.HasPrefix(err.Error(), path+":") {
				t.Errorf("got %v, want a problem of %s", err, path)
			}
		})
	}
	_, _, err := Load(filepath.Join(t.TempDir(), "none.yaml"), onEnviron())
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != 1 || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing file: %v", err)
	}
	if got, _, err := Load(write(t, "# nothing\n"), nil); err != nil || !cmp.Equal(got, Default()) {
		t.Errorf("a file of comments: %v, %v", got, err)
	}
}

func TestCredentialsAreNeverPrinted(t *testing.T) {
	const secret = "hunter2"
	for _, variable := range []string{"CELLD_BUCKET", "CELLD_EXPORT_BUCKET", "S3_ENDPOINT", "CELLD_EXPORT_KAFKA_BROKERS", "CELLD_EXPORT_BROKERS"} {
		for _, text := range []string{"s3://key:" + secret + "@bucket", "https://key:" + secret + "@host", "key:" + secret + "@host:1",
			"k=key:" + secret + "@host:1", "s3://bucket?secret=" + secret, "https://host?secret=" + secret, "u:" + secret + "@x://y"} {
			_, _, err := Load("", []string{variable + "=" + text})
			if err == nil {
				t.Errorf("%s=%s was accepted", variable, text)
			} else if strings.Contains(err.Error(), secret) {
				t.Errorf("%s=%s: the error repeats the secret: %v", variable, text, err)
			}
		}
	}
	_, _, err := Load(write(t, "endpoint: {\n  secret: "+secret+"\n"), nil)
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("broken YAML: %v", err)
	}
	s := Default()
	s.Endpoint = "https://key:" + secret + "@host"
	if strings.Contains(s.String(), secret) {
		t.Errorf("String repeats the secret: %s", s)
	}
}

func TestShownSettingsLoadAgain(t *testing.T) {
	want := Default()
	for _, c := range everySetting() {
		c.want(want)
	}
	for name, s := range map[string]*Settings{"default": Default(), "everything": want} {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(text) {
			t.Fatalf("%s: not JSON: %s", name, text)
		}
		got, _, err := Load(write(t, string(text)), nil)
		check(t, name, s, got, err)
	}
}

// The example shows every key with its variable, and its defaults are the
// program's.
func TestExampleFile(t *testing.T) {
	const path = "../../examples/exportd.yaml"
	got, _, err := Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Watch, want.State, want.Node, want.Bucket = "/var/lib/celld/state", "/var/lib/exportd", "node-a", "s3://fleet"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	keys, variables := Variables()
	for i, key := range keys {
		name := key[strings.Index(key, ".")+1:]
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.HasPrefix(strings.TrimSpace(line), name+":") && strings.Contains(line, "# "+variables[i]+" ") ||
				strings.HasPrefix(strings.TrimSpace(line), name+":") && strings.HasSuffix(line, "# "+variables[i])
		}) {
			t.Errorf("%s with %s is not in %s", key, variables[i], path)
		}
	}
}
