package envelope

// Body is what a record of one kind carries: one of *[Rows], *[SnapshotRows],
// *[SnapshotEnd], *[Schema], *[Link], *[Recovered], *[Deleted], *[Watermark],
// *[Bulk] and *[Gap].
type Body interface {
	// Kind is the record kind that the body belongs to.
	Kind() Kind
	// appendFields appends the fields after "kind", each with a comma before
	// it. It fails on a value that no reader would take.
	appendFields(dst []byte) ([]byte, error)
}

// Record is a record in Go values.
type Record struct {
	Envelope
	Body Body
}

// TableGeneration names one life of a table, by the table's exported name.
type TableGeneration struct {
	Table      string
	Generation uint64
}

// Op is what happened to a row.
type Op string

// The operations of a row change.
const (
	Insert Op = "I"
	Update Op = "U"
	Delete Op = "D"
)

// RowChange is one row's change. Key follows the record's key columns and Row
// its columns: all values after the change, for Delete those before it.
type RowChange struct {
	Op       Op
	Key, Row []Value
}

// Rows is the net change that one commit made to one table.
type Rows struct {
	TableGeneration
	Columns, KeyColumns []string
	Changes             []RowChange
}

// SnapshotRows is a table's content at the record's position; every change is
// an Insert. It takes effect with the [SnapshotEnd] of the same id.
type SnapshotRows struct {
	SnapshotID string
	Rows
}

// Scope is what a snapshot replaces.
type Scope string

// The scopes of a snapshot.
const (
	// ScopeStream replaces the whole stream: generations it does not list
	// are emptied.
	ScopeStream Scope = "stream"
	// ScopeTables replaces the listed generations.
	ScopeTables Scope = "tables"
)

// SnapshotEnd closes a snapshot of Records whole [SnapshotRows] records.
type SnapshotEnd struct {
	SnapshotID string
	Scope      Scope
	Tables     []TableGeneration
	Records    uint64
}

// ColumnDef describes a column as PRAGMA table_xinfo does.
type ColumnDef struct {
	Name string
	// Type is the declared type, "" when there is none.
	Type string
	// PrimaryKey is the column's place in the primary key from 1, 0 when it
	// is no part of it.
	PrimaryKey uint64
	NotNull    bool
	Generated  bool
}

// Schema is the definition of a table generation.
type Schema struct {
	TableGeneration
	SQL     string
	Columns []ColumnDef
	// Dropped closes the generation.
	Dropped bool
	// RenamedFrom is the table's former name, nil when it was not renamed.
	RenamedFrom *string
	// Unsupported marks a virtual table, whose rows are not exported.
	Unsupported bool
}

// Mode is how a cell came to the state that a [Link] starts from.
type Mode string

// The modes of a link.
const (
	ModeFresh  Mode = "fresh"  // nothing was restored
	ModeClone  Mode = "clone"  // a whole image was restored
	ModePaged  Mode = "paged"  // the previous epoch's chain is paged in
	ModeResume Mode = "resume" // the same epoch was reopened
)

// Link begins an epoch and names what it goes on from. PrevEpoch and PrevTXID
// are nil when there is no predecessor, PrevTXID alone when its end is
// unknown.
type Link struct {
	StartTXID           uint64
	PrevEpoch, PrevTXID *uint64
	Mode                Mode
}

// Recovered says up to where dead-node recovery saved a cell's epoch.
type Recovered struct {
	// Session is "<node>/<generation>".
	Session string
	Head    Position
	// Loss is set when acknowledged writes were lost.
	Loss bool
	// Cells is how many cells the session's recovery concerned.
	Cells uint64
}

// Deleted ends streams. Without TargetFacet it is the record's own stream;
// with it, facet streams below the record's root.
type Deleted struct {
	// TargetFacet is a facet path, "" for none.
	TargetFacet       string
	TargetIncarnation *uint64
	// Subtree includes the facets below the target.
	Subtree bool
	// ThroughIncarnation is the highest incarnation that ends.
	ThroughIncarnation *uint64
}

// Watermark certifies the positions after From (nil: from the start of the
// epoch) through Through: that many distinct positions and whole records.
type Watermark struct {
	From             *Position
	Through          Position
	Commits, Records uint64
}

// Bulk names generations that changed in a way the stream does not carry.
type Bulk struct {
	Tables []TableGeneration
}

// Gap says that changes between From and To may be missing.
type Gap struct {
	From, To Position
	Reason   string
}

// Kind is [KindRows].
func (*Rows) Kind() Kind { return KindRows }

// Kind is [KindSnapshot].
func (*SnapshotRows) Kind() Kind { return KindSnapshot }

// Kind is [KindSnapshotEnd].
func (*SnapshotEnd) Kind() Kind { return KindSnapshotEnd }

// Kind is [KindSchema].
func (*Schema) Kind() Kind { return KindSchema }

// Kind is [KindLink].
func (*Link) Kind() Kind { return KindLink }

// Kind is [KindRecovered].
func (*Recovered) Kind() Kind { return KindRecovered }

// Kind is [KindDeleted].
func (*Deleted) Kind() Kind { return KindDeleted }

// Kind is [KindWatermark].
func (*Watermark) Kind() Kind { return KindWatermark }

// Kind is [KindBulk].
func (*Bulk) Kind() Kind { return KindBulk }

// Kind is [KindGap].
func (*Gap) Kind() Kind { return KindGap }
