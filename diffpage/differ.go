package diffpage

import (
	"celldexport/diffpage/schema"
	"celldexport/diffpage/shadow"
)

// differ finds out which pages of which tables a unit takes away and adds. It
// works on two views and the owner map of the old one, and changes neither.
//
// Its sets rest on one fact: who a page's children are is written in the page
// itself. A page that did not change still has its children, so the two trees
// of a table can differ only below pages that changed, and below roots that
// moved. Rows on pages that are in both trees, unchanged, cancel out.
type differ struct {
	delta
	register
	owners ownerMap // of the old state
	before *slots
	after  *slots
	tableDiffs
	ways

	// chains are the overflow chains of the table that is worked on.
	chains heads
	file   spillFile // for lists that do not fit memory
	memory int64     // bytes that the rows of all sides may hold
	held   int64     // bytes that those of the tables so far do

	kept     *shadow.Images // old pages
	excerpts excerpts       // of old pages
	readBuf  []byte
	bufs     [2][]byte
	join     *join // to be used again
}

func newDiffer() *differ {
	return &differ{tableDiffs: tableDiffs{tables: make(map[uint32]*tableDiff)}, kept: new(shadow.Images)}
}

// tableDiffs are those of a unit, by slot and in the order of their first
// mention, and some to be used again.
type tableDiffs struct {
	tables map[uint32]*tableDiff
	order  []*tableDiff
	spare  []*tableDiff
}

// ways are lists and sets of the walks over the trees of one table.
type ways struct {
	places []place
	path   []uint32
	starts pageSet // changed pages that surely are in the new tree
	// parked are changed pages that are if an unchanged one above them is;
	// brought are those that it was seen of.
	parked, brought pageSet
}

// tableDiff is what happens to the tree of one table.
type tableDiff struct {
	slot     uint32
	name     string
	old, new tree
	// stays says that the tree has the same root and kind on both sides.
	stays bool
	// alike says that the table is declared the same on both sides, so that
	// equal cells are equal rows.
	alike bool
	// reset is that of the delta.
	reset bool

	touched pageSet // old tree pages that changed or are gone
	dirty   headSet // old chains with a page that changed or is gone

	paired   pageSet // touched pages that are in the new tree too and were compared
	settled  pageSet // leaves among them
	attached pageSet // unchanged pages that have a parent in the new tree
	sides
}

// empty keeps the memory of a diff that is over.
func (t *tableDiff) empty() {
	*t = tableDiff{
		touched: t.touched.empty(), dirty: headSet{set: t.dirty.set.empty()},
		paired: t.paired.empty(), settled: t.settled.empty(), attached: t.attached.empty(),
		sides: sides{t.oldSide.empty(), t.newSide.empty()},
	}
}

// isDirty reports whether any page of an old chain of the table has changed.
func (t *tableDiff) isDirty(headPage uint32) bool {
	return t.reset || t.dirty.set.has(headPage)
}

// headSet is a set of overflow chains by their first pages.
type headSet struct {
	set pageSet
	any bool
}

func (h *headSet) add(pgno uint32) {
	h.set.add(pgno)
	h.any = true
}

// tableOf is the diff of the table in a slot of the old or new state.
func (d *differ) tableOf(slot uint32) *tableDiff {
	t := d.tables[slot]
	if t == nil {
		if n := len(d.spare); n > 0 {
			t, d.spare = d.spare[n-1], d.spare[:n-1]
		} else {
			t = new(tableDiff)
		}
		t.slot, t.name = slot, d.nameOf(slot)
		t.sides.use(&d.file, d.memory)
		d.tables[slot] = t
		d.order = append(d.order, t)
	}
	return t
}

// nameOf is the name of the table in a slot.
func (d *differ) nameOf(slot uint32) string {
	for _, s := range [...]*slots{d.after, d.before} {
		if int(slot) < len(s.names) && s.names[slot] != "" {
			return s.names[slot]
		}
	}
	return ""
}

// distribute hands every page that changed or is gone to the table that owned
// it.
func (d *differ) distribute(images *shadow.Images) {
	if d.reset {
		for pgno := uint32(1); pgno <= d.old.commit; pgno++ {
			d.hand(pgno)
		}
		return
	}
	for i := range images.Len() {
		if pgno := images.Pgno(i); pgno <= min(d.old.commit, d.new.commit) && d.changed.has(pgno) {
			d.hand(pgno)
		}
	}
	for pgno := uint64(d.new.commit) + 1; pgno <= uint64(d.old.commit); pgno++ {
		d.hand(uint32(pgno))
	}
}

func (d *differ) hand(pgno uint32) {
	o := d.owners.of(pgno)
	switch o.role() {
	case roleTree:
		t := d.tableOf(o.slot())
		t.touched.add(pgno)
	case roleHead:
		t := d.tableOf(o.slot())
		t.dirty.add(pgno)
	case roleRest:
		t := d.tableOf(o.slot())
		t.dirty.add(o.parent())
	}
}

// pair gives the tables of the new schema their slots and finds those that
// appear, vanish or move. A table is known by its name: a root page says
// nothing, since a dropped table's is used again at once.
func (d *differ) pair(after *schema.Schema) error {
	named := make(map[string]bool, len(after.Tables))
	for _, t := range after.Tables {
		if t.Root == 0 {
			continue
		}
		named[t.Name] = true
		index, err := kindOf(&d.new, t)
		if err != nil {
			return err
		}
		d.after.set(t.Name, tree{t.Root, index})
	}
	for name := range d.before.byName {
		if !named[name] {
			d.after.drop(name)
		}
	}
	for slot, t := range d.after.trees {
		if slot != schemaSlot && t != d.before.tree(uint32(slot)) {
			d.tableOf(uint32(slot))
		}
	}
	for slot, t := range d.before.trees {
		if slot != schemaSlot && t != d.after.tree(uint32(slot)) {
			d.tableOf(uint32(slot))
		}
	}
	return nil
}

// table runs all steps for one table. The descriptions are nil where a side
// lacks it, and for sqlite_schema.
func (d *differ) table(t *tableDiff, was, is *schema.Table) error {
	t.old, t.new = d.before.tree(t.slot), d.after.tree(t.slot)
	t.reset = d.reset
	t.stays = t.old == t.new && !d.reset
	t.alike = !d.reset && (was == is || was != nil && is != nil && was.SQL == is.SQL)
	d.chains.use(&d.file, d.memory)
	err := d.visitNew(t)
	if err == nil {
		err = d.walkOld(t)
	}
	if err == nil {
		err = d.keepChains(t)
	}
	if err == nil {
		err = d.overflowOnly(t)
	}
	if err == nil {
		err = t.sides.bound(&d.held, d.memory)
	}
	return blame(t.name, 0, err)
}

// check makes sure that no page of the new state has two owners: one that was
// claimed without having changed must have left its old place.
func (d *differ) check() error {
	return d.claims.each(func(c claim) error {
		was := d.owners.of(c.pgno)
		if was.role() == roleNone || d.hasChanged(c.pgno) || d.released.has(c.pgno) {
			return nil
		}
		if was.role() == c.own.role() && was.slot() == c.own.slot() && d.mayMove(was) {
			return nil
		}
		return corrupt(d.nameOf(c.own.slot()), c.pgno, "it is in use by table %q already", d.nameOf(was.slot()))
	})
}

// mayMove reports whether a page may get another parent: the old one changed
// or left the tree, or there was none because it was the root, which it is no
// longer.
func (d *differ) mayMove(was owner) bool {
	p := was.parent()
	if p == 0 {
		return d.before.tree(was.slot()) != d.after.tree(was.slot())
	}
	return d.hasChanged(p) || d.released.has(p)
}

func (s *slots) tree(slot uint32) tree {
	if int(slot) < len(s.trees) {
		return s.trees[slot]
	}
	return tree{}
}
