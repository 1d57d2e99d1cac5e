package kafkaprops

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Headroom is what a message may need beside the record: the key, the headers
// and the envelope. The limits of client and topic are to be at least this
// much above the largest record.
const Headroom = 64 << 10

// Rules are what a properties file is judged by.
type Rules struct {
	// MaxRecordBytes is the size above which records are split.
	MaxRecordBytes int64
	// IAM is set when signing in is done with AWS credentials, so that the
	// file must not say otherwise.
	IAM bool
}

// Check judges properties one by one, whatever later ones say: a forbidden
// value is refused also when another line would win over it.
func (r Rules) Check(list []Property) Errors {
	var problems Errors
	for _, p := range list {
		if reason, allowed := r.judge(p); reason != "" {
			problems = append(problems, &Error{Line: p.Line, Name: p.Name, Reason: reason, Allowed: allowed})
		}
	}
	if p := r.silentKerberos(list); p != nil {
		problems = append(problems, p)
	}
	return problems
}

// judge says what is wrong with a property, "" when nothing is.
func (r Rules) judge(p Property) (reason, allowed string) {
	kind, name, known := find(p.Name)
	switch {
	case !known:
		return "librdkafka has no such property that a file can set", "the names of librdkafka's configuration"
	case strings.HasPrefix(name, "sasl.kerberos."):
		return "Kerberos (GSSAPI) is not supported", allowedMechanisms
	}
	for _, judge := range []func(name, value string) (reason, allowed string){r.judgeDelivery, r.judgeSignIn} {
		if reason, allowed := judge(name, p.Value); reason != "" {
			return reason, allowed
		}
	}
	if name == "acks" {
		return "", "" // a number or a word, and judged
	}
	if reason, allowed = kind.refuse(p.Value); reason != "" && Secret(name) {
		reason = "librdkafka does not take the value"
	}
	return reason, allowed
}

// judgeDelivery refuses what would change how records are delivered.
func (r Rules) judgeDelivery(name, value string) (reason, allowed string) {
	switch name {
	case "acks":
		return refuseAcks(value)
	case "enable.idempotence":
		return mustBe(value, true, "without idempotence a retry duplicates and reorders records")
	case "enable.gapless.guarantee":
		return mustBe(value, true, "a refused record must stop those behind it")
	case "delivery.report.only.error":
		return mustBe(value, false, "a record counts as delivered by its report")
	case "allow.auto.create.topics":
		return mustBe(value, false, "the topic is never created by the sink")
	case "message.timeout.ms":
		return "the time a record may take is export.retry_ms (CELLD_EXPORT_RETRY_MS)", "nothing"
	case "message.max.bytes":
		return r.refuseSize(value)
	case "partitioner":
		if !slices.Contains(strings.Fields(partitioners), value) {
			return fmt.Sprintf("with %q it is not known that a stream stays in one partition, or in which", value), strings.ReplaceAll(partitioners, " ", ", ")
		}
	case "queuing.strategy":
		if !strings.EqualFold(value, "fifo") {
			return "records would be reordered", "fifo"
		}
	case "transactional.id":
		return "the sink uses no transactions", "nothing"
	}
	return "", ""
}

// partitioners are librdkafka's that go by the key.
const partitioners = "consistent_random consistent murmur2_random murmur2 fnv1a_random fnv1a"

const allowedMechanisms = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, or kafka.auth: aws-msk-iam"

// judgeSignIn refuses Kerberos, and with IAM what would sign in otherwise.
func (r Rules) judgeSignIn(name, value string) (reason, allowed string) {
	const iam = "kafka.auth is aws-msk-iam"
	switch name {
	case "sasl.mechanism":
		if r.IAM && !strings.EqualFold(value, "OAUTHBEARER") {
			return iam, "OAUTHBEARER"
		}
		if value == "" {
			return "without a mechanism librdkafka takes Kerberos (GSSAPI), which is not supported", allowedMechanisms
		}
		if strings.EqualFold(value, "GSSAPI") {
			return "Kerberos (GSSAPI) is not supported", allowedMechanisms
		}
		if !oneOf("PLAIN SCRAM-SHA-256 SCRAM-SHA-512 OAUTHBEARER", value) {
			return fmt.Sprintf("%q is no mechanism that librdkafka has", value), allowedMechanisms
		}
	case "security.protocol":
		if r.IAM && !strings.EqualFold(value, "SASL_SSL") {
			return iam, "SASL_SSL"
		}
	case "sasl.oauthbearer.method":
		if r.IAM && !strings.EqualFold(value, "default") {
			return iam, "default"
		}
	case "enable.sasl.oauthbearer.unsecure.jwt":
		if r.IAM {
			return mustBe(value, false, iam)
		}
	}
	return "", ""
}

// silentKerberos finds a file that asks for SASL and names no mechanism:
// librdkafka then takes Kerberos.
func (r Rules) silentKerberos(list []Property) *Error {
	var sasl *Property
	for i, p := range list {
		switch Canonical(p.Name) {
		case "sasl.mechanism":
			return nil
		case "security.protocol":
			sasl = nil
			if len(p.Value) >= 4 && strings.EqualFold(p.Value[:4], "sasl") {
				sasl = &list[i]
			}
		}
	}
	if sasl == nil || r.IAM {
		return nil
	}
	return &Error{Line: sasl.Line, Name: sasl.Name,
		Reason:  "no sasl.mechanism is set, so librdkafka would take Kerberos (GSSAPI), which is not supported",
		Allowed: "with sasl.mechanism=" + allowedMechanisms}
}

// refuseAcks accepts the spellings of all replicas in sync: librdkafka takes
// the word, and numbers.
func refuseAcks(value string) (reason, allowed string) {
	if n, ok := Number(value); strings.EqualFold(value, "all") || ok && n == -1 {
		return "", ""
	}
	return fmt.Sprintf("%q is less than all: a record counts as delivered only when every in-sync replica has it", value), "all, -1"
}

// mustBe accepts librdkafka's spellings of one truth value.
func mustBe(value string, want bool, why string) (reason, allowed string) {
	if got, known := truth(value); known && got == want {
		return "", ""
	}
	return fmt.Sprintf("it may not be %q: %s", value, why), strconv.FormatBool(want)
}

func (r Rules) refuseSize(value string) (reason, allowed string) {
	least := r.MaxRecordBytes + Headroom
	allowed = fmt.Sprintf("at least export.max_record_bytes plus 64 KiB, which is %d", least)
	n, ok := Number(value)
	switch {
	case !ok:
		return fmt.Sprintf("%q is not a number of bytes", value), allowed
	case n < least:
		return fmt.Sprintf("%d is too small", n), allowed
	}
	return "", ""
}
