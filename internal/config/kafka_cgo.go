//go:build cgo

package config

// kafkaBuilt says that this program contains the Kafka client.
const kafkaBuilt = true
