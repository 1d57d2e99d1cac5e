package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"celldexport/internal/config"
)

// The exit codes, which every help text repeats.
const (
	exitOK         = 0
	exitFailure    = 1
	exitUsage      = 2
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

	newEngine engineMaker
	demo      demoFunc
	connect   connector
}

// exitError is an error that ends the program with a code of its own. A nil
// err says nothing more: everything has been said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is an error of what was asked for, not of doing it.
func usageError(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// main runs the program and returns its exit code.
func (a *app) main(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	code := exitCode(err)
	var exit *exitError
	if err != nil && !(errors.As(err, &exit) && exit.err == nil) {
		fmt.Fprintln(a.stderr, "exportd: "+err.Error())
	}
	return code
}

// exitCode is the one place that turns an error into an exit code.
func exitCode(err error) int {
	var exit *exitError
	var problems config.Problems
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &problems):
		return exitUsage
	default:
		return exitFailure
	}
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
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError("unknown command %q; see exportd --help", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := c.Help(); err != nil {
				return err
			}
			return &exitError{code: exitUsage}
		},
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError("%w; see %s --help", err, c.CommandPath())
	})
	root.AddCommand(a.runCommand(), a.checkConfigCommand(), a.demoCommand(), a.statusCommand(), a.versionCommand())
	return root
}

// arguments makes a wrong number of arguments a usage error.
func arguments(most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > most {
			return usageError("%s takes at most %d arguments, not %d", c.CommandPath(), most, len(args))
		}
		return nil
	}
}

// lookup is the value of an environment variable, "" when it is not set.
func (a *app) lookup(name string) string {
	found := ""
	for _, one := range a.environ {
		if key, text, ok := strings.Cut(one, "="); ok && key == name {
			found = text
		}
	}
	return found
}

// logger writes text for a reader at a terminal and JSON for anything else.
func (a *app) logger() *slog.Logger {
	if a.stderrTerminal {
		return slog.New(slog.NewTextHandler(a.stderr, nil))
	}
	return slog.New(slog.NewJSONHandler(a.stderr, nil))
}
