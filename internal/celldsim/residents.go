package celldsim

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// residents is the set of cells and facets that a node holds, by scope.
type residents struct {
	mu    sync.Mutex
	cells map[string]*Cell
}

func (r *residents) get(scope string) (*Cell, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.cells[scope]
	return c, ok
}

func (r *residents) add(c *Cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cells == nil {
		r.cells = map[string]*Cell{}
	}
	r.cells[c.Scope()] = c
}

func (r *residents) remove(c *Cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cells, c.Scope())
}

// scopes lists the scopes in order.
func (r *residents) scopes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.cells))
}

// below lists a scope and the facets below it, every facet before the one
// that holds it. "" lists everything.
func (r *residents) below(top string) []*Cell {
	r.mu.Lock()
	defer r.mu.Unlock()
	var family []*Cell
	for scope, c := range r.cells {
		if top == "" || scope == top || strings.HasPrefix(scope, top+"/") {
			family = append(family, c)
		}
	}
	slices.SortFunc(family, func(a, b *Cell) int { return strings.Compare(b.Scope(), a.Scope()) })
	return family
}
