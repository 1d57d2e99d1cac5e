package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRelationsOnlyWhenOn(t *testing.T) {
	cases := []struct {
		name    string
		environ []string
		key     string
		reason  string
	}{
		{"record over queue", []string{"CELLD_EXPORT_MAX_RECORD_BYTES=2000", "CELLD_EXPORT_QUEUE_BYTES=1999", "CELLD_EXPORT_FLUSH_BYTES=1"}, "export.max_record_bytes", "too large"},
		{"flush over queue", []string{"CELLD_EXPORT_FLUSH_BYTES=300000000"}, "export.flush_bytes", "too large"},
		{"record over spool", []string{"EXPORTD_SPOOL_BYTES=1000"}, "export.max_record_bytes", "too large"},
		{"no watch", []string{"CELLD_WATCH="}, "watch", "required"},
		{"no state", []string{"EXPORTD_STATE="}, "state", "required"},
		{"no node", []string{"CELLD_NODE="}, "node", "required"},
		{"no bucket", []string{"CELLD_BUCKET="}, "bucket", "required"},
		{"no region at Amazon", []string{"AWS_REGION="}, "region", "required at Amazon"},
		{"auto region at Amazon", []string{"AWS_REGION=auto"}, "region", "required at Amazon"},
		{"no region of the export bucket", []string{"AWS_REGION=", "CELLD_BUCKET=file:///b", "CELLD_EXPORT_BUCKET=s3://other"}, "region", "required at Amazon"},
		{"same directory", []string{"EXPORTD_STATE=/w/"}, "state", "same directory"},
		{"state in watch", []string{"EXPORTD_STATE=/w/x/../y"}, "state", "inside the directory of watch"},
		{"watch in state", []string{"CELLD_WATCH=/s/w"}, "state", "the directory of watch is inside it"},
		{"bucket in watch", []string{"CELLD_BUCKET=file:///w/b"}, "bucket", "inside"},
		{"export bucket holds the state", []string{"CELLD_EXPORT_BUCKET=file:///s"}, "export.bucket", "same directory as state"},
		{"blob-stream with large records", []string{"CELLD_EXPORT_SINK=bucket,blob-stream", "CELLD_EXPORT_BROKERS=a=k:1", "CELLD_EXPORT_PARTITIONS=1", "CELLD_EXPORT_MAX_RECORD_BYTES=16000000"}, "export.max_record_bytes", "16 MiB"},
		{"blob-stream with a million partitions", []string{"CELLD_EXPORT_SINK=blob-stream", "CELLD_EXPORT_BROKERS=a=k:1", "CELLD_EXPORT_PARTITIONS=1048577"}, "blob_stream.partitions", "too many"},
		{"kafka without brokers", []string{"CELLD_EXPORT_SINK=kafka"}, "kafka.brokers", "required"},
		{"kafka topic", []string{"CELLD_EXPORT_SINK=kafka", "CELLD_EXPORT_KAFKA_BROKERS=k:1", "CELLD_EXPORT_TOPIC=a/b"}, "export.topic", "not a Kafka topic"},
		{"blob-stream without brokers", []string{"CELLD_EXPORT_SINK=blob-stream", "CELLD_EXPORT_PARTITIONS=1"}, "blob_stream.brokers", "required"},
		{"blob-stream without partitions", []string{"CELLD_EXPORT_SINK=blob-stream", "CELLD_EXPORT_BROKERS=a=k:1"}, "blob_stream.partitions", "required"},
		{"too many writers", []string{"CELLD_EXPORT_SINK=blob-stream", "CELLD_EXPORT_PARTITIONS=4294967295", "CELLD_EXPORT_ZONES=a,b", "CELLD_ZONE=a"}, "blob_stream.partitions", "too many"},
		{"writer without zones", []string{"CELLD_EXPORT_SINK=blob-stream", "CELLD_EXPORT_WRITER_ID=a"}, "blob_stream.writer_id", "without blob_stream.zones"},
		{"zones without zone", []string{"CELLD_EXPORT_SINK=blob-stream", "CELLD_EXPORT_ZONES=a,b"}, "blob_stream.writer_id", "required"},
		{"zone not listed", []string{"CELLD_EXPORT_SINK=blob-stream", "CELLD_EXPORT_ZONES=a,b", "CELLD_ZONE=c"}, "blob_stream.writer_id", "none of blob_stream.zones"},
		{"writer not listed", []string{"CELLD_EXPORT_SINK=blob-stream", "CELLD_EXPORT_ZONES=a,b", "CELLD_ZONE=a", "CELLD_EXPORT_WRITER_ID=c"}, "blob_stream.writer_id", "none of blob_stream.zones"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			environ := append(onEnviron(), c.environ...)
			_, _, err := Load("", environ)
			if err == nil || !strings.Contains(err.Error(), c.key+": ") || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("on: got %v, want %s: ... %s", err, c.key, c.reason)
			}
			_, warnings, err := Load("", append(environ, "CELLD_EXPORT=0"))
			if err != nil {
				t.Errorf("off: %v", err)
			}
			staged := false
			for _, w := range warnings {
				staged = staged || w.Staged && w.Key == c.key && strings.Contains(w.Reason, c.reason)
			}
			if !staged {
				t.Errorf("off: no warning of what turning it on will find: %v", warnings)
			}
		})
	}
}

func TestOnWithNothingWrong(t *testing.T) {
	for name, more := range map[string][]string{
		"least":              nil,
		"a neighbour's name": {"EXPORTD_STATE=/w2", "CELLD_BUCKET=file:///w3"},
		"file buckets":       {"CELLD_BUCKET=file:///b", "CELLD_EXPORT_BUCKET=file:///b/x", "AWS_REGION="},
		"an endpoint":        {"S3_ENDPOINT=minio:9000", "AWS_REGION="},
		"limits equal":       {"CELLD_EXPORT_MAX_RECORD_BYTES=5", "CELLD_EXPORT_FLUSH_BYTES=5", "CELLD_EXPORT_QUEUE_BYTES=5", "EXPORTD_SPOOL_BYTES=5"},
		"other sinks' keys":  {"CELLD_EXPORT_WRITER_ID=x", "CELLD_EXPORT_TOPIC=a/b"},
	} {
		s, warnings, err := Load("", append(onEnviron(), more...))
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v, %v", name, warnings, err)
			continue
		}
		if !s.Export.Enabled {
			t.Errorf("%s: not enabled", name)
		}
	}
}

func TestOneMistakeIsOneProblem(t *testing.T) {
	for _, environ := range [][]string{
		{"CELLD_BUCKET=gs://x"},
		{"CELLD_EXPORT_QUEUE_BYTES=1MB"},
		{"EXPORTD_STATE=/w"},
		{"CELLD_EXPORT_SINK=kafkaa"},
	} {
		_, _, err := Load("", append(onEnviron(), environ...))
		problems, ok := err.(Problems)
		if !ok || len(problems) != 1 {
			t.Errorf("%s: %d problems: %v", environ, len(problems), err)
		}
	}
}

func TestDirectoriesAreComparedBehindLinks(t *testing.T) {
	root := t.TempDir()
	watch := filepath.Join(root, "watch")
	if err := os.Mkdir(watch, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(root, "link")
	if err := os.Symlink(watch, link); err != nil {
		t.Fatal(err)
	}
	_, _, err := Load("", append(onEnviron(), "CELLD_WATCH="+watch, "EXPORTD_STATE="+filepath.Join(link, "not", "yet")))
	if err == nil || !strings.Contains(err.Error(), "inside the directory of watch") {
		t.Errorf("got %v", err)
	}
}

func TestRelationsNameWhereTheValueIs(t *testing.T) {
	path := write(t, "watch: /w\nstate: /w\nnode: n\nbucket: s3://fleet\nregion: r\nexport:\n  enabled: true\n")
	_, _, err := Load(path, nil)
	want := path + ":2:8: state: the same directory as watch; allowed: two directories apart"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
