package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"celldexport/cmd/internal/cli"
	"celldexport/exporter"
	"celldexport/internal/config"
)

// connector tries to list a bucket.
type connector func(ctx context.Context, settings *config.Settings, bucket string) error

// brokerChecker asks the brokers of the sinks whether they would take records.
// It returns a line for each that does, and an error of all that do not.
type brokerChecker func(ctx context.Context, settings *config.Settings) ([]string, error)

func (a *app) checkConfigCommand() *cobra.Command {
	reach := false
	c := &cobra.Command{
		Use:   "check-config [--connect] [FILE]",
		Short: "Check settings and say everything that is wrong with them",
		Long: `check-config reads the settings as run does: FILE (or the file named by
EXPORTD_CONFIG), with the environment over it. It names every problem with
file, line, column and key. With the export off it also tells what would be
wrong once it is on. With --connect it looks into the watch directory, lists
the buckets, and asks the brokers of the kafka and blob-stream sinks; nothing
is written or sent. Brokers that do not answer are given up after 10 seconds.
` + exitHelp,
		Args: cli.AtMost(1),
		RunE: func(c *cobra.Command, args []string) error {
			file := cli.Lookup(a.environ, "EXPORTD_CONFIG")
			if len(args) > 0 {
				file = args[0]
			}
			return a.checkConfig(c.Context(), file, reach)
		},
	}
	c.Flags().BoolVar(&reach, "connect", false, "also look into the watch directory, list the buckets and ask the brokers")
	return c
}

func (a *app) checkConfig(ctx context.Context, file string, reach bool) error {
	settings, warnings, err := config.Load(file, a.environ)
	for _, w := range warnings {
		if w.Staged {
			fmt.Fprintln(a.stderr, "once the export is on: "+w.Error())
		} else {
			fmt.Fprintln(a.stderr, "warning: "+w.Error())
		}
	}
	if err != nil {
		// One line for each problem, as a compiler prints them.
		fmt.Fprintln(a.stderr, err.Error())
		return &cli.ExitError{Code: cli.Misuse}
	}
	if err := exporter.JudgeSinks(settings); err != nil {
		if settings.Export.Enabled {
			fmt.Fprintln(a.stderr, err.Error())
			return &cli.ExitError{Code: cli.Misuse}
		}
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintln(a.stderr, "once the export is on: "+strings.TrimSpace(line))
		}
	}
	if reach {
		if err := errors.Join(a.reach(ctx, settings), a.reachBrokers(ctx, settings)); err != nil {
			return err
		}
	}
	state := "off"
	if settings.Export.Enabled {
		state = "on"
	}
	_, err = fmt.Fprintf(a.stdout, "settings are valid, export is %s\n", state)
	return err
}

// reachBrokers says of each broker, or its topic, how it answers.
func (a *app) reachBrokers(ctx context.Context, settings *config.Settings) error {
	ctx, stop := context.WithTimeout(ctx, brokersTimeout)
	defer stop()
	lines, err := a.brokers(ctx, settings)
	for _, line := range lines {
		if _, failed := fmt.Fprintln(a.stdout, line); failed != nil {
			return failed
		}
	}
	return err
}

// reach tries what run will need. It tries everything before it fails.
func (a *app) reach(ctx context.Context, settings *config.Settings) error {
	var errs []error
	if settings.Watch != "" {
		if err := directory(settings.Watch); err != nil {
			errs = append(errs, fmt.Errorf("watch: %w", err))
		}
	}
	buckets := []string{settings.Bucket}
	if other := settings.ExportBucket(); other != settings.Bucket {
		buckets = append(buckets, other)
	}
	for _, bucket := range buckets {
		if bucket == "" {
			continue
		}
		if err := a.connect(ctx, settings, bucket); err != nil {
			errs = append(errs, fmt.Errorf("list %s: %w", bucket, err))
		}
	}
	return errors.Join(errs...)
}
