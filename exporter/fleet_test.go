package exporter_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"celldexport/internal/celldsim"
)

const (
	// fleets is how many short fleets a test run plays, of so many events.
	fleets      = 500
	fleetEvents = 60
)

// playFleet plays a list of events in a fleet of its own and says what went
// wrong, with the exporters' log.
func playFleet(ctx context.Context, seed uint64, list []event, count tallies) (problems []string, log string) {
	return playRigged(ctx, seed, list, count, nil)
}

// playRigged is playFleet with a promise broken.
func playRigged(ctx context.Context, seed uint64, list []event, count tallies, rig sabotage) (problems []string, log string) {
	dir, err := os.MkdirTemp(modelDir(), "fleet-")
	if err != nil {
		return []string{err.Error()}, ""
	}
	defer os.RemoveAll(dir)
	m, err := newModel(ctx, dir, seed, rig)
	if err != nil {
		return []string{err.Error()}, ""
	}
	defer func() {
		if w, ok := recover().(wrong); ok {
			problems = append(problems, w.Error())
		}
		if err := m.close(); err != nil {
			problems = append(problems, err.Error())
		}
		log = m.log.String()
	}()
	for i, c := range m.cells {
		m.activate(c, m.hosts[i%len(m.hosts)], celldsim.Activation{})
	}
	for _, h := range m.hosts {
		h.start()
	}
	for _, ev := range list {
		m.play(ev)
	}
	m.finish()
	return m.check(count), ""
}

// tallies count what fleets went through, so that a model in which nothing
// happens is noticed.
type tallies map[string]int

// modelDir is where fleets live: in memory when the system has such a place,
// as they sync a lot and survive nothing.
func modelDir() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return os.TempDir()
}

// shrink leaves events out as long as the list still ends badly.
func shrink(ctx context.Context, seed uint64, list []event) []event {
	end := time.Now().Add(shrinkTime)
	for size := len(list) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(list) && time.Now().Before(end); {
			shorter := slices.Delete(slices.Clone(list), at, at+size)
			if problems, _ := playFleet(ctx, seed, shorter, tallies{}); len(problems) > 0 {
				list = shorter
			} else {
				at += size
			}
		}
	}
	return list
}

// shrinkTime bounds the search for a shorter list.
const shrinkTime = 60 * time.Second

// report prints a fleet that ended badly so that it can be played again.
func report(t *testing.T, seed uint64, list []event, problems []string, log string) {
	t.Helper()
	short := shrink(t.Context(), seed, list)
	if again, its := playFleet(t.Context(), seed, short, tallies{}); len(again) > 0 {
		problems, log = again, its
	} else {
		short = list // it ends badly at times only
	}
	var b strings.Builder
	for _, ev := range short {
		fmt.Fprintf(&b, "\t%s\n", ev)
	}
	if len(log) > maxLog {
		log = "..." + log[len(log)-maxLog:]
	}
	t.Errorf("fleet %d ends badly (EXPORTD_SEED=%d plays it again):\n%s\nof %d events these are enough:\n%s\nlog:\n%s",
		seed, seed, strings.Join(problems, "\n"), len(list), b.String(), log)
}

const maxLog = 8000

// Random fleets: nothing is exported that did not survive, what is certified
// is right, and in the end every copy equals its source.
func TestModelFleet(t *testing.T) {
	t.Parallel()
	first, n := uint64(1), uint64(fleets)
	if text := os.Getenv("EXPORTD_SEED"); text != "" {
		first, n = seed(t, 1), 1
	} else if testing.Short() || raced {
		n /= 10 // make test plays them all without the race detector
	}
	failed, count := 0, make(tallies)
	for s := first; s < first+n && failed < 3; s++ {
		list := draw(s, fleetEvents)
		if problems, log := playFleet(t.Context(), s, list, count); len(problems) > 0 {
			failed++
			report(t, s, list, problems, log)
		}
	}
	t.Logf("%v", count)
	for _, what := range []string{"rows", "link fresh", "link clone", "link paged", "stream snapshots", "epochs continued", "epochs lost", "certificates"} {
		if n > 1 && count[what] == 0 {
			t.Errorf("no fleet had any: %s", what)
		}
	}
}

// TestModelFleetSoak plays longer fleets for EXPORTD_SOAK, a duration.
func TestModelFleetSoak(t *testing.T) {
	text := os.Getenv("EXPORTD_SOAK")
	if text == "" {
		t.Skip("EXPORTD_SOAK is not set: it says for how long random fleets are played, such as 20m")
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	begin := uint64(time.Now().UnixNano())
	n := 0
	for end := time.Now().Add(d); time.Now().Before(end) && !t.Failed(); n++ {
		s := begin + uint64(n)
		list := draw(s, 4*fleetEvents)
		if problems, log := playFleet(t.Context(), s, list, tallies{}); len(problems) > 0 {
			report(t, s, list, problems, log)
		}
	}
	t.Logf("%d fleets", n)
}
