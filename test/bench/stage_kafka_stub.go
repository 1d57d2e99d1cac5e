//go:build !cgo

package main

import "context"

// kafkaStage says that this program was built without the client.
func kafkaStage(context.Context, *bench) ([]Line, error) {
	return []Line{{Stage: "kafka", What: "not measured", Note: "librdkafka needs a build with cgo"}}, nil
}
