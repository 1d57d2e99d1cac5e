package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"celldexport/envelope"
	"celldexport/sinks"
)

// contest measures contenders that wait for others as well as compute: in
// turns, by processor time of this process and by wall time at once.
func (e effort) contest(contenders ...func() error) (cpu, wall []result, err error) {
	cpu, wall = make([]result, len(contenders)), make([]result, len(contenders))
	now := wallClock()
	for turn := range e.reps + 1 {
		for i, run := range contenders {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			c, w := cpuClock(), now()
			if err := run(); err != nil {
				return nil, nil, fmt.Errorf("contender %d: %w", i, err)
			}
			c, w = cpuClock()-c, now()-w
			runtime.ReadMemStats(&after)
			if turn == 0 {
				continue // it only warmed up
			}
			cpu[i].ns, wall[i].ns = append(cpu[i].ns, float64(c)), append(wall[i].ns, float64(w))
			cpu[i].allocs = float64(after.Mallocs - before.Mallocs)
			wall[i].allocs = cpu[i].allocs
		}
	}
	return cpu, wall, nil
}

// sinkContest is a sink against its floor.
type sinkContest struct {
	stage, on, floor, ours string
	records                []envelope.Encoded
	bytes                  int // of what is sent
	sink                   sinks.Sink
	bare                   func() error
	// after is called at the end of every lap of the sink and measured with
	// it, so it is to be small.
	after func() error
	// waits is set when the sink waits for another process: then wall time is
	// compared too.
	waits bool
	// goal is the ratio promised, 0 when none is.
	goal float64
}

// run measures both and returns the lines of the table.
func (s *sinkContest) run(ctx context.Context, e effort) (lines []Line, err error) {
	f := startFeed(ctx, s.sink, s.records)
	defer func() { err = errors.Join(err, f.close()) }()
	cpu, wall, err := e.contest(s.bare, func() error {
		if err := f.lap(); err != nil || s.after == nil {
			return err
		}
		return s.after()
	})
	if err != nil {
		return nil, err
	}
	lines = append(lines, s.line(s.floor+", processor", cpu[0], cpu[0]), s.judged(s.ours+", processor", cpu, cpu[1]))
	if s.waits {
		lines = append(lines, s.line(s.floor+", wall", wall[0], cpu[0]), s.judged(s.ours+", wall", wall, cpu[1]))
	}
	return lines, nil
}

// line is one contender: records and bytes a second, allocations, and what a
// million records take of the processor.
func (s *sinkContest) line(what string, r, cpu result) Line {
	n := len(s.records)
	l := Line{Stage: s.stage, What: what, On: s.on}.took(r, n, "record").rate(float64(n), "records/s")
	l.Note = fmt.Sprintf("%s MB/s, %s s of processor per million records",
		number(float64(s.bytes)/l.NS*1e3), number(cpu.median()/1e9*1e6/float64(n)))
	return l
}

func (s *sinkContest) judged(what string, r []result, cpu result) Line {
	ratio := r[1].against(r[0])
	l := s.line(what, r[1], cpu).versus(s.floor, ratio)
	if s.goal == 0 {
		return l
	}
	return l.atMost(ratio.Mid, s.goal, number(s.goal)+" x")
}
