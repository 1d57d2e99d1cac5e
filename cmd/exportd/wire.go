package main

import (
	"context"
	"errors"
)

// newEngine starts the exporter.
func newEngine(context.Context, engineOptions) (engine, error) {
	return nil, errors.New("start the exporter: not part of this build")
}

// runDemo runs the demo.
func runDemo(context.Context, demoOptions) (bool, error) {
	return false, errors.New("run the demo: not part of this build")
}
