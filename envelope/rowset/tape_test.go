package rowset

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"celldexport/diffpage/schema"
	"celldexport/envelope"
	"celldexport/internal/ledger"
)

// tape runs one stream unit by unit: a database, what the ledger and the
// consumer hold of it, and the records of each unit.
type tape struct {
	t         *testing.T
	d         *database
	p         *pages
	opt       Options
	last      *state
	gens      map[string][]ledger.Generation
	described map[envelope.TableGeneration]bool
	txid      uint64
	stats     Stats
	prev      *Plan // of the unit before
}

func newTape(t *testing.T, statements ...string) *tape {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cell.db")
	d := openDatabase(t, path).exec("PRAGMA journal_mode = MEMORY", "PRAGMA synchronous = OFF").exec(statements...)
	return &tape{
		t: t, d: d, p: newPages(t, path), last: empty(),
		opt:       Options{Scope: "Shelf:a17", MaxRecordBytes: 1 << 20, MemoryBytes: 1 << 20, TempDir: t.TempDir(), Scratch: new(Scratch)},
		gens:      map[string][]ledger.Generation{},
		described: map[envelope.TableGeneration]bool{},
	}
}

// encode runs a unit's plan and returns whole lines.
func (s *tape) encode(plan *Plan, src Source) []string {
	s.t.Helper()
	var lines []string
	stats, err := plan.Encode(testEnvelope(s.txid), src, s.described, func(e *envelope.Encoded) error {
		lines = append(lines, string(e.AppendJSON(nil)))
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.stats = stats
	if left, err := os.ReadDir(s.opt.TempDir); err != nil || len(left) > 0 {
		s.t.Fatalf("temporary files %v are left, %v", left, err)
	}
	return lines
}

// plan plans the unit that ends at txid; everything before it was carried.
func (s *tape) plan(src Source) *Plan {
	s.t.Helper()
	p, err := NewPlan(src.After(), src.Before(), s.gens, ledger.Mark{Epoch: 4, TXID: s.txid}, ledger.Mark{Epoch: 4, TXID: s.txid - 1}, s.opt)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// unit executes statements as one unit and returns its records, made from
// SELECT. Every unit is also made from pages, and planned and encoded again
// with its own entries in the ledger, as after a crash behind the ledger's
// write: neither may change anything.
func (s *tape) unit(statements ...string) []string {
	s.t.Helper()
	s.d.exec(statements...)
	s.txid++
	src := &fake{before: s.last, after: s.d.capture()}
	plan := s.plan(src)
	lines := s.encode(plan, src)
	s.fromPages(lines)
	maps.Copy(s.gens, plan.Ledger())
	again := s.plan(src)
	if again.Changed() {
		s.t.Errorf("the unit read again changes the ledger: %v", again.Ledger())
	}
	if diff := cmp.Diff(lines, s.encode(again, src)); diff != "" {
		s.t.Errorf("the unit read again gives other records:\n%s", diff)
	}
	if s.prev != nil && sameSQL(src.Before(), src.After()) && !plan.Changed() {
		next := s.prev.Next()
		next.opt = s.opt
		if diff := cmp.Diff(lines, s.encode(next, src), cmpopts.EquateEmpty()); diff != "" {
			s.t.Errorf("the plan that goes on from the last unit gives other records:\n%s", diff)
		}
	}
	for _, g := range s.stats.Described {
		s.described[g] = true
	}
	s.last, s.prev = src.after, plan
	return lines
}

func sameSQL(a, b *schema.Schema) bool {
	return slices.EqualFunc(a.Tables, b.Tables, func(x, y *schema.Table) bool { return x.Name == y.Name && x.SQL == y.SQL })
}

// fromPages compares records with those made from the pages of the unit.
func (s *tape) fromPages(want []string) {
	s.t.Helper()
	change := s.p.change()
	defer func() {
		if err := change.Close(); err != nil {
			s.t.Error(err)
		}
	}()
	if diff := cmp.Diff(want, s.encode(s.plan(change), change), cmpopts.EquateEmpty()); diff != "" {
		s.t.Fatalf("unit %d (-select +pages):\n%s", s.txid, diff)
	}
	if err := change.Accept(); err != nil {
		s.t.Fatal(err)
	}
}

// bodies is what unit returns, each line as its origin and body alone.
func (s *tape) bodies(statements ...string) []string {
	s.t.Helper()
	return s.short(s.unit(statements...))
}

func (s *tape) short(lines []string) []string {
	s.t.Helper()
	short := make([]string, len(lines))
	for i, line := range lines {
		r, err := envelope.Decode([]byte(line))
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		e, err := envelope.Encode(r)
		if err != nil {
			s.t.Fatal(err)
		}
		short[i] = string(r.Origin) + " " + string(e.Body)
	}
	return short
}

// check compares records with the lines that are expected, written by hand.
func check(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}
