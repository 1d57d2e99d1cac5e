//go:build !cgo

package main

import (
	"context"
	"fmt"

	"celldexport/sinks"
)

// kafkaStage says that this program was built without the client.
func kafkaStage(context.Context, *bench) ([]Line, error) {
	return []Line{{Stage: "kafka", What: "not measured", Note: withoutCgo}}, nil
}

const withoutCgo = "librdkafka needs a build with cgo"

func newKafkaSink(string) (sinks.Sink, error) {
	return nil, fmt.Errorf("%w: %s", errNotMeasured, withoutCgo)
}
