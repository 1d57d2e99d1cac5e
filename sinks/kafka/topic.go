package kafka

// Topic is what the brokers say of the topic.
type Topic struct {
	Name       string
	Partitions int
	// MaxMessageBytes is max.message.bytes, 0 when this client may not read
	// it; Needed is what it should be at least.
	MaxMessageBytes, Needed int64
	// Compacted says that of records with the same key only the last stays.
	Compacted bool
}
