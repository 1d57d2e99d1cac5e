package diffpage

import (
	"bytes"
	"slices"

	"celldexport/diffpage/btree"
	"celldexport/diffpage/shadow"
)

// delta is two states and the pages in which they differ.
type delta struct {
	old, new view
	// reset says that page numbers mean nothing across the unit (another page
	// size, another encoding, or no state before): every page has changed.
	reset bool
	// changed holds the pages whose content as part of a tree or chain is not
	// what it was, among those both states have.
	changed pageSet
}

// hasChanged reports whether a page of the old state is no part of the new
// one as it was.
func (d *delta) hasChanged(pgno uint32) bool {
	return d.reset || pgno > d.new.commit || pgno > d.old.commit || d.changed.has(pgno)
}

// reservePages bounds what is set aside for old pages before it is known how
// many of a unit's pages differ.
const reservePages = 256

// compare drops the images that equal the page they replace, and keeps the
// old pages it had to read as long as they fit the budget. What is left in
// images is what the unit changed.
func (d *delta) compare(images, kept *shadow.Images, budget int64) error {
	if images.PageSize() != d.old.pageSize || d.old.commit == 0 {
		d.reset = true
		return d.complete(images, 0)
	}
	if err := d.complete(images, d.old.commit); err != nil {
		return err
	}
	kept.Reset(d.old.pageSize, budget, min(images.Len(), reservePages))
	var equal pageSet
	var nowBuf, wasBuf []byte
	for i := range images.Len() {
		pgno := images.Pgno(i)
		if pgno > d.old.commit {
			break
		}
		nowBuf = slices.Grow(nowBuf[:0], int(d.old.pageSize))
		now, err := images.Page(i, nowBuf)
		if err != nil {
			return err
		}
		slot := kept.Slot()
		if slot == nil {
			wasBuf = slices.Grow(wasBuf[:0], int(d.old.pageSize))
			slot = wasBuf
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

// complete checks that the unit brings every page above from: a page that was
// never seen cannot be told from one that is empty.
func (d *delta) complete(images *shadow.Images, from uint32) error {
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
