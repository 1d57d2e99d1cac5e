package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// vacuumStage has an exporter, in a process of its own each time, export
// units that hold a whole database, and reads the most memory it ever took.
func vacuumStage(ctx context.Context, b *bench) ([]Line, error) {
	bytes := int64(256 << 20)
	if b.flags.short {
		bytes = 64 << 20
	}
	if b.flags.large {
		bytes = 2 << 30
	}
	r, err := newRig(ctx, b.dir)
	if err != nil {
		return nil, err
	}
	defer r.fleet.Close()
	c, err := r.cell(ctx, "large", eightColumns)
	if err != nil {
		return nil, err
	}
	rows := bytes / rowBytes
	var lines []Line
	for _, step := range []struct{ what, sql string }{
		{"INSERT of all rows", fillFrom(1, rows)},
		{"UPDATE of every row", "UPDATE t SET kind = kind + 1"},
		{"DELETE of a tenth and VACUUM", "DELETE FROM t WHERE id % 10 = 3; VACUUM"},
		{"DROP COLUMN", "ALTER TABLE t DROP COLUMN note"},
		{"DELETE of everything", "DELETE FROM t"},
	} {
		if err := c.Exec(step.sql); err != nil {
			return lines, err
		}
		if err := ship(ctx, c); err != nil {
			return lines, err
		}
		l, err := peakOf(ctx, b.dir)
		if err != nil {
			return lines, fmt.Errorf("%s: %w", step.what, err)
		}
		l.What, l.On = "peak memory, one unit: "+step.what, fmt.Sprintf("%d rows, %s, queue_bytes 64 MiB", rows, size(bytes))
		lines = append(lines, l)
	}
	return lines, nil
}

// peakOf exports what is there in a child process.
func peakOf(ctx context.Context, dir string) (Line, error) {
	cmd, err := again(ctx, "-sidecar", dir, "-once")
	if err != nil {
		return Line{}, err
	}
	took := wallClock()
	out, err := cmd.Output()
	if err != nil {
		return Line{}, err
	}
	// Not what the system tells of the child: that begins with the memory of
	// the process it was forked from.
	peak, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return Line{}, fmt.Errorf("read the peak memory of the exporter: %w", err)
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	l := Line{
		Stage: "vacuum", NS: float64(took()), Value: float64(peak) / (1 << 20), Unit: "MiB",
		Note: fmt.Sprintf("%.1f s of processor; wall time of the whole process, start included", cpu.Seconds()),
	}
	return l.atMost(l.Value, 64+192, "queue_bytes + 192 MiB"), nil
}
