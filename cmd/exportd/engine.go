package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celldexport/exporter"
	"celldexport/internal/config"
)

// engine is the exporter as this command uses it.
type engine interface {
	// Run exports until ctx ends, then stops reading, sends what it holds
	// and returns nil.
	Run(ctx context.Context) error
	// Once exports what is present. It returns what stayed behind when
	// timeout has passed.
	Once(ctx context.Context, timeout time.Duration) ([]pending, error)
	// Status is the exporter's part of /state.
	Status() any
	// Unready is why the export does not do its work, "" when it does.
	Unready() string
	// Ticked is when the loop last came round, or last moved inside a round.
	Ticked() time.Time
	Close() error
}

// pending is a cell that --once could not finish, and why.
type pending = exporter.Pending

type engineOptions struct {
	settings *config.Settings
	logger   *slog.Logger
	registry *prometheus.Registry
}

type engineMaker func(ctx context.Context, options engineOptions) (engine, error)
