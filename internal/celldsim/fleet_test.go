package celldsim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"celldexport/internal/celld"
	"celldexport/internal/objstore"
)

func TestNewRefusesAnIncompleteConfig(t *testing.T) {
	for missing, cfg := range map[string]Config{
		"bucket": {Script: "shop", Now: time.Now},
		"script": {Bucket: objstore.NewMemory(), Now: time.Now},
		"clock":  {Bucket: objstore.NewMemory(), Script: "shop"},
	} {
		if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without a %s: %v", missing, err)
		}
	}
}

func TestWrongCallsAreErrors(t *testing.T) {
	f := newFleet(t, Config{})
	n := newNode(t, f, "node-a")
	cell := f.CellID("Shelf", "a")
	c := activate(t, n, cell)
	facet, err := OpenFacet(t.Context(), c, "left")
	must(t, err)
	_, twice := n.Activate(t.Context(), cell, "")
	_, illegal := n.Activate(t.Context(), "../up", "")
	_, paged := n.ActivateWith(t.Context(), Activation{Cell: f.CellID("Shelf", "b"), Paged: true})
	dark := newNode(t, f, "node-b")
	activate(t, dark, f.CellID("Shelf", "c")) // nothing of it is uploaded
	must(t, dark.Restart(t.Context()))
	_, resumed := dark.ActivateWith(t.Context(), Activation{Cell: f.CellID("Shelf", "c"), Resume: true})
	_, stolen := dark.ActivateWith(t.Context(), Activation{Cell: cell, Resume: true})
	for _, tt := range []struct {
		name      string
		err, want error
	}{
		{"activate twice", twice, ErrResident},
		{"activate an illegal name", illegal, celld.ErrName},
		{"page a cell without a state", paged, nil},
		{"resume what no object covers", resumed, nil},
		{"resume another node's cell", stolen, ErrFenced},
		{"evict a stranger", n.Evict(t.Context(), "Shelf:nobody", true), ErrNotResident},
		{"evict a facet", n.Evict(t.Context(), facet.Scope(), true), nil},
		{"release a stranger", n.Release(t.Context(), "Shelf:nobody"), ErrFenced},
		{"run nonsense", c.Exec(`NONSENSE`), nil},
	} {
		if tt.err == nil || tt.want != nil && !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: %v", tt.name, tt.err)
		}
	}
}

func TestCohostedScript(t *testing.T) {
	f := newFleet(t, Config{})
	must(t, f.DeployCohosted(t.Context(), "depot", []string{"Shelf"}))
	pointer, err := celld.ParseDeployment(object(t, f, "deploy/depot/current.json"))
	must(t, err)
	m, err := celld.ParseManifest(object(t, f, celld.ManifestKey(pointer.Prefix)))
	must(t, err)
	if m.Script != "depot" || !cmp.Equal(m.Classes, []string{"Shelf"}) {
		t.Errorf("manifest says %+v", m)
	}
}

// TestRandomMoves drives two nodes at random and holds the fleet to what a
// cell is: what was proven is never lost, captured files equal the database,
// and whoever holds the cell continues from what the bucket held.
func TestRandomMoves(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			f := newFleet(t, Config{Layout: Layout(seed % 2), Seed: seed})
			m := moves{
				t: t, f: f, rand: rand.New(rand.NewPCG(seed, 1)), cell: f.CellID("Shelf", "a"),
				nodes: []*Node{newNode(t, f, "node-a"), newNode(t, f, "node-b")},
			}
			m.open(0)
			for range 50 {
				m.step()
			}
			capture(t, m.c) // an abandoned eviction leaves a commit of the replicator
			must(t, m.c.Upload(t.Context()))
			checkFiles(t, m.c)
			checkBucket(t, f, m.cell, dump(t, m.c))
		})
	}
}

// moves is a random history of one cell.
type moves struct {
	t     *testing.T
	f     *Fleet
	rand  *rand.Rand
	nodes []*Node
	cell  string
	at    int // the node that holds the cell
	c     *Cell
	seed  uint64
	safe  map[string]DumpedTable // the state at the last proven upload
}

// open activates the cell on a node and checks what it starts from.
func (m *moves) open(at int) {
	m.t.Helper()
	c, err := m.nodes[at].TakeOver(m.t.Context(), m.cell, "aisle 9")
	must(m.t, err)
	m.at, m.c = at, c
	if m.safe != nil {
		if diff := cmp.Diff(m.safe, dump(m.t, c)); diff != "" {
			m.t.Fatalf("epoch %d starts from another state (-want +got):\n%s", c.Epoch(), diff)
		}
	}
}

// work commits random transactions on tables of its own.
func (m *moves) work() {
	m.t.Helper()
	m.seed++
	w := NewWorkload(WorkloadConfig{Seed: m.seed, NoDDL: true, Tables: 2, Rows: 10})
	w.named = int(m.seed) * 1000
	must(m.t, w.Run(m.t.Context(), m.c.DB(), 4))
}

func (m *moves) step() {
	m.t.Helper()
	ctx, n := m.t.Context(), m.nodes[m.at]
	switch m.rand.IntN(12) {
	case 0:
		m.proven(func() error { return n.Evict(ctx, m.cell, m.rand.IntN(2) == 0) })
		m.open(m.at)
	case 1:
		m.proven(func() error { return n.Handoff(ctx, m.cell, m.rand.IntN(2) == 0) })
		m.open(1 - m.at)
	case 2:
		m.proven(func() error { return n.AbandonEviction(ctx, m.cell) })
	case 3:
		must(m.t, n.Reload(ctx))
		m.safe = m.restored()
	case 4:
		m.safe = m.restored()
		must(m.t, n.Crash())
		must(m.t, n.Restart(ctx))
		m.open(m.at)
	case 5:
		m.safe = m.restored()
		must(m.t, n.Reset(m.cell))
		m.open(m.at)
	case 6:
		m.safe = m.restored()
		old := m.c
		m.open(1 - m.at)
		must(m.t, m.c.Upload(ctx))
		must(m.t, old.Exec(`CREATE TABLE late(a)`))
		capture(m.t, old)
		must(m.t, old.UploadMerged(ctx))
		must(m.t, old.Node().Drop(m.cell))
	case 7:
		capture(m.t, m.c)
		must(m.t, m.c.UploadMerged(ctx))
		checkFiles(m.t, m.c)
	case 8:
		_, err := m.c.FullImage()
		must(m.t, err)
	default:
		m.work()
		capture(m.t, m.c)
		if m.rand.IntN(2) == 0 {
			must(m.t, m.c.Upload(ctx))
		}
	}
}

// proven makes a move after which everything committed is in the bucket.
func (m *moves) proven(move func() error) {
	m.t.Helper()
	m.safe = dump(m.t, m.c)
	must(m.t, move())
	checkBucket(m.t, m.f, m.cell, m.safe)
}

// restored is what the bucket holds, nothing before the first upload.
func (m *moves) restored() map[string]DumpedTable {
	m.t.Helper()
	for _, key := range keys(m.t, m.f) {
		if strings.HasSuffix(key, ".ltx") {
			return restoreDump(m.t, m.f, m.cell)
		}
	}
	return map[string]DumpedTable{"kv": {Columns: []string{"key", "value"}, KeyColumns: []string{"key"}}}
}
