//go:build !cgo

package config

// kafkaBuilt says that this program contains the Kafka client, which needs
// cgo.
const kafkaBuilt = false
