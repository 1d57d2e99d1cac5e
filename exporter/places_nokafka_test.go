//go:build !cgo

package exporter_test

import "testing"

// addKafkaPlace adds nothing: this build has no librdkafka.
func addKafkaPlace(map[string]func(t *testing.T) *place) {}
