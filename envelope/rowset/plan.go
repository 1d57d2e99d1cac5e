package rowset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"celldexport/diffpage/schema"
	"celldexport/envelope"
	"celldexport/internal/ledger"
)

// tablePlan is what a unit does to one table that is exported after it.
type tablePlan struct {
	envelope.TableGeneration
	stored, sql, renamedFrom string
	shape                    *shape
	// opened tables get a schema record; show says that the consumer does not
	// hold the generation at the base, so that it gets a snapshot instead of
	// the changes.
	opened, show bool
}

// closedPlan is a generation that ends without a next one under its name.
type closedPlan struct {
	envelope.TableGeneration
	sql     string
	virtual bool
}

// Plan is what one unit does to each table name. It is decided from schemas
// and generations alone and may be used from one goroutine at a time.
type Plan struct {
	opt     Options
	tables  []*tablePlan
	closed  []closedPlan
	changes map[string][]ledger.Generation
}

// NewPlan decides what a unit that ends at the mark at does to every table.
//
// before is the schema of the base that the unit is diffed against, nil when
// there is none; after is the schema it leads to. gens are the ledger's
// generations per exported name. carried is the mark of the last unit that a
// spool took, of whatever life of this stream: what the ledger says beyond it
// was never carried to a consumer and is decided anew, so that a unit that is
// read a second time, or in other company, finds its own entries. Where that
// mark is not known, for a re-base after lost state, it is the one just before
// at: then what the ledger says counts as carried, which a re-base may assume
// because it shows everything.
//
// A table name that the ledger does not know opens generation 1 with a
// snapshot; a changed SQL text opens the next one.
func NewPlan(after, before *schema.Schema, gens map[string][]ledger.Generation, at, carried ledger.Mark, opt Options) (*Plan, error) {
	if opt.MaxRecordBytes <= 0 || opt.MemoryBytes <= 0 {
		return nil, fmt.Errorf("plan a unit: %d bytes per record and %d bytes of memory, both must be above zero", opt.MaxRecordBytes, opt.MemoryBytes)
	}
	if before == nil {
		before = &schema.Schema{}
	}
	b := planner{
		plan:    &Plan{opt: opt, changes: make(map[string][]ledger.Generation)},
		before:  before,
		renamed: renames(before, after),
		gens:    gens, at: at, carried: carried,
		taken: make(map[string]bool),
	}
	seen := make(map[string]bool, len(after.Tables))
	for _, t := range after.Tables {
		name, ok := exported(t)
		if !ok {
			continue
		}
		if seen[name] {
			return nil, fmt.Errorf("plan table %q: the schema names it twice", t.Name)
		}
		seen[name] = true
		b.present(t, name)
	}
	for _, name := range slices.Sorted(maps.Keys(gens)) {
		if !seen[name] {
			b.absent(name)
		}
	}
	slices.SortFunc(b.plan.tables, func(x, y *tablePlan) int { return cmp.Compare(x.Table, y.Table) })
	slices.SortFunc(b.plan.closed, func(x, y closedPlan) int { return cmp.Compare(x.Table, y.Table) })
	return b.plan, nil
}

// exported is the name of a table that may be exported. Views and the tables
// behind virtual tables never are.
func exported(t *schema.Table) (string, bool) {
	if t.Kind != schema.Ordinary && t.Kind != schema.Virtual {
		return "", false
	}
	return ExportedName(t.Name)
}

// planner builds a Plan.
type planner struct {
	plan    *Plan
	before  *schema.Schema
	renamed map[string]string
	// taken are the exported names that another table was renamed from.
	taken       map[string]bool
	gens        map[string][]ledger.Generation
	at, carried ledger.Mark
}

func (b *planner) denied(name string) bool {
	return b.plan.opt.Deny != nil && b.plan.opt.Deny(name)
}

// note keeps the list of a name when the decision changed it.
func (b *planner) note(name string, h *history, keep bool) {
	if list, changed := h.settle(keep, b.gens[name]); changed {
		b.plan.changes[name] = list
	}
}

// present plans a table that is there after the unit.
func (b *planner) present(t *schema.Table, name string) {
	h := newHistory(b.gens[name], b.at, b.carried)
	gen, was, open := h.current()
	is := fingerprint(t)
	if b.denied(name) {
		b.withhold(t, name, h, is)
		return
	}
	tp := &tablePlan{
		TableGeneration: envelope.TableGeneration{Table: name, Generation: gen},
		stored:          t.Name, sql: t.SQL, shape: shapeOf(t),
	}
	if open && was == is {
		base := b.before.ByName(t.Name)
		tp.show = base == nil || base.SQL != t.SQL || base.Kind != t.Kind
	} else {
		tp.renamedFrom = b.renamedFrom(t.Name)
		tp.Generation = h.next(is, tp.renamedFrom)
		tp.opened, tp.show = true, true
	}
	b.note(name, h, true)
	b.plan.tables = append(b.plan.tables, tp)
}

// renamedFrom is the exported name that the table stored under name carried
// before, "" when it was not renamed or the old name was not exported.
func (b *planner) renamedFrom(name string) string {
	old, ok := b.renamed[name]
	if !ok {
		return ""
	}
	from, ok := ExportedName(old)
	if !ok || b.denied(from) {
		return ""
	}
	if _, _, open := newHistory(b.gens[from], b.at, b.carried).current(); !open {
		return ""
	}
	b.taken[from] = true
	return from
}

// withhold plans a table that the settings deny: a generation that was open
// ends here. A name that is new is entered as opened and closed at once, so
// that lifting the rule opens the next generation like any other.
func (b *planner) withhold(t *schema.Table, name string, h *history, sqlHash string) {
	if _, _, open := h.current(); open {
		sql := t.SQL
		if base := b.before.ByName(t.Name); base != nil {
			sql = base.SQL
		}
		b.close(name, h, sql, t.Kind == schema.Virtual)
	} else if len(h.list) == 0 {
		h.next(sqlHash, "")
		h.fresh = -1
	} else if end := h.list[len(h.list)-1]; end.Closed != nil && end.Opened != (ledger.Mark{}) && end.Opened != *end.Closed {
		// One that was withheld from the first was never shown.
		b.endAgain(name, h)
	}
	b.note(name, h, false)
}

// endAgain says again that the last generation of a name ended, when nobody
// knows whether that was ever carried.
func (b *planner) endAgain(name string, h *history) {
	end := h.list[len(h.list)-1]
	if b.plan.opt.RepeatEnds && end.Closed != nil {
		b.plan.closed = append(b.plan.closed, closedPlan{
			TableGeneration: envelope.TableGeneration{Table: name, Generation: end.Generation},
		})
	}
}

// absent plans a name that the ledger knows and no table carries any more.
func (b *planner) absent(name string) {
	h := newHistory(b.gens[name], b.at, b.carried)
	if _, _, open := h.current(); open && !b.taken[name] {
		sql, virtual := "", false
		if base := b.before.ByName(storedName(name)); base != nil {
			sql, virtual = base.SQL, base.Kind == schema.Virtual
		}
		b.close(name, h, sql, virtual)
	} else if !open && !b.denied(name) {
		b.endAgain(name, h)
	}
	b.note(name, h, false)
}

// close adds the schema record that ends the current generation.
func (b *planner) close(name string, h *history, sql string, virtual bool) {
	gen, _, _ := h.current()
	b.plan.closed = append(b.plan.closed, closedPlan{
		TableGeneration: envelope.TableGeneration{Table: name, Generation: gen},
		sql:             sql, virtual: virtual,
	})
}

// Changed says whether the ledger has to be written before the unit is
// spooled.
func (p *Plan) Changed() bool { return len(p.changes) > 0 }

// Ledger is, for every exported name whose generations the unit changes, the
// whole new list, as ledger.Stream.SetTables takes it.
func (p *Plan) Ledger() map[string][]ledger.Generation { return p.changes }

// Next is the plan of a later unit whose base and whose schema are both what
// this plan's unit led to, once that unit is in the spool: all tables go on.
func (p *Plan) Next() *Plan {
	next := &Plan{opt: p.opt, tables: make([]*tablePlan, len(p.tables))}
	for i, t := range p.tables {
		goesOn := *t
		goesOn.opened, goesOn.show, goesOn.renamedFrom = false, false, ""
		next.tables[i] = &goesOn
	}
	return next
}
