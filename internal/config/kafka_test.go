package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The file of client properties is checked with the settings, its problems
// are told with its own lines, and no value of it is shown that may be secret.
func TestKafkaPropertiesAreChecked(t *testing.T) {
	if !kafkaBuilt {
		t.Skip("this build has no kafka sink, so its settings cannot be valid")
	}
	path := filepath.Join(t.TempDir(), "kafka.properties")
	text := "# ours\r\nacks = 1\r\nsasl.password=a=b#c\r\nnonsense hunter2\r\nmessage.max.bytes=1100000\r\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{
		"CELLD_WATCH=/w", "EXPORTD_STATE=/s", "CELLD_NODE=n", "CELLD_BUCKET=s3://fleet", "CELLD_EXPORT=1", "AWS_REGION=r",
		"CELLD_EXPORT_SINK=kafka", "CELLD_EXPORT_KAFKA_BROKERS=k:9092", "CELLD_EXPORT_KAFKA_PROPERTIES=" + path,
	}
	_, _, err := Load("", environ)
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != 3 {
		t.Fatalf("got %v, want three problems", err)
	}
	for i, want := range []string{":2: kafka.properties: acks: ", ":4: kafka.properties: the line has no =", ":5: kafka.properties: message.max.bytes: 1100000 is too small"} {
		if got := problems[i].Error(); !strings.HasPrefix(got, path+want) {
			t.Errorf("problem %d is %q, want %s%s...", i, got, path, want)
		}
	}
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "a=b#c") {
		t.Errorf("a value that may be secret is shown: %v", err)
	}
	environ[4] = "CELLD_EXPORT=0"
	_, warnings, err := Load("", environ)
	if err != nil || len(warnings) != 3 || !warnings[0].Staged {
		t.Errorf("off: %v and %d warnings, want three of what turning it on will find", err, len(warnings))
	}
	environ[4] = "CELLD_EXPORT=1"
	if err := os.WriteFile(path, []byte("sasl.password=a=b#c\nsecurity.protocol=SASL_SSL\nsasl.mechanisms=PLAIN\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load("", environ); err != nil {
		t.Errorf("a valid file: %v", err)
	}
	if _, _, err := Load("", append(environ, "CELLD_EXPORT_KAFKA_AUTH=aws-msk-iam")); err == nil || !strings.Contains(err.Error(), "OAUTHBEARER") {
		t.Errorf("with IAM: %v, want the mechanism refused", err)
	}
	if _, _, err := Load("", append(environ, "CELLD_EXPORT_KAFKA_PROPERTIES="+path+".none")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a missing file: %v", err)
	}
}
