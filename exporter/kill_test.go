package exporter_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/exporter/consumer"
	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
	"celldexport/sinks/bucket"
)

// victim is a node whose exporter is a process that gets killed at random
// while its cells are written to.
type victim struct {
	*world
	h      *host
	bucket string
	puts   string
	cells  []*celldsim.Cell
	loads  []*celldsim.Workload
	seed   uint64
	rand   *rand.Rand
}

func newVictim(t *testing.T, seed uint64) *victim {
	dir := quickDir(t)
	v := &victim{bucket: filepath.Join(dir, "bucket"), puts: filepath.Join(dir, "puts"), seed: seed, rand: rand.New(rand.NewPCG(seed, 9))}
	for _, d := range []string{v.bucket, v.puts} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	store, err := objstore.NewFile(v.bucket)
	if err != nil {
		t.Fatal(err)
	}
	v.world = newWorldOn(t, store, celldsim.V06)
	v.h = v.host("node-a")
	for range 3 {
		v.addCell()
	}
	return v
}

// addCell creates a cell with its own traffic.
func (v *victim) addCell() {
	v.t.Helper()
	n := len(v.cells)
	c := v.h.activate(fmt.Sprint("cell", n))
	v.cells = append(v.cells, c)
	v.loads = append(v.loads, celldsim.NewWorkload(celldsim.WorkloadConfig{Seed: v.seed + uint64(n), Scope: c.Scope(), Rows: 30, MaxValue: 6000}))
}

// step lets one cell write, upload and sometimes sleep and wake.
func (v *victim) step() {
	i := v.rand.IntN(len(v.cells))
	c := v.cells[i]
	v.must(v.loads[i].Run(v.t.Context(), c.DB(), 1+v.rand.IntN(3)))
	_, err := c.Capture()
	v.must(err)
	switch v.rand.IntN(8) {
	case 0:
		v.must(c.UploadMerged(v.t.Context()))
	case 1:
		v.must(v.h.node.Evict(v.t.Context(), c.Scope(), v.rand.IntN(2) == 0))
		v.cells[i] = v.h.activate(fmt.Sprint("cell", i))
	case 2, 3: // stays pending for a while
	default:
		v.must(c.Upload(v.t.Context()))
	}
}

// lives runs the exporter n times and kills it each time.
func (v *victim) lives(n int, shortest, longest time.Duration) {
	v.t.Helper()
	for range n {
		c := v.h.startChild(v.bucket, v.puts)
		end := time.Now().Add(shortest + time.Duration(v.rand.Int64N(int64(longest-shortest))))
		for time.Now().Before(end) {
			v.step()
			time.Sleep(5 * time.Millisecond)
		}
		v.must(c.kill())
	}
}

// finish uploads everything and lets an exporter catch up in peace.
func (v *victim) finish() {
	v.t.Helper()
	for _, c := range v.cells {
		_, err := c.Capture()
		v.must(err)
		v.must(c.Upload(v.t.Context()))
	}
	if left := v.h.once(); len(left) > 0 {
		v.t.Errorf("left: %v", left)
	}
}

// wakeAll moves every cell to its next epoch with a write in it.
func (v *victim) wakeAll() {
	v.t.Helper()
	for i, c := range v.cells {
		v.must(v.h.node.Evict(v.t.Context(), c.Scope(), true))
		v.cells[i] = v.h.activate(fmt.Sprint("cell", i))
		v.must(v.loads[i].Run(v.t.Context(), v.cells[i].DB(), 3))
	}
}

// whole reports the gaps that a consumer knows of.
func (v *victim) whole(c *consumer.Consumer) {
	v.t.Helper()
	for _, cell := range v.cells {
		holes, err := c.Holes(cell.Scope())
		v.must(err)
		for _, h := range holes {
			v.t.Error(h)
		}
	}
}

// identical holds every record that was sent against its other copies.
func (v *victim) identical() (sent, again int) {
	v.t.Helper()
	type id struct {
		key      envelope.Key
		fragment uint32
	}
	seen := make(map[id][]byte)
	entries, err := os.ReadDir(v.puts)
	v.must(err)
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".parquet" {
			continue // killed while it was written: never sent
		}
		b, err := os.ReadFile(filepath.Join(v.puts, e.Name()))
		v.must(err)
		r, err := bucket.NewReader(e.Name(), bytes.NewReader(b), int64(len(b)))
		v.must(err)
		for enc, err := range r.Records() {
			v.must(err)
			rec, err := enc.Decode()
			v.must(err)
			at, text := id{rec.Key(), rec.Fragment}, enc.AppendJSON(nil)
			sent++
			before, ok := seen[at]
			if ok {
				again++
			}
			if ok && !bytes.Equal(before, text) {
				v.t.Errorf("a record was sent again with other bytes:\n%s\n%s", before, text)
			}
			seen[at] = text
		}
	}
	return sent, again
}

// kills is how often the exporter of TestKill is killed.
const kills = 22

// The exporter is killed again and again at random moments: with its state
// kept, nothing is lost, invented, changed in a resend, or uncertified.
func TestKill(t *testing.T) {
	t.Parallel()
	v := newVictim(t, seed(t, 1))
	v.lives(kills, 50*time.Millisecond, 900*time.Millisecond)
	v.finish()
	v.whole(v.equal(v.cells...))
	sent, again := v.identical()
	t.Logf("%d records sent, %d of them again", sent, again)
	if sent == 0 {
		t.Error("nothing was exported while the exporter was killed")
	}
}

// The state directory is gone, or an older copy of it is back, between two
// kills: every stream re-bases where that can be seen, the copy is right, and
// the next activation is certified again.
func TestKillAndLoseState(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(v *victim, copied string){
		"deleted": func(v *victim, _ string) { v.must(os.RemoveAll(v.h.settings.State)) },
		"older copy": func(v *victim, copied string) {
			v.must(os.RemoveAll(v.h.settings.State))
			v.must(os.CopyFS(v.h.settings.State, os.DirFS(copied)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVictim(t, seed(t, 5))
			v.lives(2, 300*time.Millisecond, 900*time.Millisecond)
			copied := filepath.Join(quickDir(t), "state")
			v.must(os.CopyFS(copied, os.DirFS(v.h.settings.State)))
			v.lives(3, 200*time.Millisecond, 900*time.Millisecond)
			before := v.consumer()
			lose(v, copied)
			v.lives(3, 100*time.Millisecond, 900*time.Millisecond)
			v.finish()
			after := v.same(v.cells...)
			for _, c := range v.cells {
				if rebased(after, c.Scope()) <= rebased(before, c.Scope()) {
					t.Errorf("%s did not re-base after its state was lost", c.Scope())
				}
			}
			v.wakeAll()
			v.finish()
			v.equal(v.cells...)
		})
	}
}

// rebased counts a cell's snapshots of the whole stream.
func rebased(c *consumer.Consumer, scope string) int {
	ids := make(map[string]struct{})
	for _, r := range c.Records {
		if end, ok := r.Body.(*envelope.SnapshotEnd); ok && r.Stream.Cell == scope && end.Scope == "stream" {
			ids[r.Position.String()+end.SnapshotID] = struct{}{}
		}
	}
	return len(ids)
}
