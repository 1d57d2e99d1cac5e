package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"celldexport/sinks"
)

// Contenders take turns on one clock, so that a machine that slows down as the
// run goes on changes no ratio.
func TestTurnsKeepRatios(t *testing.T) {
	var now, drift time.Duration
	step := func(d time.Duration) func() error {
		return func() error {
			drift++
			now += d + d*drift/1000
			return nil
		}
	}
	e := effort{slice: 40 * time.Millisecond, reps: 9}
	r, err := e.interleave(func() time.Duration { return now }, step(time.Millisecond), step(3*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if ratio := r[1].against(r[0]); ratio.Mid < 2.9 || ratio.Mid > 3.2 || ratio.Low > ratio.Mid || ratio.High < ratio.Mid {
		t.Errorf("the ratio of 3 ms to 1 ms is %+v", ratio)
	}
	if first, last := r[0].ns[0], r[0].ns[len(r[0].ns)-1]; last <= first {
		t.Error("the clock did not drift: the test shows nothing")
	}
}

// A unit holds what SQLite wrote and the file stays at the state before, until
// both together are the state after.
func TestUnitIsWhatSQLiteWrote(t *testing.T) {
	d, err := openDatabase(filepath.Join(t.TempDir(), "unit.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := d.exec(t.Context(), eightColumns, fill(5000)); err != nil {
		t.Fatal(err)
	}
	u, err := d.unit(t.Context(), "UPDATE t SET kind = kind + 1 WHERE id % 100 = 0", "DELETE FROM t WHERE id > 4900")
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(d.path)
	if err != nil {
		t.Fatal(err)
	}
	if grown := int(u.commit)*int(u.pageSize) - len(image); grown > 0 {
		image = append(image, make([]byte, grown)...)
	}
	changed := 0
	for i, n := range u.pgnos {
		at := image[int(n-1)*int(u.pageSize):][:u.pageSize]
		if !bytes.Equal(at, u.pages[i]) {
			changed++
		}
		copy(at, u.pages[i])
	}
	if changed == 0 {
		t.Error("the file holds the unit already")
	}
	if err := d.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(d.path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(after, image[:int(u.commit)*int(u.pageSize)]) {
		t.Error("file and unit together are not the state after")
	}
}

// The table shows a goal that is missed and fails nothing.
func TestMissedGoalIsShown(t *testing.T) {
	r := result{ns: []float64{30, 10, 20, 40, 50}, allocs: 4}
	floor := result{ns: []float64{10, 10, 10, 10, 10}}
	ratio := r.against(floor)
	l := Line{Stage: "s", What: "w"}.took(r, 2, "page").versus("floor", ratio).atMost(ratio.Mid, 0.5, "0.5 x")
	var out strings.Builder
	if err := printTable(&out, []Line{l}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"30 ns", "2/page", "3 (2-4) x floor", "<= 0.5 x", "missed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, out.String())
		}
	}
}

// One stage from the command line to lines that a machine reads.
func TestStageFromTheCommandLine(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-short", "-json", "-stage", "decode"}, &out); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(&out)
	var m machine
	if err := d.Decode(&m); err != nil || m.Cores == 0 || m.Go == "" {
		t.Fatalf("the first line is no machine: %+v, %v", m, err)
	}
	ratios := 0
	for d.More() {
		var l Line
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		if l.Stage != "decode" || l.NS <= 0 {
			t.Errorf("no measurement: %+v", l)
		}
		if l.Ratio > 0 {
			ratios++
		}
	}
	if ratios != 2 {
		t.Errorf("%d lines have a ratio, not one for each form", ratios)
	}
	if err := run(t.Context(), []string{"-stage", "nonsense"}, &out); err == nil || !strings.Contains(err.Error(), "decode, diff") {
		t.Errorf("an unknown stage: %v, want an error that names the known ones", err)
	}
}

// acker is a sink that acknowledges what it took when it is asked to flush.
type acker struct{ taken []uint64 }

func (*acker) Name() string { return "acker" }

func (a *acker) Run(ctx context.Context, q sinks.Queue) error {
	for {
		e, err := q.Next(ctx, time.Time{})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case e != nil:
			a.taken = append(a.taken, e.Seq())
		case !q.Flush():
			return errors.New("no entry, and no flush")
		default:
			if err := q.Ack(a.taken[len(a.taken)-1]); err != nil {
				return err
			}
		}
	}
}

// A lap ends when the sink acknowledged all of it, and the next goes on in
// the same run.
func TestFeedLaps(t *testing.T) {
	records, _ := someRecords(100)
	sink := new(acker)
	f := startFeed(t.Context(), sink, records)
	for range 3 {
		if err := f.lap(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	if len(sink.taken) != 300 {
		t.Fatalf("%d entries in three laps of 100", len(sink.taken))
	}
	for i, seq := range sink.taken {
		if seq != uint64(i+1) {
			t.Fatalf("entry %d has number %d", i, seq)
		}
	}
}

// A sink that fails ends the lap instead of leaving it to wait.
func TestFeedTellsOfASinkThatFailed(t *testing.T) {
	records, _ := someRecords(1)
	f := startFeed(t.Context(), failing{}, records)
	if err := f.lap(); !errors.Is(err, errNotMeasured) {
		t.Errorf("the lap ended with %v", err)
	}
	if err := f.close(); !errors.Is(err, errNotMeasured) {
		t.Errorf("the sink ended with %v", err)
	}
}

type failing struct{}

func (failing) Name() string                           { return "failing" }
func (failing) Run(context.Context, sinks.Queue) error { return errNotMeasured }
