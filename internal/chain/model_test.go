package chain

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/internal/objstore"
)

// TestRandomChains captures a random database over several epochs, each new or
// paged, compacts at random, and restores every position that has a plan.
func TestRandomChains(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := model{rng: rand.New(rand.NewPCG(31, seed)), store: objstore.NewMemory(), states: map[[2]uint64]*image{}}
			for epoch := uint64(1); epoch <= 4; epoch++ {
				m.residency(t, epoch)
			}
			m.check(t)
		})
	}
}

// model is a cell whose every state is known.
type model struct {
	rng    *rand.Rand
	store  *objstore.Memory
	now    image
	txid   uint64
	states map[[2]uint64]*image // by epoch and transaction
}

// residency captures some units in an epoch: a full image first, or a marker
// that continues the last one.
func (m *model) residency(t *testing.T, epoch uint64) {
	var units []unit
	first := m.txid + 1
	if epoch == 1 || m.rng.IntN(2) == 0 {
		first = 1
		_ = m.now.Resize(512, 1+m.rng.Uint32N(8))
		for n := uint32(1); n <= m.now.commit; n++ {
			m.now.pages[n] = page(512, "e%d full %d", epoch, n)
		}
		units = append(units, unit(*m.now.clone()))
	} else {
		units = append(units, unit{pageSize: 512, commit: m.now.commit})
	}
	m.txid = first
	m.states[[2]uint64{epoch, m.txid}] = m.now.clone()
	for range m.rng.IntN(6) {
		units = append(units, m.step(fmt.Sprintf("e%d step %d", epoch, m.txid+1)))
		m.txid++
		m.states[[2]uint64{epoch, m.txid}] = m.now.clone()
	}
	for i := range units {
		lo := uint64(i)
		for range 1 + m.rng.IntN(2) { // also in one file with some before it
			put(t, m.store, fmt.Sprintf("e%d/%d/%d-%d", epoch, m.rng.IntN(2), first+lo, first+uint64(i)),
				merge(units[lo:i+1]).encode(t, first+lo, first+uint64(i)))
			lo = m.rng.Uint64N(lo + 1)
		}
	}
	if first == 1 && m.rng.IntN(3) == 0 {
		i := m.rng.IntN(len(units))
		put(t, m.store, fmt.Sprintf("e%d/9/1-%d", epoch, i+1), merge(units[:i+1]).encode(t, 1, uint64(i+1)))
	}
}

// step changes, grows or shrinks the database.
func (m *model) step(label string) unit {
	old := m.now.commit
	commit := max(3, old+m.rng.Uint32N(5)) - 2
	_ = m.now.Resize(512, commit)
	u := unit{pageSize: 512, commit: commit, pages: map[uint32]string{}}
	for n := uint32(1); n <= commit; n++ {
		if n > old || m.rng.IntN(3) == 0 {
			u.pages[n] = page(512, "%s of %d", label, n)
			m.now.pages[n] = u.pages[n]
		}
	}
	return u
}

func (m *model) check(t *testing.T) {
	list, err := List(t.Context(), m.store, scope)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for at, want := range m.states {
		plan, err := Plan(list, at[0], at[1])
		if err != nil {
			t.Fatalf("e%d:%d was captured and has no plan: %v", at[0], at[1], err)
		}
		got := &image{}
		if _, _, err := Restore(t.Context(), m.store, plan, got); err != nil {
			t.Fatalf("e%d:%d by %s: %v", at[0], at[1], names(plan), err)
		}
		if diff := cmp.Diff(want.pages, got.pages); diff != "" || got.commit != want.commit {
			t.Fatalf("e%d:%d by %s: %d pages, want %d (-want +got):\n%s", at[0], at[1], names(plan), got.commit, want.commit, diff)
		}
		checked++
	}
	head, ok := Derive(list)
	if !ok || head.TXID != m.txid || head.Epoch != 4 || checked < 4 {
		t.Errorf("head %+v, %v, want e4:%d; %d states checked", head, ok, m.txid, checked)
	}
}
