// Command celld-export is the operator's tool beside exportd: it works on the
// fleet bucket and on what was exported, from any machine.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"celldexport/audit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := &app{stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(), open: openStore, decode: audit.Parquet}
	code := a.main(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
