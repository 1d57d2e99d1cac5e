package diffpage

import (
	"bytes"
	"slices"
	"unsafe"

	"celldexport/diffpage/btree"
	"celldexport/diffpage/shadow"
)

// runBytes is how much of adjacent pages is read of the shadow at once.
const runBytes = 128 << 10

// reservePages bounds what is set aside for old pages before it is known how
// many of a unit's pages differ.
const reservePages = 64

// comparison finds the pages of a unit that are not what they were, and takes
// from the old ones what the diff is going to need while they are at hand.
type comparison struct {
	*differ
	images *shadow.Images
	budget int64 // bytes that may still be kept
	whole  bool  // the unit is most of the database
	equal  pageSet
	now    []byte
	was    btree.Page
	is     btree.Page
}

// compare drops the images that equal the page they replace. What is left in
// images is what the unit changed. Of the old pages, excerpts are kept, or all
// of them where that will not do, as long as they fit the budget.
func compare(d *differ, images *shadow.Images, budget int64) error {
	if err := d.within(images); err != nil {
		return err
	}
	if images.PageSize() != d.old.pageSize {
		// Nothing of the old pages may be taken for one that is missing.
		d.reset = true
		return d.complete(images, 0)
	}
	if d.old.commit == 0 {
		d.reset = true
		return nil
	}
	d.kept.Reset(d.old.pageSize, budget, min(images.Len(), reservePages))
	c := comparison{differ: d, images: images, budget: budget, whole: uint64(images.Len())*2 >= uint64(d.old.commit)}
	for i := 0; i < images.Len() && images.Pgno(i) <= d.old.commit; {
		n := c.run(i)
		if n == 0 {
			d.changed.add(images.Pgno(i))
			i++
			continue
		}
		if err := c.read(i, n); err != nil {
			return err
		}
		i += n
	}
	if len(c.equal.chunks) > 0 {
		images.Keep(func(pgno uint32) bool { return !c.equal.has(pgno) })
	}
	d.old.images = d.kept
	return nil
}

// run is how many of the unit's pages, from the i-th, replace pages that lie
// side by side and are to be read; 0 when the first of them is not. Whose page
// no table's is, index pages above all, is taken for changed without a look at
// it: the diff never reads it. Only if the unit holds most of the database,
// because it starts with an image of it, are all compared, or an image that
// changes next to nothing would be kept in full.
func (c *comparison) run(i int) int {
	n, first := 0, c.images.Pgno(i)
	most := max(1, runBytes/int(c.old.pageSize))
	for n < most && i+n < c.images.Len() {
		pgno := c.images.Pgno(i + n)
		if pgno != first+uint32(n) || pgno > c.old.commit || !c.whole && c.owners.of(pgno).role() == roleNone {
			break
		}
		n++
	}
	return n
}

// read compares a run of pages.
func (c *comparison) read(i, n int) error {
	size := int(c.old.pageSize)
	c.readBuf = slices.Grow(c.readBuf[:0], n*size)[:n*size]
	if err := c.old.sh.Pages(c.images.Pgno(i), c.readBuf); err != nil {
		return err
	}
	for k := range n {
		if !c.images.InMemory() && c.now == nil {
			c.now = make([]byte, size)
		}
		now, err := c.images.Page(i+k, c.now)
		if err != nil {
			return err
		}
		if err := c.page(c.images.Pgno(i+k), c.readBuf[k*size:(k+1)*size], now); err != nil {
			return err
		}
	}
	return nil
}

// page compares one.
func (c *comparison) page(pgno uint32, was, now []byte) error {
	if bytes.Equal(was, now) {
		c.equal.add(pgno)
		return nil
	}
	// The header on page 1 changes more often than the tree page behind it.
	if pgno > 1 || !bytes.Equal(was[btree.HeaderSize:], now[btree.HeaderSize:]) {
		c.changed.add(pgno)
	}
	switch c.owners.of(pgno).role() {
	case roleNone:
		return nil
	case roleTree:
		if c.excerpt(pgno, was, now) {
			return nil
		}
	}
	if size := int64(len(was)); size <= c.budget {
		c.budget -= size
		return c.kept.Add(pgno, was)
	}
	return nil
}

// excerpt takes what the diff needs of a leaf, if that is less than the page.
func (c *comparison) excerpt(pgno uint32, was, now []byte) bool {
	const entry = int64(unsafe.Sizeof(excerpt{}))
	if c.budget < entry || c.was.Parse(pgno, was, c.old.usable) != nil || c.is.Parse(pgno, now, c.old.usable) != nil {
		return false
	}
	before, heads := len(c.excerpts.cells), len(c.excerpts.heads)
	if !c.excerpts.add(&c.was, &c.is, pgno, c.budget-entry) {
		return false
	}
	c.budget -= entry + int64(len(c.excerpts.cells)-before) + int64(len(c.excerpts.heads)-heads)*headSize
	return c.excerpts.list[len(c.excerpts.list)-1].kept
}
