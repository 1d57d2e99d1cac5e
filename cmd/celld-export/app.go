package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"celldexport/audit"
	"celldexport/cmd/internal/cli"
	"celldexport/internal/config"
	"celldexport/internal/objstore"
)

const exitHelp = `
EXIT STATUS
  0  done
  1  failure
  2  wrong usage or wrong settings`

// app is the program with everything of the outside world injected.
type app struct {
	stdout, stderr io.Writer
	environ        []string
	// open opens a bucket by its address.
	open   func(ctx context.Context, settings *config.Settings, bucket string) (objstore.Store, error)
	decode audit.Decoder
}

// main runs the program and returns its exit code.
func (a *app) main(ctx context.Context, args []string) int {
	root := &cobra.Command{
		Use:     "celld-export",
		Short:   "Look into and look after what was exported",
		Long:    "celld-export works on the fleet bucket and on what exportd has written.\n" + exitHelp,
		Example: "  celld-export inspect --bucket s3://fleet --node node-a --hour 2026/11/30/02 --summary",
		Version: cli.Version(),
	}
	cli.Prepare(root, a.stdout, a.stderr)
	root.AddCommand(a.inspectCommand(), a.versionCommand())
	root.SetArgs(args)
	return cli.Report(a.stderr, "celld-export", root.ExecuteContext(ctx))
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the program's version",
		Args:  cli.AtMost(0),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.stdout, "celld-export %s %s %s/%s\n", cli.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
