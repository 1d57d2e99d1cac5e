package diffpage

import "celldexport/diffpage/shadow"

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

// within checks that the unit has images of no pages but those that a database
// of its length has content on.
func (d *delta) within(images *shadow.Images) error {
	if n := images.Len(); n > 0 && images.Pgno(n-1) > d.new.commit {
		return corrupt("", images.Pgno(n-1), "the unit has an image of it, but ends at page %d", d.new.commit)
	}
	if lock := shadow.LockPage(images.PageSize()); images.Has(lock) {
		return corrupt("", lock, "the unit has an image of the lock page")
	}
	return nil
}

// complete checks that the unit brings every page above from: a page that was
// never seen cannot be told from one that is empty.
func (d *delta) complete(images *shadow.Images, from uint32) error {
	lock := shadow.LockPage(images.PageSize())
	commit := d.new.commit
	next := uint64(from) + 1
	for i := images.After(from); i < images.Len(); i++ {
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
	return nil
}
