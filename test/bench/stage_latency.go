package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"celldexport/exporter"
	"celldexport/internal/celldsim"
	"celldexport/sinks"
)

// quickRounds is the interval of rounds when a sink takes records as they
// come.
const quickRounds = 250 * time.Millisecond

// latencyStage commits now and then and measures how long each commit takes
// to be acknowledged, by the bucket and by brokers in other processes.
func latencyStage(ctx context.Context, b *bench) (lines []Line, err error) {
	trial := latencyTrial{flush: time.Second, commits: 400}
	if b.flags.short {
		trial.flush, trial.commits = 500*time.Millisecond, 150
	}
	for _, place := range []struct {
		name   string
		broker string
		sink   func(address string) (sinks.Sink, error)
	}{
		{"file bucket", "", nil},
		{"kafka", "kafka", newKafkaSink},
		{"blob-stream", "blobstream", newBlobstreamSink},
	} {
		trial.place, trial.dir, trial.rounds, trial.sink = place.name, filepath.Join(b.dir, place.name), trial.flush, nil
		var at *broker
		if place.broker != "" {
			if at, err = startBroker(ctx, place.broker); err != nil {
				return nil, err
			}
			trial.rounds = quickRounds
			trial.sink, err = place.sink(at.address)
		}
		var more []Line
		switch {
		case errors.Is(err, errNotMeasured):
			more, err = []Line{{Stage: "latency", What: "not measured", On: place.name, Note: err.Error()}}, nil
		case err == nil:
			more, err = trial.run(ctx)
		}
		if at != nil {
			err = errors.Join(err, at.close())
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", place.name, err)
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

// latencyTrial is commits on their way to one place.
type latencyTrial struct {
	place, dir    string
	flush, rounds time.Duration
	commits       int
	// sink is measured, nil for the bucket sink.
	sink sinks.Sink
}

func (l *latencyTrial) run(ctx context.Context) ([]Line, error) {
	r, err := newRig(ctx, l.dir)
	if err != nil {
		return nil, err
	}
	defer r.fleet.Close()
	watch := newStopwatch()
	settings := settingsFor(l.dir)
	settings.Export.Flush = l.flush
	o := exporter.Options{Settings: settings, Fleet: r.store, Export: r.store, Interval: l.rounds}
	if l.sink == nil {
		o.Export = &timedStore{r.store, watch}
	} else {
		settings.Export.Sinks, o.More = nil, []sinks.Sink{&timedSink{l.sink, watch}}
	}
	e, err := start(ctx, o)
	if err != nil {
		return nil, err
	}
	err = r.trickle(ctx, watch, l.commits, e)
	if err := errors.Join(err, e.halt()); err != nil {
		return nil, err
	}
	bound := l.flush + 2*l.rounds
	on := fmt.Sprintf("%d commits on 4 cells, flush_ms %d, %s", l.commits, l.flush.Milliseconds(), l.place)
	line := func(what string, q float64) Line {
		ns := quantile(watch.took, q)
		l := Line{Stage: "latency", What: "commit to acknowledged, " + what, On: on, NS: ns, Note: "wall time"}
		return l.atMost(ns, float64(bound), fmt.Sprintf("flush_ms + 2 rounds = %v", bound))
	}
	return []Line{line("p50", 0.5), line("p99", 0.99)}, nil
}

// trickle commits at odd moments and waits for the last one.
func (r *rig) trickle(ctx context.Context, watch *stopwatch, commits int, e *running) error {
	var cells []*celldsim.Cell
	for i := range 4 {
		c, err := r.cell(ctx, fmt.Sprint("cart-", i), "CREATE TABLE items(id INTEGER PRIMARY KEY, qty INT)", "INSERT INTO items VALUES(1, 0)")
		if err != nil {
			return err
		}
		cells = append(cells, c)
	}
	if err := e.settled(ctx, len(cells)); err != nil {
		return err
	}
	for i := range commits {
		c := cells[i%len(cells)]
		if err := c.Exec("UPDATE items SET qty = qty + 1"); err != nil {
			return err
		}
		watch.commit(txKey{c.Scope(), c.TXID() + 1})
		if err := ship(ctx, c); err != nil {
			return err
		}
		time.Sleep(time.Duration(20+i*37%41) * time.Millisecond)
	}
	for range 600 {
		if n, err := watch.left(); n == 0 || err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	n, _ := watch.left()
	return fmt.Errorf("%d commits were not stored after a minute", n)
}
