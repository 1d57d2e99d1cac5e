package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"celldexport/cmd/internal/cli"
	"celldexport/internal/config"
)

// connector tries to list a bucket.
type connector func(ctx context.Context, settings *config.Settings, bucket string) error

func (a *app) checkConfigCommand() *cobra.Command {
	reach := false
	c := &cobra.Command{
		Use:   "check-config [--connect] [FILE]",
		Short: "Check settings and say everything that is wrong with them",
		Long: `check-config reads the settings as run does: FILE (or the file named by
EXPORTD_CONFIG), with the environment over it. It names every problem with
file, line, column and key. With the export off it also tells what would be
wrong once it is on. With --connect it looks into the watch directory and
lists the buckets.
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
	c.Flags().BoolVar(&reach, "connect", false, "also look into the watch directory and list the buckets")
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
	if reach {
		if err := a.reach(ctx, settings); err != nil {
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
