package diffpage

import (
	"bytes"

	"celldexport/diffpage/btree"
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
	old, new view
	owners   ownerMap
	before   *slots
	after    *slots
	// reset says that page numbers mean nothing across the unit (another page
	// size, another encoding, or no state before): every page has changed.
	reset bool
	// changed holds the pages whose content as part of a tree or chain is not
	// what it was, among those both states have.
	changed  pageSet
	released pageSet // pages of the old state that left their tree or chain
	claimed  pageSet // pages of the new state that got an owner
	claims   []claim
	// scratch is the map of a state that nothing is compared with: claims go
	// into it at once, and rows are on no side.
	scratch ownerMap
	tables  map[uint32]*tableDiff
	order   []*tableDiff
	bufs    [2][]byte
}

// claim is the new owner of a page.
type claim struct {
	pgno uint32
	own  owner
}

// span is a run of cells of one page that holds rows of one side.
type span struct {
	pgno   uint32
	lo, hi uint16 // cells lo to hi-1
	first  int64  // rowid of cell lo, in a rowid tree
}

// head is an overflow chain of a row on a page of one side.
type head struct {
	pgno    uint32 // first page of the chain
	payload int
	local   int
	row     uint32 // page of the row
	kept    bool
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

	touched []uint32 // old tree pages that changed or are gone
	// dirty are the heads of old chains with a page that changed or is gone.
	dirty      pageSet
	dirtyHeads []uint32

	paired   pageSet             // touched pages that are in the new tree too and were compared
	attached pageSet             // unchanged pages that have a parent in the new tree
	parked   map[uint32][]uint32 // changed pages to visit once an unchanged one is attached
	oldSide  []span
	newSide  []span
	oldHeads []head
	newHeads []head
}

// hasChanged reports whether a page of the old state is no part of the new
// one as it was.
func (d *differ) hasChanged(pgno uint32) bool {
	return d.reset || pgno > d.new.commit || pgno > d.old.commit || d.changed.has(pgno)
}

// isDirty reports whether any page of an old chain of the table has changed.
func (d *differ) isDirty(t *tableDiff, headPage uint32) bool {
	return d.reset || t.dirty.has(headPage)
}

// soil notes that a page of a chain has changed.
func (t *tableDiff) soil(headPage uint32) {
	if t.dirty.add(headPage) {
		t.dirtyHeads = append(t.dirtyHeads, headPage)
	}
}

// reservePages bounds what is set aside for old pages before it is known how
// many of a unit's pages differ.
const reservePages = 256

// compare drops the images that equal the page they replace, and keeps the
// old pages it had to read as long as they fit the budget. What is left in
// images is what the unit changed.
func (d *differ) compare(images, kept *shadow.Images, budget int64) error {
	if images.PageSize() != d.old.pageSize || d.old.commit == 0 {
		d.reset = true
		return d.complete(images, 0)
	}
	if err := d.complete(images, d.old.commit); err != nil {
		return err
	}
	kept.Reset(d.old.pageSize, budget, min(images.Len(), reservePages))
	var equal pageSet
	for i := range images.Len() {
		pgno := images.Pgno(i)
		if pgno > d.old.commit {
			break
		}
		now, err := images.Page(i, d.bufs[0])
		if err != nil {
			return err
		}
		slot := kept.Slot()
		if slot == nil {
			slot = d.buf(1)
		}
		was, err := d.old.sh.Page(pgno, slot)
		if err != nil {
			return err
		}
		if bytes.Equal(was, now) {
			equal.add(pgno)
			continue
		}
		if kept.Slot() != nil {
			if err := kept.Add(pgno, was); err != nil {
				return err
			}
		}
		// The header on page 1 changes more often than the tree page behind it.
		if pgno > 1 || !bytes.Equal(was[btree.HeaderSize:], now[btree.HeaderSize:]) {
			d.changed.add(pgno)
		}
	}
	if len(equal.chunks) > 0 {
		images.Keep(func(pgno uint32) bool { return !equal.has(pgno) })
	}
	d.old.images = kept
	return nil
}

func (d *differ) buf(i int) []byte {
	if size := int(max(d.old.pageSize, d.new.pageSize)); cap(d.bufs[i]) < size {
		d.bufs[i] = make([]byte, size)
	}
	return d.bufs[i]
}

// complete checks that the unit brings every page above from: a page that was
// never seen cannot be told from one that is empty.
func (d *differ) complete(images *shadow.Images, from uint32) error {
	lock := shadow.LockPage(images.PageSize())
	commit := d.new.commit
	next := uint64(from) + 1
	n := images.Len()
	if n > 0 && images.Pgno(n-1) > commit {
		return corrupt("", images.Pgno(n-1), "the unit has an image of it, but ends at page %d", commit)
	}
	for i := images.After(from); i < n; i++ {
		pgno := images.Pgno(i)
		if next == uint64(lock) {
			next++
		}
		if uint64(pgno) != next {
			break
		}
		next++
	}
	if next == uint64(lock) {
		next++
	}
	if next <= uint64(commit) {
		return corrupt("", uint32(next), "it is new in a database of %d pages, but the unit has no image of it", commit)
	}
	if images.Has(lock) {
		return corrupt("", lock, "the unit has an image of the lock page")
	}
	return nil
}

// tableOf is the diff of the table in a slot of the old or new state.
func (d *differ) tableOf(slot uint32) *tableDiff {
	t := d.tables[slot]
	if t == nil {
		t = &tableDiff{slot: slot, name: d.nameOf(slot)}
		d.tables[slot] = t
		d.order = append(d.order, t)
	}
	return t
}

func (d *differ) nameOf(slot uint32) string {
	for _, s := range []*slots{d.after, d.before} {
		if s != nil && int(slot) < len(s.names) && s.names[slot] != "" {
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
		t.touched = append(t.touched, pgno)
	case roleHead:
		t := d.tableOf(o.slot())
		t.soil(pgno)
	case roleRest:
		t := d.tableOf(o.slot())
		t.soil(o.parent())
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
		index, err := d.kindOf(t)
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

// kindOf looks at the root page, which the schema must agree with.
func (d *differ) kindOf(t *schema.Table) (index bool, err error) {
	var p btree.Page
	if err := d.new.parse(t.Root, &p, &d.bufs[0]); err != nil {
		return false, blame(t.Name, t.Root, err)
	}
	known := t.Unreadable == "" && t.Kind != schema.Internal
	if known && p.Type.Index() != t.WithoutRowid {
		return false, corrupt(t.Name, t.Root, "its root has page type %d, which does not fit the table's declaration", p.Type)
	}
	return p.Type.Index(), nil
}

// table runs all steps for one table. The descriptions are nil where a side
// lacks it, and for sqlite_schema.
func (d *differ) table(t *tableDiff, was, is *schema.Table) error {
	t.old, t.new = d.before.tree(t.slot), d.after.tree(t.slot)
	t.stays = t.old == t.new && !d.reset
	t.alike = !d.reset && (was == is || was != nil && is != nil && was.SQL == is.SQL)
	for _, step := range []func(*tableDiff) error{d.visitNew, d.walkOld, d.keepChains, d.overflowOnly} {
		if err := step(t); err != nil {
			return blame(t.name, 0, err)
		}
	}
	return nil
}

// check makes sure that no page of the new state has two owners: one that was
// claimed without having changed must have left its old place.
func (d *differ) check() error {
	for _, c := range d.claims {
		was := d.owners.of(c.pgno)
		if was.role() == roleNone || d.hasChanged(c.pgno) || d.released.has(c.pgno) {
			continue
		}
		if was.role() == c.own.role() && was.slot() == c.own.slot() && d.mayMove(was) {
			continue
		}
		return corrupt(d.nameOf(c.own.slot()), c.pgno, "it is in use by table %q already", d.nameOf(was.slot()))
	}
	return nil
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
