package diffpage

import (
	"fmt"

	"celldexport/diffpage/schema"
	"celldexport/diffpage/shadow"
)

// Change is what one unit changed, ready to be shown table by table as often
// as wanted until it is accepted or closed.
type Change struct {
	base    *Base
	d       *differ
	images  *shadow.Images
	before  *schema.Schema
	after   *schema.Schema
	commit  uint32
	version uint64
	done    bool
}

// Before is the schema before the unit.
func (c *Change) Before() *schema.Schema { return c.before }

// After is the schema after the unit.
func (c *Change) After() *schema.Schema { return c.after }

// Commit is the number of pages of the database after the unit.
func (c *Change) Commit() uint32 { return c.commit }

// PageSize is the page size in bytes after the unit.
func (c *Change) PageSize() uint32 { return c.images.PageSize() }

// NumPages is the number of pages the unit really changed.
func (c *Change) NumPages() int { return c.images.Len() }

// Pages shows the pages the unit really changed, ascending: together with
// Commit all that is needed to repeat it. The data is on loan. An error of
// visit ends the walk and is returned.
func (c *Change) Pages(visit func(pgno uint32, data []byte) error) error {
	if err := c.usable(); err != nil {
		return err
	}
	buf := make([]byte, c.images.PageSize())
	for i := range c.images.Len() {
		data, err := c.images.Page(i, buf)
		if err != nil {
			return err
		}
		if err := visit(c.images.Pgno(i), data); err != nil {
			return err
		}
	}
	return nil
}

func (c *Change) usable() error {
	if c.done || c.version != c.base.version {
		return fmt.Errorf("use a change that was accepted, closed or overtaken: %w", ErrStale)
	}
	return nil
}

// table is the diff of the table of this name, nil when nothing of it is
// concerned.
func (c *Change) table(name string) *tableDiff {
	for _, s := range [...]*slots{c.d.after, c.d.before} {
		if slot, ok := s.byName[name]; ok {
			return c.d.tables[slot]
		}
	}
	return nil
}

// Touched reports whether rows of the table of this name may have changed:
// pages with rows or their overflow pages did, or the table is on one side
// only, or its tree moved. When it is false, Rows shows nothing. It is false
// once the change was accepted or closed.
func (c *Change) Touched(name string) bool {
	if c.done {
		return false
	}
	t := c.table(name)
	return t != nil && (!t.stays || t.oldSide.any() || t.newSide.any())
}

// Rows shows the net changes of the table of this name between both states.
// Rows of a rowid table come in ascending order of rowid. Those of a WITHOUT
// ROWID table come in no particular order, but every Delete before anything
// else. A table that exists on one side
// only is all Insert or all Delete, and so is one whose key is another on
// either side, first Delete, then Insert. Where the table is declared another
// way than before, rows are compared in the columns of one name that both
// sides have, and only on pages that changed: a column added with a default
// changes no row here, though it does to a reader.
//
// ErrNoTable is wrapped when neither side has the name, ErrUnreadable when
// the columns of a side are not known.
func (c *Change) Rows(name string, visit Visitor) error {
	if err := c.usable(); err != nil {
		return err
	}
	was, is := c.before.ByName(name), c.after.ByName(name)
	if was == nil && is == nil {
		return fmt.Errorf("show changes of table %q: %w", name, ErrNoTable)
	}
	t := c.table(name)
	if !c.Touched(name) {
		return nil
	}
	for _, side := range [...]*schema.Table{was, is} {
		if side != nil && side.Root != 0 {
			if err := readable(side); err != nil {
				return err
			}
		}
	}
	hasOld, hasNew := was != nil && was.Root != 0, is != nil && is.Root != 0
	switch {
	case !hasOld && !hasNew:
		return nil
	case !hasOld:
		return scan(&c.d.new, is, t.new, Insert, visit)
	case !hasNew:
		return scan(&c.d.old, was, t.old, Delete, visit)
	case !joinable(was, is):
		if err := scan(&c.d.old, was, t.old, Delete, visit); err != nil {
			return err
		}
		return scan(&c.d.new, is, t.new, Insert, visit)
	}
	j, err := beginJoin(c.d, t, was, is, visit)
	if err != nil {
		return err
	}
	defer j.end()
	if was.WithoutRowid {
		return j.byKey(c.base.memory, c.base.tempDir)
	}
	return j.byRowid()
}

// joinable reports whether rows of both sides can be told to be the same: by
// rowid, or by a primary key of the same columns.
func joinable(was, is *schema.Table) bool {
	if was.WithoutRowid != is.WithoutRowid || was.KeyFields != is.KeyFields {
		return false
	}
	for i := range was.KeyFields {
		if was.Columns[was.Stored[i]].Name != is.Columns[is.Stored[i]].Name {
			return false
		}
	}
	return true
}

// Scan shows every row of the table after the unit as Insert, in the order of
// the tree.
func (c *Change) Scan(name string, visit Visitor) error {
	if err := c.usable(); err != nil {
		return err
	}
	t := c.after.ByName(name)
	if t == nil {
		return fmt.Errorf("scan table %q: %w", name, ErrNoTable)
	}
	return scan(&c.d.new, t, c.d.after.of(name), Insert, visit)
}

// Accept makes the state after the unit the base's own: the pages are staged
// in the shadow, which owns the images from now on. The change cannot be used
// any more.
func (c *Change) Accept() error {
	if err := c.usable(); err != nil {
		return err
	}
	if sh := c.base.shadow; c.images.Len() > 0 || c.commit != sh.Commit() || c.images.PageSize() != sh.PageSize() {
		sh.Stage(c.images, c.commit)
	} else if err := c.images.Close(); err != nil {
		c.finish()
		return err
	}
	c.base.adopt(c.d, c.after)
	c.finish()
	return nil
}

// Close gives the change up and closes the images, unless it was accepted. It
// may be called in any case and more than once.
func (c *Change) Close() error {
	if c.done {
		return nil
	}
	c.finish()
	return c.images.Close()
}

// Release gives the change up, unless it was accepted or closed, and leaves
// the images with the caller, who may diff them again.
func (c *Change) Release() {
	if !c.done {
		c.finish()
	}
}

// finish ends the use of the change.
func (c *Change) finish() {
	c.done = true
	c.base.shared.giveBack(c.d)
	c.d = nil
}
