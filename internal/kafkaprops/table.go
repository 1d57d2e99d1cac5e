package kafkaprops

import "strings"

// property is one of librdkafka's.
type property struct {
	kind kind
	// topic properties may be written with "topic." before them.
	topic bool
	// as is the name that [Canonical] gives, "" for the property's own.
	as string
	// least and most bound a number.
	least, most int64
	// words are the values of an enum or of flags.
	words string
}

// kind is how librdkafka reads a value.
type kind uint8

const (
	text kind = iota
	boolean
	integer
	number // with a fraction
	enum
	flags
)

// Library is the version of librdkafka whose properties are known here.
const Library = "2.11.1"

// properties are those that rd_kafka_conf_properties_show lists, without the
// callbacks, which no file can set. What it does not list is for librdkafka's
// own tests; one such property has the client deliver to brokers that it makes
// up. Where a name is one of the client and one of topics, the first is meant
// unless "topic." stands before it.
var properties = map[string]property{
	"builtin.features":                                  {},
	"client.id":                                         {},
	"metadata.broker.list":                              {as: "bootstrap.servers"},
	"bootstrap.servers":                                 {},
	"message.max.bytes":                                 {kind: integer, least: 1000, most: 1000000000},
	"message.copy.max.bytes":                            {kind: integer, most: 1000000000},
	"receive.message.max.bytes":                         {kind: integer, least: 1000, most: 1<<31 - 1},
	"max.in.flight.requests.per.connection":             {kind: integer, least: 1, most: 1000000},
	"max.in.flight":                                     {kind: integer, as: "max.in.flight.requests.per.connection", least: 1, most: 1000000},
	"metadata.recovery.strategy":                        {kind: enum, words: "none rebootstrap"},
	"metadata.recovery.rebootstrap.trigger.ms":          {kind: integer, most: 1<<31 - 1},
	"topic.metadata.refresh.interval.ms":                {kind: integer, least: -1, most: 3600000},
	"metadata.max.age.ms":                               {kind: integer, least: 1, most: 86400000},
	"topic.metadata.refresh.fast.interval.ms":           {kind: integer, least: 1, most: 60000},
	"topic.metadata.refresh.fast.cnt":                   {kind: integer, most: 1000},
	"topic.metadata.refresh.sparse":                     {kind: boolean},
	"topic.metadata.propagation.max.ms":                 {kind: integer, most: 3600000},
	"topic.blacklist":                                   {},
	"debug":                                             {kind: flags, words: "generic broker topic metadata feature queue msg protocol cgrp security fetch interceptor plugin consumer admin eos mock assignor conf telemetry all"},
	"socket.timeout.ms":                                 {kind: integer, least: 10, most: 300000},
	"socket.blocking.max.ms":                            {kind: integer, least: 1, most: 60000},
	"socket.send.buffer.bytes":                          {kind: integer, most: 100000000},
	"socket.receive.buffer.bytes":                       {kind: integer, most: 100000000},
	"socket.keepalive.enable":                           {kind: boolean},
	"socket.nagle.disable":                              {kind: boolean},
	"socket.max.fails":                                  {kind: integer, most: 1000000},
	"broker.address.ttl":                                {kind: integer, most: 86400000},
	"broker.address.family":                             {kind: enum, words: "any v4 v6"},
	"socket.connection.setup.timeout.ms":                {kind: integer, least: 1000, most: 1<<31 - 1},
	"connections.max.idle.ms":                           {kind: integer, most: 1<<31 - 1},
	"reconnect.backoff.jitter.ms":                       {kind: integer, most: 3600000},
	"reconnect.backoff.ms":                              {kind: integer, most: 3600000},
	"reconnect.backoff.max.ms":                          {kind: integer, most: 3600000},
	"statistics.interval.ms":                            {kind: integer, most: 86400000},
	"enabled_events":                                    {kind: integer, most: 1<<31 - 1},
	"log_level":                                         {kind: integer, most: 7},
	"log.queue":                                         {kind: boolean},
	"log.thread.name":                                   {kind: boolean},
	"enable.random.seed":                                {kind: boolean},
	"log.connection.close":                              {kind: boolean},
	"internal.termination.signal":                       {kind: integer, most: 128},
	"api.version.request":                               {kind: boolean},
	"api.version.request.timeout.ms":                    {kind: integer, least: 1, most: 300000},
	"api.version.fallback.ms":                           {kind: integer, most: 604800000},
	"broker.version.fallback":                           {},
	"allow.auto.create.topics":                          {kind: boolean},
	"security.protocol":                                 {kind: enum, words: "plaintext ssl sasl_plaintext sasl_ssl"},
	"ssl.cipher.suites":                                 {},
	"ssl.curves.list":                                   {},
	"ssl.sigalgs.list":                                  {},
	"ssl.key.location":                                  {},
	"ssl.key.password":                                  {},
	"ssl.key.pem":                                       {},
	"ssl.certificate.location":                          {},
	"ssl.certificate.pem":                               {},
	"ssl.ca.location":                                   {},
	"https.ca.location":                                 {},
	"https.ca.pem":                                      {},
	"ssl.ca.pem":                                        {},
	"ssl.ca.certificate.stores":                         {},
	"ssl.crl.location":                                  {},
	"ssl.keystore.location":                             {},
	"ssl.keystore.password":                             {},
	"ssl.providers":                                     {},
	"ssl.engine.location":                               {},
	"ssl.engine.id":                                     {},
	"enable.ssl.certificate.verification":               {kind: boolean},
	"ssl.endpoint.identification.algorithm":             {kind: enum, words: "none https"},
	"sasl.mechanisms":                                   {as: "sasl.mechanism"},
	"sasl.mechanism":                                    {},
	"sasl.kerberos.service.name":                        {},
	"sasl.kerberos.principal":                           {},
	"sasl.kerberos.kinit.cmd":                           {},
	"sasl.kerberos.keytab":                              {},
	"sasl.kerberos.min.time.before.relogin":             {kind: integer, most: 86400000},
	"sasl.username":                                     {},
	"sasl.password":                                     {},
	"sasl.oauthbearer.config":                           {},
	"enable.sasl.oauthbearer.unsecure.jwt":              {kind: boolean},
	"sasl.oauthbearer.method":                           {kind: enum, words: "default oidc"},
	"sasl.oauthbearer.client.id":                        {},
	"sasl.oauthbearer.client.credentials.client.id":     {as: "sasl.oauthbearer.client.id"},
	"sasl.oauthbearer.client.credentials.client.secret": {as: "sasl.oauthbearer.client.secret"},
	"sasl.oauthbearer.client.secret":                    {},
	"sasl.oauthbearer.scope":                            {},
	"sasl.oauthbearer.extensions":                       {},
	"sasl.oauthbearer.token.endpoint.url":               {},
	"sasl.oauthbearer.grant.type":                       {kind: enum, words: "client_credentials urn:ietf:params:oauth:grant-type:jwt-bearer"},
	"sasl.oauthbearer.assertion.algorithm":              {kind: enum, words: "RS256 ES256"},
	"sasl.oauthbearer.assertion.private.key.file":       {},
	"sasl.oauthbearer.assertion.private.key.passphrase": {},
	"sasl.oauthbearer.assertion.private.key.pem":        {},
	"sasl.oauthbearer.assertion.file":                   {},
	"sasl.oauthbearer.assertion.claim.aud":              {},
	"sasl.oauthbearer.assertion.claim.exp.seconds":      {kind: integer, least: 1, most: 1<<31 - 1},
	"sasl.oauthbearer.assertion.claim.iss":              {},
	"sasl.oauthbearer.assertion.claim.jti.include":      {kind: boolean},
	"sasl.oauthbearer.assertion.claim.nbf.seconds":      {kind: integer, most: 1<<31 - 1},
	"sasl.oauthbearer.assertion.claim.sub":              {},
	"sasl.oauthbearer.assertion.jwt.template.file":      {},
	"plugin.library.paths":                              {},
	"group.id":                                          {},
	"group.instance.id":                                 {},
	"partition.assignment.strategy":                     {},
	"session.timeout.ms":                                {kind: integer, least: 1, most: 3600000},
	"heartbeat.interval.ms":                             {kind: integer, least: 1, most: 3600000},
	"group.protocol.type":                               {},
	"group.protocol":                                    {kind: enum, words: "classic consumer"},
	"group.remote.assignor":                             {},
	"coordinator.query.interval.ms":                     {kind: integer, least: 1, most: 3600000},
	"max.poll.interval.ms":                              {kind: integer, least: 1, most: 86400000},
	"enable.auto.commit":                                {kind: boolean},
	"auto.commit.interval.ms":                           {kind: integer, most: 86400000},
	"enable.auto.offset.store":                          {kind: boolean},
	"queued.min.messages":                               {kind: integer, least: 1, most: 10000000},
	"queued.max.messages.kbytes":                        {kind: integer, least: 1, most: 2097151},
	"fetch.wait.max.ms":                                 {kind: integer, most: 300000},
	"fetch.queue.backoff.ms":                            {kind: integer, most: 300000},
	"fetch.message.max.bytes":                           {kind: integer, least: 1, most: 1000000000},
	"max.partition.fetch.bytes":                         {kind: integer, as: "fetch.message.max.bytes", least: 1, most: 1000000000},
	"fetch.max.bytes":                                   {kind: integer, most: 2147483135},
	"fetch.min.bytes":                                   {kind: integer, least: 1, most: 100000000},
	"fetch.error.backoff.ms":                            {kind: integer, most: 300000},
	"offset.store.method":                               {kind: enum, words: "none file broker"},
	"isolation.level":                                   {kind: enum, words: "read_uncommitted read_committed"},
	"enable.partition.eof":                              {kind: boolean},
	"check.crcs":                                        {kind: boolean},
	"client.rack":                                       {},
	"transactional.id":                                  {},
	"transaction.timeout.ms":                            {kind: integer, least: 1000, most: 1<<31 - 1},
	"enable.idempotence":                                {kind: boolean},
	"enable.gapless.guarantee":                          {kind: boolean},
	"queue.buffering.max.messages":                      {kind: integer, most: 1<<31 - 1},
	"queue.buffering.max.kbytes":                        {kind: integer, least: 1, most: 1<<31 - 1},
	"queue.buffering.max.ms":                            {kind: number, as: "linger.ms", most: 900000},
	"linger.ms":                                         {kind: number, most: 900000},
	"message.send.max.retries":                          {kind: integer, as: "retries", most: 1<<31 - 1},
	"retries":                                           {kind: integer, most: 1<<31 - 1},
	"retry.backoff.ms":                                  {kind: integer, least: 1, most: 300000},
	"retry.backoff.max.ms":                              {kind: integer, least: 1, most: 300000},
	"queue.buffering.backpressure.threshold":            {kind: integer, least: 1, most: 1000000},
	"compression.codec":                                 {kind: enum, as: "compression.type", words: "none gzip snappy lz4 zstd"},
	"compression.type":                                  {kind: enum, words: "none gzip snappy lz4 zstd"},
	"batch.num.messages":                                {kind: integer, least: 1, most: 1000000},
	"batch.size":                                        {kind: integer, least: 1, most: 1<<31 - 1},
	"delivery.report.only.error":                        {kind: boolean},
	"sticky.partitioning.linger.ms":                     {kind: integer, most: 900000},
	"client.dns.lookup":                                 {kind: enum, words: "use_all_dns_ips resolve_canonical_bootstrap_servers_only"},
	"enable.metrics.push":                               {kind: boolean},
	"request.required.acks":                             {kind: integer, topic: true, as: "acks", least: -1, most: 1000},
	"acks":                                              {kind: integer, topic: true, least: -1, most: 1000},
	"request.timeout.ms":                                {kind: integer, topic: true, least: 1, most: 900000},
	"message.timeout.ms":                                {kind: integer, topic: true, most: 1<<31 - 1},
	"delivery.timeout.ms":                               {kind: integer, topic: true, as: "message.timeout.ms", most: 1<<31 - 1},
	"queuing.strategy":                                  {kind: enum, topic: true, words: "fifo lifo"},
	"produce.offset.report":                             {kind: boolean, topic: true},
	"partitioner":                                       {topic: true},
	"topic.compression.codec":                           {kind: enum, topic: true, as: "topic.compression.type", words: "none gzip snappy lz4 zstd inherit"},
	"topic.compression.type":                            {kind: enum, topic: true, words: "none gzip snappy lz4 zstd inherit"},
	"compression.level":                                 {kind: integer, topic: true, least: -1, most: 12},
	"auto.commit.enable":                                {kind: boolean, topic: true},
	"topic.enable.auto.commit":                          {kind: boolean, topic: true, as: "auto.commit.enable"},
	"topic.auto.commit.interval.ms":                     {kind: integer, topic: true, least: 10, most: 86400000},
	"auto.offset.reset":                                 {kind: enum, topic: true, words: "smallest earliest beginning largest latest end error"},
	"offset.store.path":                                 {topic: true},
	"offset.store.sync.interval.ms":                     {kind: integer, topic: true, least: -1, most: 86400000},
	"topic.offset.store.method":                         {kind: enum, topic: true, words: "file broker"},
	"consume.callback.max.messages":                     {kind: integer, topic: true, most: 1000000},
}

// find is the property of a name, and the name by which it is kept here.
func find(name string) (p property, canonical string, ok bool) {
	if p, ok = properties[name]; !ok {
		short, cut := strings.CutPrefix(name, topicPrefix)
		if !cut || strings.HasPrefix(short, topicPrefix) {
			return property{}, "", false
		}
		if p = properties[short]; !p.topic {
			return property{}, "", false
		}
		name = short
	}
	if p.as != "" {
		name = p.as
	}
	return p, name, true
}

// topicPrefix may stand before the properties of topics.
const topicPrefix = "topic."

// Canonical is the one name for a property that librdkafka knows by several;
// a name that it does not know is returned as it is.
func Canonical(name string) string {
	if _, canonical, ok := find(name); ok {
		return canonical
	}
	return name
}
