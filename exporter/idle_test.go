package exporter_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"celldexport/exporter"
	"celldexport/internal/celldsim"
)

// openShadows counts the open files of this process below a state directory's
// shadows.
func openShadows(t *testing.T, state string) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this system does not show a process its open files")
	}
	n := 0
	for _, fd := range fds {
		name, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name()))
		if err == nil && strings.HasPrefix(name, filepath.Join(state, "shadow")) {
			n++
		}
	}
	return n
}

// shadowFiles are the names of shadow files, without owner maps.
func shadowFiles(t *testing.T, state string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(state, "shadow"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".db") {
			names = append(names, e.Name())
		}
	}
	return names
}

// rounds waits until the exporter went through some more rounds.
func (h *host) rounds(n uint64) {
	h.w.t.Helper()
	before := h.e.Status().Rounds
	h.w.until("rounds go on", func() bool { return h.e.Status().Rounds >= before+n })
}

// A cell that rests for a while holds no file open and is counted all the
// same; its next change costs no listing and goes out as any other.
func TestIdleCellsHoldNoFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	var ahead atomic.Int64
	a.rig = func(o *exporter.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}
	y := &tally{}
	a.count = y.observe
	var cells []*celldsim.Cell
	for i := range 12 {
		c := a.activate(fmt.Sprint("cell", i))
		w.write(c, createItems, insertTwo)
		cells = append(cells, c)
	}
	a.run()
	a.sync()
	if n := openShadows(t, a.settings.State); n == 0 {
		t.Error("no shadow is open right after the export")
	}
	ahead.Store(int64(time.Hour))
	a.rounds(4)
	if n := openShadows(t, a.settings.State); n != 0 {
		t.Errorf("%d shadows are open after an hour without a change", n)
	}
	if got := a.e.Status().Streams[exporter.StateExported]; got != len(cells) {
		t.Errorf("%d streams are exported, want %d", got, len(cells))
	}
	y.take()
	w.write(cells[3], `INSERT INTO items VALUES('late',1)`)
	a.sync()
	if calls, _, _ := y.take(); calls["list"] != 0 {
		t.Errorf("waking one cell cost %v", calls)
	}
	if got := a.e.Status().Streams[exporter.StateExported]; got != len(cells) {
		t.Errorf("%d streams are exported after one woke, want %d", got, len(cells))
	}
	a.halt()
	w.equal(cells...)
}

// Shadows of cells that left go when they do not fit cache_bytes, the longest
// unused first; those of resident cells stay. A cell whose shadow is gone
// goes on from the bucket.
func TestDepartedShadowsFitTheCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	y := a.activate("resident")
	w.write(y, createItems, insertTwo)
	a.run()
	a.sync()
	resident := shadowFiles(t, a.settings.State)
	if len(resident) != 1 {
		t.Fatalf("the resident cell has the shadows %v", resident)
	}
	a.halt()
	info, err := os.Stat(filepath.Join(a.settings.State, "shadow", resident[0]))
	w.must(err)
	const kept = 3
	a.settings.Export.CacheBytes = kept*info.Size() + info.Size()/2
	a.run()
	var cells []*celldsim.Cell
	var names []string
	for i := range 8 {
		before := shadowFiles(t, a.settings.State)
		c := a.activate(fmt.Sprint("cell", i))
		w.write(c, createItems, insertTwo)
		a.sync()
		for _, name := range shadowFiles(t, a.settings.State) {
			if !slices.Contains(before, name) {
				names = append(names, name)
			}
		}
		w.must(a.node.Evict(t.Context(), c.Scope(), false))
		a.sync()
		cells = append(cells, c)
	}
	if len(names) != len(cells) {
		t.Fatalf("%d shadows were seen for %d cells", len(names), len(cells))
	}
	want := append([]string{resident[0]}, names[len(names)-kept:]...)
	var got []string
	w.until("the shadows fit", func() bool {
		got = shadowFiles(t, a.settings.State)
		return len(got) == len(want)
	})
	for _, name := range want {
		if !slices.Contains(got, name) || len(got) != len(want) {
			t.Fatalf("shadows left: %v, want %v", got, want)
		}
	}
	again := a.activate("cell0")
	w.write(again, `INSERT INTO items VALUES('again',1)`)
	a.sync()
	a.halt()
	w.equal(y, again)
}
