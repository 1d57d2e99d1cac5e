// Package cli holds what the commands have in common: how an error becomes a
// message and an exit code.
package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"celldexport/internal/config"
)

// The exit codes that mean the same in every command.
const (
	OK = 0
	// Failure is an error while doing what was asked.
	Failure = 1
	// Misuse is an error in what was asked: arguments or settings.
	Misuse = 2
)

// ExitError ends a command with a code of its own. With a nil Err nothing
// more is printed: everything has been said.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Usage is an error in what was asked for.
func Usage(format string, args ...any) error {
	return &ExitError{Code: Misuse, Err: fmt.Errorf(format, args...)}
}

// Report prints an error, if there is one and it has not been printed, and
// returns the exit code. It is the one place where errors become codes.
func Report(stderr io.Writer, command string, err error) int {
	var exit *ExitError
	var problems config.Problems
	switch {
	case err == nil:
		return OK
	case errors.As(err, &exit) && exit.Err == nil:
		return exit.Code
	}
	fmt.Fprintln(stderr, command+": "+err.Error())
	switch {
	case exit != nil:
		return exit.Code
	case errors.As(err, &problems):
		return Misuse
	default:
		return Failure
	}
}

// Prepare makes a root command print nothing by itself, and its flag errors
// name the command and the option.
func Prepare(root *cobra.Command, stdout, stderr io.Writer) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		text := err.Error()
		if option, ok := strings.CutPrefix(text, "flag needs an argument: "); ok {
			text = option + " needs a value"
		}
		return Usage("%s; see %s --help", text, c.CommandPath())
	})
	root.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := ""
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			hint = ", did you mean " + strings.Join(near, " or ") + "?"
		}
		return Usage("unknown command %q%s; see %s --help", args[0], hint, c.CommandPath())
	}
	root.RunE = func(c *cobra.Command, _ []string) error {
		if err := c.Help(); err != nil {
			return err
		}
		return &ExitError{Code: Misuse}
	}
}

// AtMost makes too many arguments an error of usage, which names the first
// that is too many.
func AtMost(most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > most {
			return Usage("unexpected argument %q; see %s --help", args[most], c.CommandPath())
		}
		return nil
	}
}

// Lookup is the value of an environment variable in a list as os.Environ
// gives it, "" when it is not set.
func Lookup(environ []string, name string) string {
	found := ""
	for _, one := range environ {
		if key, text, ok := strings.Cut(one, "="); ok && key == name {
			found = text
		}
	}
	return found
}
