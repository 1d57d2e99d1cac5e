// Package rowset turns what changed in a database into the records of the
// change export: it decides which tables leave the node and under which name
// and key, which generation of a table a record speaks of, and writes rows as
// JSON straight from page bytes.
//
// Its work is split in two. A Plan is decided once per unit, from the schemas
// on both sides and from the generations that the ledger holds, and says what
// happens to each table name; it reads no row. Plan.Encode and Plan.Snapshot
// then walk the rows and hand out finished records in the one order in which
// they may be sent. Both are pure: the same unit, base, ledger and options
// give the same bytes, however often and wherever they run.
package rowset

import (
	"celldexport/diffpage"
	"celldexport/diffpage/schema"
	"celldexport/envelope"
)

// Image is one state of a database that can be read whole.
type Image interface {
	// After is the schema of the state.
	After() *schema.Schema
	// Scan visits every row of the table stored under name as an insert.
	Scan(name string, v diffpage.Visitor) error
}

// Source is one unit: the states before and after it and the rows between
// them. *diffpage.Change is one.
type Source interface {
	Image
	// Before is the schema of the base, never nil; it holds no tables when
	// the database was empty.
	Before() *schema.Schema
	// Touched says whether the table stored under name may have row changes.
	// False is exact, true may turn out to be no change.
	Touched(name string) bool
	// Rows visits the net row changes of the table stored under name, by
	// ascending rowid for a rowid table.
	Rows(name string, v diffpage.Visitor) error
}

// State is what a *diffpage.Base offers: the current state of a stream.
type State interface {
	Schema() *schema.Schema
	Scan(name string, v diffpage.Visitor) error
}

// ImageOf reads a state as an Image.
func ImageOf(s State) Image { return stateImage{s} }

type stateImage struct{ State }

func (i stateImage) After() *schema.Schema { return i.Schema() }

// Options are the settings that records depend on.
type Options struct {
	// Scope is the bucket scope of the stream: the cell, followed by the
	// facet path for a facet. Key-value rows of other scopes are leftovers
	// and are not exported.
	Scope string
	// Deny says whether the table exported under a name is withheld by the
	// user's settings. Nil denies nothing.
	Deny func(exportedName string) bool
	// MaxRecordBytes is the size in bytes above which a record is split into
	// fragments.
	MaxRecordBytes int64
	// MemoryBytes is how much memory in bytes one unit's rows may take
	// before they go to temporary files. It never changes what is emitted.
	MemoryBytes int64
	// TempDir is where those files are made; the system's directory when
	// empty.
	TempDir string
	// Scratch is memory to work in, shared by plans that are never at work at
	// the same time; nil takes new memory for every unit.
	Scratch *Scratch
	// DecodeKV appends the JSON text of a stored key-value value to dst and
	// returns it, or returns false when the bytes do not decode, which
	// exports them as they are. Nil exports every value as stored.
	DecodeKV func(dst, stored []byte) ([]byte, bool)
	// RepeatEnds is for a snapshot of the whole stream: every end of a
	// generation that the ledger has is said again, because the unit that
	// ended it may never have been carried, and a snapshot that does not list
	// a table leaves it open.
	RepeatEnds bool
}

// Stats counts what one Encode or Snapshot did.
type Stats struct {
	// Records counts whole records, fragments of one record once.
	Records int
	// Inserts, Updates and Deletes count rows of rows records, Snapshot
	// those of snapshot records.
	Inserts, Updates, Deletes, Snapshot int64
	// NullKeys counts rows left out because their declared key holds NULL,
	// once per side of a change.
	NullKeys int64
	// Oversized counts rows that ride alone in a fragment above the limit.
	Oversized int64
	// Described lists the generations whose schema was emitted. They are
	// described for the rest of the epoch once the records are stored.
	Described []envelope.TableGeneration
	// Bulk lists the generations that a bulk record of the unit names.
	// Incomplete lists those that a re-base could not show whole: a bulk at
	// the next position has to name them. Both are sorted by table.
	Bulk, Incomplete []envelope.TableGeneration
	// Reasons says why, for each generation of Bulk and Incomplete and for
	// tables whose definition cannot be read; for logs.
	Reasons []Reason
}

// Reason says why a table is exported without rows.
type Reason struct {
	envelope.TableGeneration
	Reason string
}
