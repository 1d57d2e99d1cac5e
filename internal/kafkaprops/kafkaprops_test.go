package kafkaprops

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	text := "\uFEFF# comment\r\n! comment\r\n\r\n  security.protocol = SASL_SSL \r\nsasl.password=a=b#c\r\n" +
		"\tsasl.username=who is it\nempty=\n  # indented comment\nlast=1"
	got, problems := Parse([]byte(text))
	want := []Property{
		{"security.protocol", "SASL_SSL", 4}, {"sasl.password", "a=b#c", 5}, {"sasl.username", "who is it", 6},
		{"empty", "", 7}, {"last", "1", 9},
	}
	if diff := cmp.Diff(want, got); diff != "" || len(problems) > 0 {
		t.Errorf("%v\n%s", problems, diff)
	}
}

func TestParseTellsEveryBadLineAndShowsNone(t *testing.T) {
	_, problems := Parse([]byte("hunter2\nok=1\n=hunter2\ntwo words=hunter2\nx=hunter2\x00\ny=\xff"))
	var lines []int
	for _, p := range problems {
		lines = append(lines, p.Line)
	}
	if diff := cmp.Diff([]int{1, 3, 4, 5, 6}, lines); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(problems.Error(), "hunter2") {
		t.Errorf("a line is shown: %v", problems)
	}
}

// Every line of the first list is refused wherever it stands, every line of
// the second one is taken.
func TestRules(t *testing.T) {
	const record = 1 << 20
	plain, iam := Rules{MaxRecordBytes: record}, Rules{MaxRecordBytes: record, IAM: true}
	refused := map[string][]string{
		"below all": {"acks=0", " acks = 1", "acks=2", "acks=-2", "acks=0x1", "acks=", "acks=none", "request.required.acks=1", "request.required.acks = 0",
			"topic.acks=1", "topic.request.required.acks=0", "acks=-0b1", "acks=-0_1", "acks=-1x", "acks=4294967295", "acks=\u00a01"},
		"idempotence": {"enable.idempotence=false", "enable.idempotence=FALSE", "enable.idempotence=False", "enable.idempotence=f",
			"enable.idempotence=F", "enable.idempotence=0", "enable.idempotence=no", "enable.idempotence=off", "enable.idempotence="},
		"gapless": {"enable.gapless.guarantee=false", "enable.gapless.guarantee=0"},
		"reports": {"delivery.report.only.error=true", "delivery.report.only.error=TRUE", "delivery.report.only.error=t", "delivery.report.only.error=1", "delivery.report.only.error=yes"},
		"topics":  {"allow.auto.create.topics=true", "allow.auto.create.topics=True", "allow.auto.create.topics=1", "allow.auto.create.topics=T"},
		"timeout": {"message.timeout.ms=1", "message.timeout.ms=0", "message.timeout.ms=30000", "delivery.timeout.ms=30000", "message.timeout.ms=",
			"topic.message.timeout.ms=1000", "topic.delivery.timeout.ms=1000"},
		"size": {"message.max.bytes=1100000", "message.max.bytes=1114111", "message.max.bytes=0x10FFFF", "message.max.bytes=1m",
			"message.max.bytes=1114112x", "message.max.bytes=", "message.max.bytes=-1",
			"message.max.bytes=2000_000", "message.max.bytes=4294969296", "message.max.bytes=010000000", "message.max.bytes=0b111111111111111111111",
			"message.max.bytes=0o10000000", "message.max.bytes=+2000000", "message.max.bytes=2e6", "message.max.bytes=2000000 #"},
		"kerberos": {"sasl.mechanism=GSSAPI", "sasl.mechanisms=gssapi", "sasl.kerberos.keytab=/x", "sasl.kerberos.service.name=kafka",
			"security.protocol=SASL_SSL", "security.protocol=sasl_plaintext", "security.protocol=SASL_SSL\nsasl.mechanism="},
		"order": {"partitioner=random", "partitioner=Random", "topic.partitioner=random", "partitioner=", "partitioner=MURMUR2",
			"transactional.id=x", "queuing.strategy=lifo", "topic.queuing.strategy=LIFO"},
		"not ours": {"go.delivery.reports=false", "go.batch.producer=true", "{topic}.acks=1", "default.topic.config=x"},
		"unknown": {"no.such.property=1", "ACKS=all", "Acks=all", "topic.topic.acks=all", "topic.client.id=x", "topic.linger.ms=5", "topic.=1",
			"test.mock.num.brokers=1", "log_cb=x", "opaque=x"},
		"values": {"compression.type=foo", "topic.compression.type=foo", "compression.codec=3", "linger.ms=5ms", "linger.ms=1_0", "linger.ms=-1", "linger.ms=0x5", "linger.ms=nan", "linger.ms=900001",
			"queue.buffering.max.kbytes=0", "queue.buffering.max.messages=1_000", "batch.size=2147483648", "retries=", "socket.keepalive.enable=yes",
			"security.protocol=tls", "sasl.mechanism=FOO", "sasl.mechanisms=PLAIN,GSSAPI", "debug=all,everything", "max.in.flight=0x", "reconnect.backoff.max.ms=00"},
	}
	for name, lines := range refused {
		for _, line := range lines {
			for _, rules := range []Rules{plain, iam} {
				if rules.IAM && strings.Contains(strings.ToLower(line), "security.protocol=sasl_ssl") {
					continue // with IAM it is what must be
				}
				if got := check(t, rules, line); len(got) == 0 {
					t.Errorf("%s: %q is taken with %+v", name, line, rules)
				}
			}
			// A later line does not mend it.
			if got := check(t, plain, line+"\nacks=all\nenable.idempotence=true\nmessage.max.bytes=2000000"); len(got) == 0 {
				t.Errorf("%s: %q is taken when a later line says otherwise", name, line)
			}
		}
	}
	for _, line := range []string{
		"security.protocol=SSL", "security.protocol=PLAINTEXT", "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN",
		"sasl.mechanisms=SCRAM-SHA-512", "sasl.oauthbearer.method=oidc", "sasl.oauthbearer.method=OIDC",
		"enable.sasl.oauthbearer.unsecure.jwt=true", "enable.sasl.oauthbearer.unsecure.jwt=1", "enable.sasl.oauthbearer.unsecure.jwt=T",
	} {
		if len(check(t, iam, line)) == 0 {
			t.Errorf("with IAM %q is taken", line)
		}
	}
	for _, line := range []string{
		"acks=all", "acks=-1", "acks=ALL", "request.required.acks=all", "enable.idempotence=true", "enable.idempotence=TRUE", "enable.idempotence=t", "enable.idempotence=1",
		"delivery.report.only.error=false", "delivery.report.only.error=0", "allow.auto.create.topics=F", "message.max.bytes=1114112", "message.max.bytes=0x110000",
		"compression.type=zstd", "linger.ms=50", "ssl.ca.location=/etc/ca.pem", "batch.size=100000", "partitioner=murmur2_random", "client.id=x",
		"topic.acks=all", "topic.request.required.acks=-1", "topic.partitioner=fnv1a", "queuing.strategy=FIFO", "topic.compression.type=zstd", "topic.compression.codec=inherit",
		"topic.metadata.refresh.interval.ms=-1", "linger.ms=0.5", "queue.buffering.max.ms=0", "debug=broker, +topic,-msg,", "compression.type=LZ4", "max.in.flight=0X5", "group.id=shared",
		"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=p",
		"security.protocol=SASL_PLAINTEXT\nsasl.mechanisms=SCRAM-SHA-256", "sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.method=oidc", "security.protocol=SSL", "sasl.mechanism=scram-sha-512",
	} {
		if got := check(t, plain, line); len(got) > 0 {
			t.Errorf("%q is refused: %v", line, got)
		}
	}
	for _, line := range []string{
		"security.protocol=SASL_SSL", "security.protocol=sasl_ssl", "sasl.mechanism=OAUTHBEARER", "sasl.mechanisms=oauthbearer", "sasl.oauthbearer.method=default",
		"enable.sasl.oauthbearer.unsecure.jwt=false", "enable.sasl.oauthbearer.unsecure.jwt=0", "ssl.ca.location=/x", "compression.type=zstd",
	} {
		if got := check(t, iam, line); len(got) > 0 {
			t.Errorf("with IAM %q is refused: %v", line, got)
		}
	}
}

// One property has one name, however it is written, so that none stands twice
// among those that librdkafka is given.
func TestCanonical(t *testing.T) {
	for name, want := range map[string]string{
		"acks": "acks", "topic.acks": "acks", "request.required.acks": "acks", "topic.request.required.acks": "acks",
		"compression.codec": "compression.type", "topic.compression.codec": "topic.compression.type",
		"topic.delivery.timeout.ms": "message.timeout.ms", "topic.metadata.refresh.sparse": "topic.metadata.refresh.sparse",
		"no.such.property": "no.such.property", "topic.client.id": "topic.client.id",
	} {
		if got := Canonical(name); got != want {
			t.Errorf("%s is kept as %s, not %s", name, got, want)
		}
	}
	for name, p := range properties {
		if c := Canonical(name); Canonical(c) != c {
			t.Errorf("%s is kept as %s, and that as %s", name, c, Canonical(c))
		}
		if p.most != 0 != (p.kind == integer || p.kind == number) || p.words != "" != (p.kind == enum || p.kind == flags) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func check(t *testing.T, rules Rules, text string) Errors {
	t.Helper()
	list, problems := Parse([]byte(text))
	if len(problems) > 0 {
		t.Fatalf("%q: %v", text, problems)
	}
	return rules.Check(list)
}

func TestLoadTellsEverythingAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kafka.properties")
	text := "acks=1\r\nnonsense\r\nsasl.password=hunter2\r\nmessage.timeout.ms=5\r\nsasl.mechanism=GSSAPI\r\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path, Rules{MaxRecordBytes: 1000})
	var list Errors
	if !errors.As(err, &list) {
		t.Fatal(err)
	}
	want := []string{path + ":1: acks: ", path + ":2: the line has no =", path + ":4: message.timeout.ms: ", path + ":5: sasl.mechanism: Kerberos"}
	if len(list) != len(want) {
		t.Fatalf("%d problems: %v", len(list), err)
	}
	for i, p := range list {
		if !strings.HasPrefix(p.Error(), want[i]) {
			t.Errorf("problem %d: %q, want %q...", i, p, want[i])
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the password is shown: %v", err)
	}
	if _, err := Load(path+".none", Rules{}); err == nil || !strings.Contains(err.Error(), path+".none: read the properties file") {
		t.Errorf("missing file: %v", err)
	}
	if list, err := Load("", Rules{}); err != nil || len(list) != 0 {
		t.Errorf("no file: %v %v", list, err)
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big, Rules{}); err == nil {
		t.Error("a file of more than a megabyte is read")
	}
}

// Whatever a file holds, nothing panics, every problem has a line, and what
// was parsed reads back from name=value lines.
func TestParseProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte()).Draw(t, "text")
		list, problems := Parse(text)
		for _, p := range problems {
			if p.Line < 1 {
				t.Fatalf("problem without a line: %v", p)
			}
		}
		var again strings.Builder
		for _, p := range list {
			again.WriteString(p.Name + "=" + p.Value + "\n")
		}
		back, more := Parse([]byte(again.String()))
		if len(more) > 0 || len(back) != len(list) {
			t.Fatalf("%q reads back as %v, %v", again.String(), back, more)
		}
		for i := range back {
			if back[i].Name != list[i].Name || back[i].Value != list[i].Value {
				t.Fatalf("%+v reads back as %+v", list[i], back[i])
			}
		}
		Rules{MaxRecordBytes: 1}.Check(list)
	})
}

func TestSecretNames(t *testing.T) {
	for _, name := range []string{"sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config", "ssl.keystore.password"} {
		if !Secret(name) {
			t.Errorf("%s is shown", name)
		}
	}
	for _, name := range []string{"acks", "client.id", "bootstrap.servers", "linger.ms"} {
		if Secret(name) {
			t.Errorf("%s is hidden", name)
		}
	}
}
