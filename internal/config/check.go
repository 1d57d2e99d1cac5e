package config

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"celldexport/internal/celld"
)

// only reports whether text consists of ASCII letters, digits and the
// characters of extra.
func only(text, extra string) bool {
	for _, c := range text {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune(extra, c) {
			return false
		}
	}
	return true
}

// checkText refuses what no single-line name or path may hold.
func checkText(text string) error {
	const allowed = "one line of text without spaces at its ends"
	if strings.TrimSpace(text) != text {
		return refuse(allowed, "begins or ends with a space")
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return refuse(allowed, "holds a control character")
	}
	return nil
}

// checkNode accepts a node id. It is a part of object keys.
func checkNode(text string) error {
	const allowed = "1 to 128 ASCII letters, digits, -, _ or ., not starting with a dot"
	if len(text) > 128 || !only(text, "-_.") || text[0] == '.' {
		return refuse(allowed, "not a node id")
	}
	return nil
}

// checkZone accepts a zone or writer name.
func checkZone(text string) error {
	if len(text) > 128 || !only(text, ".-_") {
		return refuse("1 to 128 ASCII letters, digits, ., - or _", "not a zone name")
	}
	return nil
}

// checkClassName accepts the characters of a class, the part of a cell's
// name before its colon.
func checkClassName(text string) error {
	const allowed = "a class name of ASCII letters, digits, _, -, . or $"
	if len(text) > 255 || !only(text, "_-.$") {
		return refuse(allowed, "not a class name")
	}
	return nil
}

// checkClass accepts a class that may be exported.
func checkClass(text string) error {
	if celld.NeverExported(text) {
		return refuse("application classes, __D1Database, __KvNamespace",
			"queues, workflows and cron cells are never exported")
	}
	return checkClassName(text)
}

// checkSink accepts the name of a sink, built or not.
func checkSink(text string) error {
	switch text {
	case SinkBucket, SinkKafka, SinkBlobStream:
		return nil
	}
	return refuse("bucket, kafka, blob-stream", "not the name of a sink")
}

// checkAuth accepts a way to sign in to Kafka.
func checkAuth(text string) error {
	if text != AuthNone && text != AuthMSKIAM {
		return refuse("none, aws-msk-iam", "not a way to sign in")
	}
	return nil
}

const allowedBucket = "s3://NAME[/PREFIX] or file:///DIR"

// checkBucket accepts the address of a bucket.
func checkBucket(text string) error {
	if err := checkText(text); err != nil {
		return err
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return refuse(allowedBucket, "not the address of a bucket")
	}
	switch scheme {
	case "s3":
		return checkS3(rest)
	case "file":
		return checkFileBucket(rest)
	case "gs":
		return refuse(allowedBucket, "gs:// is not supported; use s3:// with the endpoint https://storage.googleapis.com and an HMAC key")
	case "az":
		return refuse(allowedBucket, "az:// is not supported; put an S3 gateway before the container and use s3:// with its endpoint")
	}
	return refuse(allowedBucket, "unknown scheme")
}

func checkS3(rest string) error {
	if strings.ContainsAny(rest, "@?#") {
		return refuse(allowedBucket, "a bucket's address holds no credentials and no options")
	}
	name, prefix, hasPrefix := strings.Cut(rest, "/")
	if len(name) < 3 || len(name) > 63 || !only(name, ".-_") {
		return refuse(allowedBucket, "a bucket's name is 3 to 63 ASCII letters, digits, dots, hyphens or underscores")
	}
	prefix = strings.TrimSuffix(prefix, "/")
	if !hasPrefix || prefix == "" {
		return nil
	}
	for part := range strings.SplitSeq(prefix, "/") {
		if part == "" || part == "." || part == ".." {
			return refuse(allowedBucket, "the prefix has a part that is empty, . or ..")
		}
	}
	return nil
}

func checkFileBucket(rest string) error {
	if !strings.HasPrefix(rest, "/") {
		return refuse(allowedBucket, "the directory of a file bucket is absolute: three slashes after file:")
	}
	for part := range strings.SplitSeq(rest, "/") {
		if part == ".." {
			return refuse(allowedBucket, "the directory has a part ..")
		}
	}
	return nil
}

// checkEndpoint accepts an object store's address, with or without scheme.
func checkEndpoint(text string) error {
	const allowed = "https://host[:port], http://host[:port] or host[:port]"
	address := text
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return refuse(allowed, "not an address")
	case u.Scheme != "http" && u.Scheme != "https":
		return refuse(allowed, "unknown scheme")
	case u.User != nil:
		return refuse(allowed, "the endpoint holds no credentials")
	case u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return refuse(allowed, "more or less than a host and a port")
	}
	if strings.HasSuffix(u.Host, ":") {
		return refuse(allowed, "the port is empty")
	}
	if port := u.Port(); port != "" {
		return checkPort(port, 1, allowed)
	}
	return nil
}

// checkRegion accepts a region's name.
func checkRegion(text string) error {
	if len(text) > 64 || !only(text, "-_") {
		return refuse("a region such as eu-central-1, or auto", "not a region")
	}
	return nil
}

func checkPort(text string, least int, allowed string) error {
	port, err := strconv.Atoi(text)
	if err != nil || port < least || port > 65535 || strconv.Itoa(port) != text {
		return refuse(allowed, "the port is not a number from %d to 65535", least)
	}
	return nil
}

// checkListen accepts a listening address. Port 0 lets the system choose.
func checkListen(text string) error {
	const allowed = "host:port or :port, such as 127.0.0.1:9464"
	host, port, err := net.SplitHostPort(text)
	if err != nil || strings.ContainsAny(host, " /@") {
		return refuse(allowed, "not a listening address")
	}
	return checkPort(port, 0, allowed)
}

// checkHostPort accepts a broker's address.
func checkHostPort(text string) error {
	const allowed = "host:port, such as kafka-0.kafka:9092"
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || strings.ContainsAny(host, " /@=") {
		return refuse(allowed, "not a broker's address")
	}
	return checkPort(port, 1, allowed)
}

const allowedBlobBroker = "NODE_ID=host:port, or one k8s://NAMESPACE/SERVICE alone"

// checkBlobBroker accepts one blob-stream broker or the place to find them.
func checkBlobBroker(text string) error {
	if rest, ok := strings.CutPrefix(text, "k8s://"); ok {
		namespace, service, ok := strings.Cut(rest, "/")
		if !ok || !isLabel(namespace) || !isLabel(service) {
			return refuse(allowedBlobBroker, "not a namespace and a service")
		}
		return nil
	}
	id, address, ok := strings.Cut(text, "=")
	if !ok || id == "" || strings.ContainsAny(id, " /:@") {
		return refuse(allowedBlobBroker, "not a broker")
	}
	if checkHostPort(address) != nil {
		return refuse(allowedBlobBroker, "not a broker's address and port (1 to 65535)")
	}
	return nil
}

// checkBlobBrokers accepts the list: ids once each, discovery alone.
func checkBlobBrokers(list []string) error {
	seen := make(map[string]bool, len(list))
	for _, one := range list {
		if strings.HasPrefix(one, "k8s://") && len(list) > 1 {
			return refuse(allowedBlobBroker, "k8s:// stands alone")
		}
		id, _, _ := strings.Cut(one, "=")
		if seen[id] {
			return refuse(allowedBlobBroker, "the broker id %q is listed twice", id)
		}
		seen[id] = true
	}
	return nil
}

// isLabel reports whether text is a DNS label (RFC 1123), which names of
// namespaces and services are.
func isLabel(text string) bool {
	return text != "" && len(text) <= 63 && only(text, "-") && strings.ToLower(text) == text &&
		text[0] != '-' && text[len(text)-1] != '-'
}

// checkTopic accepts a topic's name.
func checkTopic(text string) error {
	if err := checkText(text); err != nil {
		return err
	}
	if len(text) > 249 {
		return refuse("a topic of at most 249 bytes", "too long")
	}
	return nil
}

// checkZones accepts the list of zones.
func checkZones(list []string) error {
	if len(list) > maxZones {
		return refuse("at most 1024 zones", "%d zones", len(list))
	}
	return checkUnique(list)
}

// maxZones is the largest number of writers of a blob-stream topic.
const maxZones = 1024

// checkUnique refuses a list with a repeated item.
func checkUnique(list []string) error {
	seen := make(map[string]bool, len(list))
	for _, one := range list {
		if seen[one] {
			return refuse("each item once", "%q is listed twice", one)
		}
		seen[one] = true
	}
	return nil
}
