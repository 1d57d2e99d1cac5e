package rowset

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/diffpage/schema"
	"celldexport/internal/ledger"
)

func mark(epoch, txid uint64) ledger.Mark { return ledger.Mark{Epoch: epoch, TXID: txid} }

func closedAt(epoch, txid uint64) *ledger.Mark {
	m := mark(epoch, txid)
	return &m
}

// planTable is an ordinary table with one column.
func planTable(name, sql string, root uint32) *schema.Table {
	return &schema.Table{Name: name, SQL: sql, Root: root, Alias: -1, Columns: []schema.Column{{Name: "a"}}}
}

var planOptions = Options{Scope: "Shelf:a17", MaxRecordBytes: 1 << 20, MemoryBytes: 1 << 20}

// What the ledger says beyond the last unit that was carried is decided anew.
func TestPlanTakesBackWhatWasNotCarried(t *testing.T) {
	const one, two, three = "CREATE TABLE t(a)", "CREATE TABLE t(a, b)", "CREATE TABLE t(a, b, c)"
	carried, at := mark(4, 9), mark(4, 11)
	first := ledger.Generation{Generation: 1, Opened: mark(4, 2), SQLHash: hash(one)}
	closedFirst := first
	closedFirst.Closed = closedAt(4, 10)
	second := ledger.Generation{Generation: 2, Opened: mark(4, 10), SQLHash: hash(two)}
	closed := func(g ledger.Generation, at *ledger.Mark) ledger.Generation {
		g.Closed = at
		return g
	}
	for _, tc := range []struct {
		name          string
		gens          []ledger.Generation
		before, after string
		want          []ledger.Generation // nil: no change
		gen           uint64
		opened, show  bool
	}{
		{"nothing uncarried", []ledger.Generation{first}, one, one, nil, 1, false, false},
		{"the unit's own entry", []ledger.Generation{closedFirst, second}, one, two, nil, 2, true, true},
		{"another text than the uncarried one", []ledger.Generation{closedFirst, second}, one, three,
			[]ledger.Generation{closedFirst, closed(second, closedAt(4, 11)), {Generation: 3, Opened: at, SQLHash: hash(three)}}, 3, true, true},
		{"the carried text again", []ledger.Generation{closedFirst, second}, one, one,
			[]ledger.Generation{first, closed(second, closedAt(4, 11))}, 1, false, false},
		{"a drop that was not carried", []ledger.Generation{closedFirst}, one, one, []ledger.Generation{first}, 1, false, false},
		{"gone, the drop entered before", []ledger.Generation{closedFirst}, one, "", nil, 0, false, false},
		{"gone, with an uncarried generation", []ledger.Generation{closedFirst, second}, one, "",
			[]ledger.Generation{closedFirst, closed(second, closedAt(4, 11))}, 0, false, false},
		{"entered for a later unit than this", []ledger.Generation{closed(first, closedAt(4, 12)), {Generation: 2, Opened: mark(4, 12), SQLHash: hash(two)}}, one, two,
			[]ledger.Generation{closed(first, closedAt(4, 11)), {Generation: 2, Opened: at, SQLHash: hash(two)}}, 2, true, true},
		{"the base lacks the table", []ledger.Generation{first}, "", one, nil, 1, false, true},
		{"the base has another text", []ledger.Generation{first}, two, one, nil, 1, false, true},
		{"only a number is left", []ledger.Generation{{Generation: 7, Closed: closedAt(1, 1)}}, "", one,
			[]ledger.Generation{{Generation: 7, Closed: closedAt(1, 1)}, {Generation: 8, Opened: at, SQLHash: hash(one)}}, 8, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var before, after []*schema.Table
			if tc.before != "" {
				before = append(before, planTable("t", tc.before, 2))
			}
			if tc.after != "" {
				after = append(after, planTable("t", tc.after, 2))
			}
			p, err := NewPlan(schema.New(1, after...), schema.New(1, before...), map[string][]ledger.Generation{"t": tc.gens}, at, carried, planOptions)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, p.Ledger()["t"]); diff != "" || p.Changed() != (tc.want != nil) {
				t.Errorf("ledger, changed %v (-want +got):\n%s", p.Changed(), diff)
			}
			if tc.gen == 0 {
				if len(p.tables) != 0 || len(p.closed) != 1 || p.closed[0].Generation != 1 {
					t.Errorf("tables %v, closed %v; want generation 1 closed", p.tables, p.closed)
				}
				return
			}
			got := p.tables[0]
			if got.Generation != tc.gen || got.opened != tc.opened || got.show != tc.show || len(p.closed) != 0 {
				t.Errorf("generation %d, opened %v, show %v, closed %v; want %d, %v, %v and none", got.Generation, got.opened, got.show, p.closed, tc.gen, tc.opened, tc.show)
			}
			next := p.Next().tables[0]
			if next.Generation != tc.gen || next.opened || next.show || p.Next().Changed() {
				t.Errorf("the next unit's plan opens or shows something: %+v", next)
			}
		})
	}
}

func TestPlanEmptyDatabaseClosesAll(t *testing.T) {
	gens := map[string][]ledger.Generation{
		"t": {{Generation: 3, Opened: mark(4, 2), SQLHash: hash("CREATE TABLE t(a)")}},
		"u": {{Generation: 1, Opened: mark(4, 2), SQLHash: "of a text nobody has any more"}},
	}
	p, err := NewPlan(schema.New(0), schema.New(1, planTable("t", "CREATE TABLE t(a)", 2)), gens, mark(4, 5), mark(4, 4), planOptions)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.closed) != 2 || p.closed[0].sql != "CREATE TABLE t(a)" || p.closed[1].sql != "" || len(p.Ledger()) != 2 {
		t.Errorf("closed %+v, ledger %v; want t with its text and u without", p.closed, p.Ledger())
	}
}

func TestPlanRefuses(t *testing.T) {
	twice := schema.New(1, planTable("t", "CREATE TABLE t(a)", 2), planTable("t", "CREATE TABLE t(b)", 3))
	if _, err := NewPlan(twice, nil, nil, mark(4, 5), mark(4, 4), planOptions); err == nil || !strings.Contains(err.Error(), `"t"`) {
		t.Errorf("two tables of one name: %v, want an error that names it", err)
	}
	if _, err := NewPlan(schema.New(1), nil, nil, mark(4, 5), mark(4, 4), Options{}); err == nil {
		t.Error("options without limits are taken")
	}
}

func TestDefinition(t *testing.T) {
	for sql, want := range map[string]string{
		`CREATE TABLE t(a)`:                 `(a)`,
		`CREATE TABLE t (a)`:                ` (a)`,
		"CREATE TABLE t\n(a)":               "\n(a)",
		`CREATE TABLE "a""b"(a)`:            `(a)`,
		"CREATE TABLE `a``b`(a)":            `(a)`,
		`CREATE TABLE [a"b](a)`:             `(a)`,
		`CREATE TABLE 'it''s'(a)`:           `(a)`,
		`CREATE TABLE t/* c */(a)`:          `/* c */(a)`,
		`CREATE TABLE "open(a)`:             "no",
		`CREATE TABLE `:                     "no",
		`CREATE VIRTUAL TABLE t USING x(a)`: "no",
	} {
		got, ok := definition(sql)
		if !ok {
			got = "no"
		}
		if got != want {
			t.Errorf("definition of %q is %q, want %q", sql, got, want)
		}
	}
}

func TestExportedNamesAreOneToOne(t *testing.T) {
	for stored, want := range map[string]string{
		"t": "t", "_cf_KV": "kv", "kv": "_cf_SQL_kv", "Kv": "Kv", "KV": "KV", "__kv": "__kv", "__queue": "__queue", "cf_x": "cf_x", "_cfx": "_cfx", "__QUEUE_x": "__QUEUE_x",
		"_cf_SQL_kv": "", "_CF_kv": "", "_cf_ALARM": "", "_CF_x": "", "sqlite_sequence": "", "SQLite_x": "", "_litestream_seq": "", "_LITESTREAM_x": "", "__queue_meta": "", "__kv_meta": "",
	} {
		got, ok := ExportedName(stored)
		if got != want || ok != (want != "") {
			t.Errorf("%q is exported as %q, %v; want %q", stored, got, ok, want)
		}
		if ok && storedName(got) != stored {
			t.Errorf("%q stands for %q, want %q", got, storedName(got), stored)
		}
	}
}
