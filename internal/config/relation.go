package config

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"celldexport/internal/kafkaprops"
)

// relation is a rule between settings: check returns what is wrong, nil when
// nothing is. The first key is where the problem is reported.
type relation struct {
	keys  []string
	check func(s *Settings) error
}

// relations judges the rules between settings: as problems when the export is
// on, as warnings of what would be wrong once it is. Rules over a value that
// is itself wrong are left out: what it was meant to be is not known.
func (l *loader) relations() {
	if l.broken {
		return
	}
	for _, rule := range relations() {
		if slices.ContainsFunc(rule.keys, func(key string) bool { return l.bad[key] }) {
			continue
		}
		err := rule.check(l.settings)
		if err == nil {
			continue
		}
		var inFile Problems
		if !errors.As(err, &inFile) {
			inFile = Problems{problemOf(err)}
		}
		for _, p := range inFile {
			p.Key = rule.keys[0]
			if p.Place == (Place{}) {
				p.Place = l.places[p.Key]
			}
			if l.settings.Export.Enabled {
				l.problem(p)
			} else {
				l.warnings = append(l.warnings, Warning{Problem: p, Staged: true})
			}
		}
	}
}

func relations() []relation {
	rules := []relation{
		required("watch", "CELLD_WATCH", func(s *Settings) string { return s.Watch }),
		required("state", "EXPORTD_STATE", func(s *Settings) string { return s.State }),
		required("node", "CELLD_NODE", func(s *Settings) string { return s.Node }),
		required("bucket", "CELLD_BUCKET", func(s *Settings) string { return s.Bucket }),
	}
	rules = append(rules, relation{[]string{"region", "endpoint", "bucket", "export.bucket"}, regionAtAmazon})
	rules = append(rules, directoryRules()...)
	rules = append(rules, sizeRules()...)
	rules = append(rules, relation{[]string{"export.sinks"}, sinkInBuild})
	rules = append(rules, kafkaRules()...)
	return append(rules, blobStreamRules()...)
}

// required is the rule that a setting has no default.
func required(key, variable string, get func(*Settings) string) relation {
	return relation{[]string{key}, func(s *Settings) error {
		if get(s) == "" {
			return refuse("", "required with the export on; set it in the file or by %s", variable)
		}
		return nil
	}}
}

// regionAtAmazon refuses a bucket at Amazon S3, which no endpoint means, of
// which the region is not known.
func regionAtAmazon(s *Settings) error {
	amazon := s.Endpoint == "" && (strings.HasPrefix(s.Bucket, "s3://") || strings.HasPrefix(s.Export.Bucket, "s3://"))
	if amazon && (s.Region == "" || s.Region == "auto") {
		return refuse("", "required at Amazon S3; set the bucket's region in the file or by AWS_REGION, or at another store the endpoint by S3_ENDPOINT")
	}
	return nil
}

// sinkInBuild refuses a sink that this program does not contain.
func sinkInBuild(s *Settings) error {
	if s.HasSink(SinkKafka) && !kafkaBuilt {
		return refuse("", "the kafka sink is not in this build: it needs librdkafka, so build with CGO_ENABLED=1 and a C compiler")
	}
	return nil
}

func sizeRules() []relation {
	atMost := func(key string, get func(*Settings) int64, limitKey string, limit func(*Settings) int64) relation {
		return relation{[]string{key, limitKey}, func(s *Settings) error {
			if get(s) > limit(s) {
				return refuse(fmt.Sprintf("at most %s, which is %d", limitKey, limit(s)), "%d is too large", get(s))
			}
			return nil
		}}
	}
	record := func(s *Settings) int64 { return s.Export.MaxRecordBytes }
	flush := func(s *Settings) int64 { return s.Export.FlushBytes }
	queue := func(s *Settings) int64 { return s.Export.QueueBytes }
	spool := func(s *Settings) int64 { return s.Export.SpoolBytes }
	return []relation{
		atMost("export.max_record_bytes", record, "export.queue_bytes", queue),
		atMost("export.flush_bytes", flush, "export.queue_bytes", queue),
		atMost("export.max_record_bytes", record, "export.spool_bytes", spool),
	}
}

// directoryRules keep what is written apart from what is read: the node's
// tree, the exporter's own directory, and buckets that are directories.
func directoryRules() []relation {
	watch := func(s *Settings) string { return s.Watch }
	state := func(s *Settings) string { return s.State }
	fleet := func(s *Settings) string { return fileBucket(s.Bucket) }
	export := func(s *Settings) string { return fileBucket(s.Export.Bucket) }
	return []relation{
		apart("state", state, "watch", watch),
		apart("bucket", fleet, "watch", watch),
		apart("bucket", fleet, "state", state),
		apart("export.bucket", export, "watch", watch),
		apart("export.bucket", export, "state", state),
	}
}

func apart(key string, one func(*Settings) string, otherKey string, other func(*Settings) string) relation {
	return relation{[]string{key, otherKey}, func(s *Settings) error {
		a, b := realPath(one(s)), realPath(other(s))
		switch {
		case a == "" || b == "":
			return nil
		case a == b:
			return refuse("two directories apart", "the same directory as %s", otherKey)
		case inside(a, b):
			return refuse("two directories apart", "inside the directory of %s", otherKey)
		case inside(b, a):
			return refuse("two directories apart", "the directory of %s is inside it", otherKey)
		}
		return nil
	}}
}

// fileBucket is the directory of a file:// bucket, "" for other buckets.
func fileBucket(address string) string {
	directory, ok := strings.CutPrefix(address, "file://")
	if !ok {
		return ""
	}
	return directory
}

// realPath is a path with the links of its existing part followed, so that
// two names of one directory compare equal.
func realPath(path string) string {
	if path == "" {
		return ""
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return filepath.Clean(path)
	}
	rest := ""
	for at := full; ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if at == filepath.Dir(at) {
			return full
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

func inside(path, directory string) bool {
	relative, err := filepath.Rel(directory, path)
	return err == nil && relative != ".." && !strings.HasPrefix(relative, ".."+string(filepath.Separator))
}

// kafkaRules hold when the kafka sink is named.
func kafkaRules() []relation {
	when := func(check func(*Settings) error) func(*Settings) error {
		return func(s *Settings) error {
			if !s.HasSink(SinkKafka) {
				return nil
			}
			return check(s)
		}
	}
	return []relation{
		{[]string{"kafka.brokers", "export.sinks"}, when(func(s *Settings) error {
			if len(s.Kafka.Brokers) == 0 {
				return refuse("", "required with the kafka sink; set it in the file or by CELLD_EXPORT_KAFKA_BROKERS")
			}
			return nil
		})},
		{[]string{"export.topic", "export.sinks"}, when(func(s *Settings) error {
			topic := s.Export.Topic
			if !only(topic, "._-") || topic == "." || topic == ".." {
				return refuse("1 to 249 ASCII letters, digits, ., _ or -", "not a Kafka topic")
			}
			return nil
		})},
		{[]string{"kafka.properties", "kafka.auth", "export.max_record_bytes", "export.sinks"}, when(checkProperties)},
	}
}

// checkProperties judges the file of client properties. Its problems lie in
// that file.
func checkProperties(s *Settings) error {
	rules := kafkaprops.Rules{MaxRecordBytes: s.Export.MaxRecordBytes, IAM: s.Kafka.Auth == AuthMSKIAM}
	_, err := kafkaprops.Load(s.Kafka.Properties, rules)
	var list kafkaprops.Errors
	if !errors.As(err, &list) {
		return err
	}
	problems := make(Problems, len(list))
	for i, one := range list {
		p := Problem{Reason: one.Reason, Allowed: one.Allowed}
		if one.Name != "" {
			p.Reason = one.Name + ": " + p.Reason
		}
		if p.Place.File = one.File; one.Line > 0 {
			p.Place.Line = one.Line
		}
		problems[i] = p
	}
	return problems
}

// blobStreamRules hold when the blob-stream sink is named.
func blobStreamRules() []relation {
	when := func(check func(*BlobStream) error) func(*Settings) error {
		return func(s *Settings) error {
			if !s.HasSink(SinkBlobStream) {
				return nil
			}
			return check(&s.BlobStream)
		}
	}
	return []relation{
		{[]string{"blob_stream.brokers", "export.sinks"}, when(func(b *BlobStream) error {
			if len(b.Brokers) == 0 {
				return refuse("", "required with the blob-stream sink; set it in the file or by CELLD_EXPORT_BROKERS")
			}
			return nil
		})},
		{[]string{"blob_stream.partitions", "blob_stream.zones", "export.sinks"}, when(checkPartitions)},
		{[]string{"blob_stream.writer_id", "blob_stream.zone", "blob_stream.zones", "export.sinks"}, when(checkWriter)},
		{[]string{"export.max_record_bytes", "export.sinks"}, func(s *Settings) error {
			if s.HasSink(SinkBlobStream) && s.Export.MaxRecordBytes > maxBlobRecord {
				return refuse(fmt.Sprintf("at most %d", maxBlobRecord), "blob-stream brokers take no request above 16 MiB")
			}
			return nil
		}},
	}
}

const (
	// maxBlobRecord leaves room in a request for what goes with a record.
	maxBlobRecord = 15 << 20
	// maxPartitions bounds the work of distributing a writer's partitions over
	// the brokers, which every change of them asks for.
	maxPartitions = 1 << 20
)

func checkPartitions(b *BlobStream) error {
	if b.Partitions == 0 {
		return refuse("", "required with the blob-stream sink; set it in the file or by CELLD_EXPORT_PARTITIONS")
	}
	if b.Partitions > maxPartitions {
		return refuse(fmt.Sprintf("at most %d", maxPartitions), "%d partitions are too many", b.Partitions)
	}
	writers := uint64(max(1, len(b.Zones)))
	if uint64(b.Partitions)*writers > math.MaxUint32 {
		return refuse(fmt.Sprintf("at most %d", math.MaxUint32/writers), "%d partitions of %d writers are too many", b.Partitions, writers)
	}
	return nil
}

// checkWriter finds the writer this node produces as.
func checkWriter(b *BlobStream) error {
	if len(b.Zones) == 0 {
		if b.WriterID != "" {
			return refuse("", "set without blob_stream.zones")
		}
		return nil
	}
	writer, from := b.WriterID, "blob_stream.writer_id"
	if writer == "" {
		writer, from = b.Zone, "blob_stream.zone"
	}
	switch {
	case writer == "":
		return refuse("", "with blob_stream.zones this or blob_stream.zone is required")
	case !slices.Contains(b.Zones, writer):
		return refuse(strings.Join(b.Zones, ", "), "%s %q is none of blob_stream.zones", from, writer)
	}
	return nil
}
