package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"celldexport/cmd/internal/cli"
	"celldexport/exporter"
	"celldexport/internal/config"
)

// runOptions are the flags of run.
type runOptions struct {
	file        string
	once        bool
	onceTimeout time.Duration
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run [--config FILE] [--once]",
		Short: "Export the changes of the node's cells",
		Long: `run follows the node's state directory and exports what changes, until it is
stopped. SIGTERM has it look once more, send what it holds and exit 0, within
20 seconds; what is left by then is logged and goes out at the next start. A
second one exits at once. With the export off it stays up and answers /livez.

With --once it exports what is present, waits until all of it is proven and
delivered, and exits. What stayed behind is named on stderr, one cell a line.
` + exitHelp,
		Example: `  exportd run --config /etc/exportd/config.yaml
  CELLD_EXPORT=1 exportd run --once --once-timeout 5m`,
		Args: cli.AtMost(0),
		RunE: func(c *cobra.Command, _ []string) error { return a.run(c.Context(), o) },
	}
	c.Flags().StringVar(&o.file, "config", cli.Lookup(a.environ, "EXPORTD_CONFIG"), "settings file (variable EXPORTD_CONFIG)")
	c.Flags().BoolVar(&o.once, "once", false, "export what is present and exit")
	c.Flags().DurationVar(&o.onceTimeout, "once-timeout", time.Minute, "how long --once waits for proof and delivery")
	return c
}

func (a *app) run(ctx context.Context, o runOptions) error {
	if o.onceTimeout <= 0 {
		return cli.Usage("--once-timeout %v: more than nothing is needed", o.onceTimeout)
	}
	settings, warnings, err := config.Load(o.file, a.environ)
	if err != nil {
		return err
	}
	logger := a.logger()
	for _, w := range warnings {
		if !w.Staged {
			logger.Warn("settings", "warning", w.Error())
		}
	}
	defer a.limitMemory(settings.Export.QueueBytes)()
	if o.once {
		return a.once(ctx, settings, logger, o.onceTimeout)
	}
	return a.serve(ctx, settings, logger)
}

// newRegistry holds what is reported whether the export is on or off.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "exportd_build_info",
		Help:        "The running program, always 1.",
		ConstLabels: prometheus.Labels{"version": cli.Version()},
	})
	build.Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// once exports what is present. With nothing to wait for, a watch directory
// that does not exist is a wrong setting.
func (a *app) once(ctx context.Context, settings *config.Settings, logger *slog.Logger, timeout time.Duration) error {
	if !settings.Export.Enabled {
		return cli.Usage("run --once: the export is off; turn it on by export.enabled or CELLD_EXPORT=1")
	}
	if err := directory(settings.Watch); err != nil {
		return &cli.ExitError{Code: cli.Misuse, Err: fmt.Errorf("watch: %w", err)}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var left []pending
	err := a.untilStopped(stop, logger, func() (err error) {
		left, err = a.exportOnce(ctx, settings, logger, timeout)
		return err
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("stopped before everything that is present was exported: %w", err)
	}
	if err != nil {
		return err
	}
	for _, p := range left {
		fmt.Fprintf(a.stderr, "%s: %s\n", p.Cell, p.Reason)
	}
	if len(left) > 0 {
		return &cli.ExitError{Code: exitPending, Err: fmt.Errorf("cells that were not finished: %d", len(left))}
	}
	return nil
}

// exportOnce returns what of the present could not be exported in time.
func (a *app) exportOnce(ctx context.Context, settings *config.Settings, logger *slog.Logger, timeout time.Duration) ([]pending, error) {
	// With a round in sight an unreachable bucket is waited for; here it ends
	// the program before anything is begun.
	if err := a.reach(ctx, settings); err != nil {
		return nil, err
	}
	e, err := a.newEngine(ctx, engineOptions{settings: settings, logger: logger, registry: newRegistry()})
	if err != nil {
		return nil, err
	}
	left, err := e.Once(ctx, timeout)
	return left, errors.Join(err, e.Close())
}

// directory refuses a path that is no directory.
func directory(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist", path)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no directory", path)
	}
	return nil
}

// serve runs the exporter and its HTTP server until a signal.
func (a *app) serve(ctx context.Context, settings *config.Settings, logger *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	registry := newRegistry()
	listener, err := net.Listen("tcp", settings.Listen)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	m := newMonitor(settings, registry)
	served := make(chan error, 1)
	server := m.server()
	go func() { served <- server.Serve(listener) }()
	logger.Info("exportd starts", "version", cli.Version(), "listen", listener.Addr().String(), "export", settings.Export.Enabled)

	err = a.untilStopped(stop, logger, func() error { return a.export(ctx, m, registry, logger) })
	if errors.Is(err, errAbandoned) {
		// It was asked to stop and has stopped; the log says how.
		err = nil
	}
	closeErr := server.Close()
	<-served
	if err = errors.Join(err, closeErr); err == nil {
		logger.Info("exportd has stopped")
	}
	return err
}

// export runs the exporter; with the export off it only waits. A start that
// is cut short by a signal has done nothing that the next one does not take
// up.
func (a *app) export(ctx context.Context, m *monitor, registry *prometheus.Registry, logger *slog.Logger) error {
	if !m.settings.Export.Enabled {
		<-ctx.Done()
		return nil
	}
	e, err := a.newEngine(ctx, engineOptions{settings: m.settings, logger: logger, registry: registry})
	if err != nil && ctx.Err() != nil {
		logger.Warn("stopped while starting; the next start begins anew", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	m.attach(e)
	err = e.Run(ctx)
	return errors.Join(err, e.Close())
}

// errAbandoned is returned for work that did not end though it was told to.
var errAbandoned = errors.New("what is under way does not end: left as it is")

// untilStopped waits for work. The first signal calls stop and goes on
// waiting, for as long as a stop may take; the second gives up on the work at
// once. What is given up is left as by a kill, which every start allows for.
func (a *app) untilStopped(stop func(), logger *slog.Logger, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	var late <-chan time.Time
	for {
		select {
		case err := <-done:
			return err
		case s := <-a.signals:
			if late != nil {
				return fmt.Errorf("second signal (%v): stopped without waiting", s)
			}
			timer := time.NewTimer(cmp.Or(a.stopTime, exporter.ShutdownTime))
			defer timer.Stop()
			late = timer.C
			logger.Info("stopping: sending what is held", "signal", s.String())
			stop()
		case <-late:
			logger.Error("the stop takes too long and is given up; what is left goes out at the next start")
			return errAbandoned
		}
	}
}
