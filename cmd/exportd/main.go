// Command exportd is the sidecar: it reads a celld node's LTX files and
// exports the changes of its cells' databases.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"celldexport/exporter"
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	a := &app{
		stdout:         os.Stdout,
		stderr:         os.Stderr,
		stdoutTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		stderrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
		environ:        os.Environ(),
		signals:        signals,
		newEngine:      newEngine,
		demo:           runDemo,
		connect:        connect,
		brokers:        exporter.ReachBrokers,
	}
	os.Exit(a.main(context.Background(), os.Args[1:]))
}
