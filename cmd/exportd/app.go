package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"celldexport/cmd/internal/cli"
)

// The exit codes beside those of every command.
const (
	exitDifference = 3
	exitPending    = 4
)

const exitHelp = `
EXIT STATUS
  0  done
  1  failure
  2  wrong usage or wrong settings
  3  demo: the consumer's copy differs from the source
  4  run --once: something stayed unproven, undelivered or in error`

// app is the program with everything of the outside world injected.
type app struct {
	stdout, stderr                 io.Writer
	stdoutTerminal, stderrTerminal bool
	environ                        []string
	// signals carries SIGTERM and interrupts; the first stops in order, the
	// second at once.
	signals <-chan os.Signal
	// stopTime replaces exporter.ShutdownTime, after which a stop is given up.
	stopTime time.Duration

	newEngine engineMaker
	demo      demoFunc
	connect   connector
	brokers   brokerChecker
}

// main runs the program and returns its exit code.
func (a *app) main(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	return cli.Report(a.stderr, "exportd", root.ExecuteContext(ctx))
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "exportd",
		Short: "Export the changes of a celld node's databases as certified records",
		Long: `exportd reads the LTX files of a celld node and exports what changed in its
cells' databases, row by row, with records that certify completeness.
` + exitHelp,
		Example: `  exportd demo
  exportd check-config /etc/exportd/config.yaml
  exportd run --config /etc/exportd/config.yaml`,
		Version: cli.Version(),
	}
	cli.Prepare(root, a.stdout, a.stderr)
	root.AddCommand(a.runCommand(), a.checkConfigCommand(), a.demoCommand(), a.statusCommand(), a.versionCommand())
	return root
}

// logger writes text for a reader at a terminal and JSON for anything else.
func (a *app) logger() *slog.Logger {
	if a.stderrTerminal {
		return slog.New(slog.NewTextHandler(a.stderr, nil))
	}
	return slog.New(slog.NewJSONHandler(a.stderr, nil))
}
