package main

import "context"

// kafkaStage stands for a stage that is measured where its broker is.
func kafkaStage(context.Context, *bench) ([]Line, error) {
	return []Line{{
		Stage: "kafka", What: "not measured", Goal: "<= 1.15 x a bare Produce loop",
		Note: "needs a broker; the sink's own benchmarks have one",
	}}, nil
}
