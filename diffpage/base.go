package diffpage

import (
	"errors"

	"celldexport/diffpage/schema"
	"celldexport/diffpage/shadow"
)

var errStub = errors.New("not there yet")

// Base is the state of one database at its last accepted unit: its pages, the
// table every page belongs to, and its schema.
type Base struct{}

// Option changes how a Base works.
type Option func(*Base)

// NewBase takes over the state the shadow holds; an empty one is allowed.
func NewBase(sh *shadow.Shadow, opts ...Option) (*Base, error) { return nil, errStub }

// OpenBase is NewBase with an owner map that MarshalOwners gave out under the
// same tag.
func OpenBase(sh *shadow.Shadow, tag string, owners []byte, opts ...Option) (*Base, error) {
	return nil, errStub
}

// MarshalOwners is the owner map in a form to be kept beside the shadow.
func (b *Base) MarshalOwners(tag string) ([]byte, error) { return nil, errStub }

// Schema is the schema of the present state.
func (b *Base) Schema() *schema.Schema { return nil }

// Scan shows every row of the table in the present state as Insert.
func (b *Base) Scan(name string, v Visitor) error { return errStub }

// Diff compares the present state with the one after a unit.
func (b *Base) Diff(images *shadow.Images, commit uint32) (*Change, error) { return nil, errStub }

// Change is what one unit changed.
type Change struct{}

// Before is the schema before the unit.
func (c *Change) Before() *schema.Schema { return nil }

// After is the schema after the unit.
func (c *Change) After() *schema.Schema { return nil }

// Commit is the number of pages after the unit.
func (c *Change) Commit() uint32 { return 0 }

// NumPages is the number of pages the unit really changed.
func (c *Change) NumPages() int { return 0 }

// Pages shows the pages the unit really changed, ascending.
func (c *Change) Pages(visit func(pgno uint32, data []byte) error) error { return errStub }

// Touched reports whether the unit may have changed rows of the table.
func (c *Change) Touched(name string) bool { return false }

// Rows shows the net row changes of the table of that name.
func (c *Change) Rows(name string, v Visitor) error { return errStub }

// Scan shows every row of the table after the unit as Insert.
func (c *Change) Scan(name string, v Visitor) error { return errStub }

// Accept moves the base to the state after the unit.
func (c *Change) Accept() error { return errStub }

// Close gives up the change; the images too unless it was accepted.
func (c *Change) Close() error { return nil }
