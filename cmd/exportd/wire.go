package main

import (
	"context"
	"time"

	"celldexport/exporter"
	"celldexport/exporter/demo"
)

// newEngine starts the exporter.
func newEngine(ctx context.Context, o engineOptions) (engine, error) {
	e, err := exporter.New(ctx, exporter.Options{
		Settings: o.settings, Logger: o.logger, Registry: o.registry,
	})
	if err != nil {
		return nil, err
	}
	return exporting{e}, nil
}

// exporting fits the exporter to what this command asks of one.
type exporting struct{ *exporter.Exporter }

// Status is the exporter's account, ready for JSON.
func (e exporting) Status() any { return e.Exporter.Status() }

// runDemo runs the demo, each time with other traffic.
func runDemo(ctx context.Context, o demoOptions) (bool, error) {
	return demo.Run(ctx, demo.Options{
		Dir: o.Dir, Cells: o.Cells, Time: o.Time, Sink: o.Sink, Keep: o.Keep,
		Out: o.Out, Progress: o.Progress, Live: o.Live, Seed: uint64(time.Now().UnixNano()),
	})
}
