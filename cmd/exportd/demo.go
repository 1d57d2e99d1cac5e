package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"celldexport/cmd/internal/cli"
	"celldexport/internal/config"
)

// demoOptions is what the demo is asked to do.
type demoOptions struct {
	// Dir is where it works, "" for a temporary directory.
	Dir string
	// Cells is the number of cells, Time how long they are written to.
	Cells int
	Time  time.Duration
	// Sink is where the export goes.
	Sink string
	// Keep leaves databases, bucket and the consumer's rows in place.
	Keep bool
	// Out takes the report and the result, Progress the progress; Live is
	// set when Progress is a terminal and a line may be rewritten.
	Out, Progress io.Writer
	Live          bool
}

// demoFunc runs the demo. equal is false when the consumer's copy differs
// from the source; what differs has then been printed.
type demoFunc func(ctx context.Context, options demoOptions) (equal bool, err error)

func (a *app) demoCommand() *cobra.Command {
	o := demoOptions{Out: a.stdout, Progress: a.stderr, Live: a.stderrTerminal}
	seconds := 20
	c := &cobra.Command{
		Use:   "demo [--sink bucket|kafka] [--dir DIR] [--cells N] [--seconds S] [--keep]",
		Short: "Show the whole way on a simulated node: changes, export, consumer, comparison",
		Long: `demo needs no setup and no network. It writes to SQLite databases as celld's
cells do, with schema changes, evictions, wakes and one takeover whose old
owner goes on writing, exports the changes into a bucket that is a directory
(or to a Kafka broker inside this process), applies the records as a consumer
does, and compares every table with its source.
` + exitHelp,
		Example: `  exportd demo
  exportd demo --sink kafka
  exportd demo --cells 8 --seconds 20 --dir /tmp/demo --keep`,
		Args: cli.AtMost(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Cells < 1 || seconds < 1 {
				return cli.Usage("demo: --cells and --seconds are 1 or more")
			}
			if o.Sink != config.SinkBucket && o.Sink != config.SinkKafka {
				return cli.Usage("demo: --sink is bucket or kafka")
			}
			o.Time = time.Duration(seconds) * time.Second
			return a.runDemo(c.Context(), o)
		},
	}
	c.Flags().StringVar(&o.Sink, "sink", config.SinkBucket, "where the export goes: bucket or kafka")
	c.Flags().StringVar(&o.Dir, "dir", "", "work in this directory (default: a temporary one)")
	c.Flags().IntVar(&o.Cells, "cells", 4, "number of cells")
	c.Flags().IntVar(&seconds, "seconds", 10, "how long the cells are written to")
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave databases, bucket and the consumer's rows in place")
	return c
}

func (a *app) runDemo(ctx context.Context, o demoOptions) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	equal := false
	err := a.untilStopped(stop, a.logger(), func() error {
		var err error
		equal, err = a.demo(ctx, o)
		return err
	})
	if err != nil {
		return err
	}
	if !equal {
		return &cli.ExitError{Code: exitDifference}
	}
	return nil
}
