// Command bench measures every stage of the export beside its floor, in one
// run: the same input through the library's decoder, through arrow-go's
// writer, through a plain write, through bytes.Equal. Contenders take turns
// and are compared turn by turn, so the ratios survive a machine that others
// use too. A goal that is missed is shown and fails nothing.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// flags are the command line.
type flags struct {
	short, large, json bool
	stages, profile    string
	// match picks units by their name, to profile one at a time.
	match string
	// inline has a stage that wants a process of its own run in this one.
	inline bool
	// sidecar is the settings of an exporter to run, for the stages that need
	// one in a process of its own.
	sidecar string
	once    bool
	// broker is the kind of broker to be, instead of measuring.
	broker string
	cpu    int
	cells  int
}

func parse(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.BoolVar(&f.short, "short", false, "fewer and shorter turns: under two minutes")
	set.BoolVar(&f.large, "large", false, "include databases of 1 and 2 GiB")
	set.BoolVar(&f.json, "json", false, "JSON lines instead of a table")
	set.StringVar(&f.stages, "stage", "", "only these stages, comma-separated")
	set.StringVar(&f.match, "match", "", "only units whose name holds this, in the stages diff, path and spool")
	set.StringVar(&f.profile, "cpuprofile", "", "write a CPU profile to this file")
	set.BoolVar(&f.inline, "inline", false, "run stages that get a process of their own in this one")
	set.StringVar(&f.sidecar, "sidecar", "", "run an exporter over this directory instead of measuring")
	set.StringVar(&f.broker, "broker", "", "be a broker that keeps nothing, kafka or blobstream, instead of measuring")
	set.BoolVar(&f.once, "once", false, "with -sidecar: export what is there and stop")
	set.IntVar(&f.cells, "cells", 0, "idle cells of the stage idle: 10,000 unless given, 2,000 with -short")
	set.IntVar(&f.cpu, "cpu", -1, "run on this processor only")
	err := set.Parse(args)
	switch {
	case f.cells > 0:
	case f.short:
		f.cells = 2000
	default:
		f.cells = 10_000
	}
	return f, err
}

func run(ctx context.Context, args []string, out io.Writer) error {
	f, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	if f.cpu >= 0 {
		if err := pin(f.cpu); err != nil {
			return err
		}
	}
	if f.broker != "" {
		return asBroker(f.broker)
	}
	if f.sidecar != "" {
		return runSidecar(ctx, f.sidecar, f.once, out)
	}
	stages, err := chosen(f)
	if err != nil {
		return err
	}
	if f.profile != "" {
		stop, err := profile(f.profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	return measure(ctx, f, stages, out)
}

func profile(path string) (stop func(), err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		file.Close()
	}, nil
}

// bench is what stages work with.
type bench struct {
	effort
	flags flags
	// dir is scratch space, gone at the end; cache stays for later runs.
	dir, cache string
}

// stage is one subject of measurement.
type stage struct {
	name string
	// child stages measure memory, and get a process of their own for it.
	child bool
	run   func(ctx context.Context, b *bench) ([]Line, error)
}

func allStages() []stage {
	return []stage{
		{name: "decode", run: decodeStage},
		{name: "diff", run: diffStage},
		{name: "path", run: pathStage},
		{name: "flat", run: flatStage},
		{name: "json", run: jsonStage},
		{name: "spool", run: spoolStage},
		{name: "parquet", run: parquetStage},
		{name: "kafka", run: kafkaStage},
		{name: "blobstream", run: blobstreamStage},
		{name: "shadow", run: shadowStage},
		{name: "owners", run: ownersStage},
		{name: "except", run: exceptStage},
		{name: "writer", run: writerStage},
		{name: "latency", run: latencyStage},
		{name: "idle", run: idleStage, child: true},
		{name: "vacuum", run: vacuumStage},
	}
}

func chosen(f flags) ([]stage, error) {
	all := allStages()
	if f.stages == "" {
		return all, nil
	}
	var picked []stage
	for name := range strings.SplitSeq(f.stages, ",") {
		i := slices.IndexFunc(all, func(s stage) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no stage %q; there are %s", name, stageNames(all))
		}
		picked = append(picked, all[i])
	}
	return picked, nil
}

func stageNames(stages []stage) string {
	var names []string
	for _, s := range stages {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}

func measure(ctx context.Context, f flags, stages []stage, out io.Writer) error {
	b := &bench{flags: f, effort: effort{slice: 100 * time.Millisecond, reps: 15}}
	if f.short {
		b.effort = effort{slice: 40 * time.Millisecond, reps: 7}
	}
	var err error
	if b.dir, err = os.MkdirTemp("", "celldexport-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.cache, err = cacheDir(); err != nil {
		return err
	}
	// As much as the exporter's queue may hold: with less than a few MiB
	// alive the collector would run for every few units, here and nowhere else.
	ballast := make([]byte, 64<<20)
	defer runtime.KeepAlive(ballast)
	var lines []Line
	for _, s := range stages {
		if !f.json {
			fmt.Fprintf(os.Stderr, "%s ...\n", s.name)
		}
		got, err := b.one(ctx, s)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			got = append(got, Line{Stage: s.name, What: "not measured", Note: err.Error()})
		}
		lines = append(lines, got...)
		debug.FreeOSMemory()
	}
	return show(f, lines, out)
}

// one runs a stage, in a process of its own when it has to be.
func (b *bench) one(ctx context.Context, s stage) ([]Line, error) {
	if s.child && !b.flags.inline {
		return b.inChild(ctx, s.name)
	}
	dir, err := os.MkdirTemp(b.dir, s.name+"-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	own := *b
	own.dir = dir
	return s.run(ctx, &own)
}

func show(f flags, lines []Line, out io.Writer) error {
	if f.json {
		e := json.NewEncoder(out)
		if !f.inline {
			if err := e.Encode(thisMachine()); err != nil {
				return err
			}
		}
		for _, l := range lines {
			if err := e.Encode(l); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Fprintln(out, thisMachine())
	return printTable(out, lines)
}
