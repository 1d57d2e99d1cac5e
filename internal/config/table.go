package config

import (
	"strconv"
	"time"
)

// settings is the table of everything that can be set, in the order of the
// file.
func settings() []setting {
	return append(append(nodeSettings(), exportSettings()...), sinkSettings()...)
}

func nodeSettings() []setting {
	return []setting{
		textSetting("watch", "CELLD_WATCH", func(s *Settings) *string { return &s.Watch }, checkText),
		textSetting("state", "EXPORTD_STATE", func(s *Settings) *string { return &s.State }, checkText),
		textSetting("node", "CELLD_NODE", func(s *Settings) *string { return &s.Node }, checkNode),
		textSetting("bucket", "CELLD_BUCKET", func(s *Settings) *string { return &s.Bucket }, checkBucket),
		textSetting("endpoint", "S3_ENDPOINT", func(s *Settings) *string { return &s.Endpoint }, checkEndpoint),
		textSetting("region", "AWS_REGION", func(s *Settings) *string { return &s.Region }, checkRegion),
		textSetting("listen", "EXPORTD_LISTEN", func(s *Settings) *string { return &s.Listen }, checkListen),
		textSetting("script", "EXPORTD_SCRIPT", func(s *Settings) *string { return &s.Script }, checkText),
	}
}

func exportSettings() []setting {
	return []setting{
		enabledSetting(),
		listSetting("export.sinks", "CELLD_EXPORT_SINK", func(s *Settings) *[]string { return &s.Export.Sinks }, checkSink, checkUnique),
		listSetting("export.classes", "CELLD_EXPORT_CLASSES", func(s *Settings) *[]string { return &s.Export.Classes }, checkClass, checkUnique),
		tablesSetting(),
		textSetting("export.bucket", "CELLD_EXPORT_BUCKET", func(s *Settings) *string { return &s.Export.Bucket }, checkBucket),
		sizeSetting("export.max_tx_bytes", "CELLD_EXPORT_MAX_TX_BYTES", func(s *Settings) *int64 { return &s.Export.MaxTxBytes }),
		sizeSetting("export.max_record_bytes", "CELLD_EXPORT_MAX_RECORD_BYTES", func(s *Settings) *int64 { return &s.Export.MaxRecordBytes }),
		sizeSetting("export.queue_bytes", "CELLD_EXPORT_QUEUE_BYTES", func(s *Settings) *int64 { return &s.Export.QueueBytes }),
		sizeSetting("export.spool_bytes", "EXPORTD_SPOOL_BYTES", func(s *Settings) *int64 { return &s.Export.SpoolBytes }),
		sizeSetting("export.cache_bytes", "EXPORTD_CACHE_BYTES", func(s *Settings) *int64 { return &s.Export.CacheBytes }),
		millisSetting("export.flush_ms", "CELLD_EXPORT_FLUSH_MS", func(s *Settings) *time.Duration { return &s.Export.Flush }),
		sizeSetting("export.flush_bytes", "CELLD_EXPORT_FLUSH_BYTES", func(s *Settings) *int64 { return &s.Export.FlushBytes }),
		retentionSetting(),
		textSetting("export.topic", "CELLD_EXPORT_TOPIC", func(s *Settings) *string { return &s.Export.Topic }, checkTopic),
		millisSetting("export.retry_ms", "CELLD_EXPORT_RETRY_MS", func(s *Settings) *time.Duration { return &s.Export.Retry }),
		reconcileSetting(),
	}
}

func sinkSettings() []setting {
	anyList := func([]string) error { return nil }
	return []setting{
		listSetting("kafka.brokers", "CELLD_EXPORT_KAFKA_BROKERS", func(s *Settings) *[]string { return &s.Kafka.Brokers }, checkHostPort, anyList),
		textSetting("kafka.properties", "CELLD_EXPORT_KAFKA_PROPERTIES", func(s *Settings) *string { return &s.Kafka.Properties }, checkText),
		textSetting("kafka.auth", "CELLD_EXPORT_KAFKA_AUTH", func(s *Settings) *string { return &s.Kafka.Auth }, checkAuth),
		listSetting("blob_stream.brokers", "CELLD_EXPORT_BROKERS", func(s *Settings) *[]string { return &s.BlobStream.Brokers }, checkBlobBroker, checkBlobBrokers),
		partitionsSetting(),
		listSetting("blob_stream.zones", "CELLD_EXPORT_ZONES", func(s *Settings) *[]string { return &s.BlobStream.Zones }, checkZone, checkZones),
		textSetting("blob_stream.zone", "CELLD_ZONE", func(s *Settings) *string { return &s.BlobStream.Zone }, checkZone),
		textSetting("blob_stream.writer_id", "CELLD_EXPORT_WRITER_ID", func(s *Settings) *string { return &s.BlobStream.WriterID }, checkZone),
	}
}

func enabledSetting() setting {
	return setting{
		key: "export.enabled", variable: "CELLD_EXPORT", form: boolean,
		parse: func(s *Settings, v value) []error {
			on, off, allowed := "true", "false", "true, false"
			if v.plain {
				on, off, allowed = "1", "0", "0, 1"
			}
			if v.text != on && v.text != off {
				return []error{refuse(allowed, "neither on nor off")}
			}
			s.Export.Enabled = v.text == on
			return nil
		},
		show: func(s *Settings) any { return s.Export.Enabled },
	}
}

func tablesSetting() setting {
	return setting{
		key: "export.deny_tables", variable: "CELLD_EXPORT_TABLES", form: list,
		parse: func(s *Settings, v value) []error {
			tables := make([]Table, len(v.items))
			errs := make([]error, 0)
			for i, item := range v.items {
				table, err := parseTable(item)
				if err != nil {
					errs = append(errs, &itemError{index: i, err: err})
				}
				tables[i] = table
			}
			if len(errs) > 0 {
				return errs
			}
			return store(&s.Export.DenyTables, tables, checkUnique(v.items))
		},
		show: func(s *Settings) any { return append([]Table{}, s.Export.DenyTables...) },
	}
}

func retentionSetting() setting {
	return setting{
		key: "export.retention", variable: "CELLD_EXPORT_RETENTION", form: scalar,
		parse: func(s *Settings, v value) []error {
			r, err := parseRetention(v.text)
			return store(&s.Export.Retention, r, err)
		},
		show: func(s *Settings) any { return s.Export.Retention.String() },
	}
}

func reconcileSetting() setting {
	return setting{
		key: "export.reconcile", variable: "CELLD_EXPORT_RECONCILE", form: scalar,
		parse: func(s *Settings, v value) []error {
			d, err := parseInterval(v.text)
			return store(&s.Export.Reconcile, d, err)
		},
		// In seconds every interval is exact.
		show: func(s *Settings) any { return strconv.FormatInt(int64(s.Export.Reconcile/time.Second), 10) + "s" },
	}
}

func partitionsSetting() setting {
	return setting{
		key: "blob_stream.partitions", variable: "CELLD_EXPORT_PARTITIONS", form: scalar,
		parse: func(s *Settings, v value) []error {
			// In the file 0 is how the absence of a count is written.
			if v.text == "0" && !v.plain {
				s.BlobStream.Partitions = 0
				return nil
			}
			n, err := parseCount(v.text, 1<<32-1, allowedCount)
			return store(&s.BlobStream.Partitions, uint32(n), err)
		},
		show: func(s *Settings) any { return s.BlobStream.Partitions },
	}
}
