// Package celld holds the names a celld node gives to things and the small
// JSON documents it keeps in the fleet bucket: scopes, the directories of the
// local tree, object keys, cell ids, own.json, deployments. It is pure: it
// builds and parses names and never touches a disk or a bucket.
package celld

import (
	"errors"
	"fmt"
	"strings"
)

// ErrName is wrapped by every error about a name that celld could not have
// given: a scope, a key, a node.
var ErrName = errors.New("not a celld name")

// MaxCellName is the longest cell name in bytes. A cell's name is also the
// name of its directory, which file systems limit to this.
const MaxCellName = 255

// maxFacetDepth is how many facets may be nested below a root cell (celld
// allows four levels, the root included).
const maxFacetDepth = 3

// facetsSegment is the path segment in front of every facet's hash.
const facetsSegment = "facets"

// Scope names one database: a cell, or a facet below a cell.
type Scope struct {
	// Cell is the name of the root cell, "Class:id".
	Cell string
	// Facet is the path below it, "facets/<32 hex>" repeated, or "" for the
	// root cell itself.
	Facet string
}

// ParseScope reads a scope as celld spells it in directories and keys:
// "Class:id" or "Class:id/facets/<h>[/facets/<h>...]". Errors wrap ErrName.
func ParseScope(s string) (Scope, error) {
	cell, facet, nested := strings.Cut(s, "/")
	if err := CheckCellName(cell); err != nil {
		return Scope{}, err
	}
	if nested {
		if err := checkFacet(facet); err != nil {
			return Scope{}, fmt.Errorf("scope %.300q: %w", s, err)
		}
	}
	return Scope{Cell: cell, Facet: facet}, nil
}

// CheckCellName reports why name cannot be the name of a root cell: it is
// used verbatim as a directory and as a key segment, so celld allows ASCII
// letters, digits and "_-.:$" only, 1 to 255 bytes, and neither "." nor "..".
func CheckCellName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("empty cell name: %w", ErrName)
	case len(name) > MaxCellName:
		return fmt.Errorf("cell name of %d bytes, at most %d: %w", len(name), MaxCellName, ErrName)
	case name == "." || name == "..":
		return fmt.Errorf("cell name %q: %w", name, ErrName)
	}
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && !strings.ContainsRune("_-.:$", rune(c)) {
			return fmt.Errorf("cell name %.300q has the byte %q: %w", name, c, ErrName)
		}
	}
	return nil
}

func checkFacet(facet string) error {
	parts := strings.Split(facet, "/")
	if len(parts)%2 != 0 {
		return fmt.Errorf("facet path is not made of facets/<hash> pairs: %w", ErrName)
	}
	if len(parts)/2 > maxFacetDepth {
		return fmt.Errorf("facet path is %d deep, at most %d: %w", len(parts)/2, maxFacetDepth, ErrName)
	}
	for i := 0; i < len(parts); i += 2 {
		if parts[i] != facetsSegment || !IsFacetHash(parts[i+1]) {
			return fmt.Errorf("facet path is not made of facets/<hash> pairs: %w", ErrName)
		}
	}
	return nil
}

// IsFacetHash reports whether s is the hash that names a facet: 32 lower-case
// hex digits, the first 16 bytes of the SHA-256 of the facet's name.
func IsFacetHash(s string) bool {
	return len(s) == 32 && isLowerHex(s)
}

// String is the scope as celld spells it.
func (s Scope) String() string {
	if s.Facet == "" {
		return s.Cell
	}
	return s.Cell + "/" + s.Facet
}

// Root is the scope of the root cell.
func (s Scope) Root() Scope { return Scope{Cell: s.Cell} }

// IsFacet reports whether the scope is below a root cell.
func (s Scope) IsFacet() bool { return s.Facet != "" }

// Class is the class of the root cell.
func (s Scope) Class() string { return Class(s.Cell) }

// ID is what follows the class in the root cell's name; "" when the name has
// no colon.
func (s Scope) ID() string {
	_, id, _ := strings.Cut(s.Cell, ":")
	return id
}

// Child is the scope of the facet with the given hash directly below s. The
// hash is not checked; a name read from a disk goes through ParseScope.
func (s Scope) Child(hash string) Scope {
	below := facetsSegment + "/" + hash
	if s.Facet != "" {
		below = s.Facet + "/" + below
	}
	return Scope{Cell: s.Cell, Facet: below}
}

// Class is the class of a cell or scope name: the text before the first
// colon of the root's name, all of it when there is none.
func Class(scope string) string {
	cell, _, _ := strings.Cut(scope, "/")
	class, _, _ := strings.Cut(cell, ":")
	return class
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isLowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return false
		}
	}
	return true
}
