package diffpage

// register is who leaves and who takes which page in a diff.
type register struct {
	released pageSet // pages of the old state that left their tree or chain
	claimed  pageSet // pages of the new state that got an owner
	claims   claimLog
	// scratch is the map of a state that nothing is compared with: claims go
	// into it at once, and rows are on no side.
	scratch ownerMap
}

// claim gives a page of the new state its owner, once.
func (r *register) claim(table string, pgno uint32, o owner) error {
	if r.scratch != nil {
		if r.scratch[pgno] != 0 {
			return corrupt(table, pgno, "it is referred to twice")
		}
		r.scratch[pgno] = o
		return nil
	}
	if !r.claimed.add(pgno) {
		return corrupt(table, pgno, "it is referred to twice")
	}
	r.claims.add(claim{pgno, o})
	return nil
}
