// Package diffpage finds the row and schema changes between two states of a
// SQLite database from the pages that changed, without opening it: an owner
// map names the table of every page, the changed and vanished row-bearing
// pages of each table are joined by key, and whatever is on untouched pages
// cancels out. It knows neither celld nor records.
package diffpage

// Class is the storage class of a value.
type Class uint8

// The storage classes of SQLite.
const (
	Null Class = iota
	Integer
	Real
	Text
	Blob
)

// Cell is one column's value of one row, as SQLite would read it: affinity,
// column defaults of short records and the rowid alias are applied. Bytes of
// Text and Blob are the stored bytes, Text in the database's encoding; they
// are valid only during the visit.
type Cell struct {
	Class Class
	Int   int64
	Real  float64
	Bytes []byte
}

// Op is what happened to a row.
type Op uint8

// The operations of a row change.
const (
	Insert Op = iota
	Update
	Delete
)

// Row is a decoded row on loan for the length of a visit.
type Row interface {
	// Rowid is the row's rowid; 0 for a WITHOUT ROWID table.
	Rowid() int64
	// Cell is the value of the i-th column of the table's Columns. Virtual
	// generated columns, which are not stored, are Null.
	Cell(i int) (Cell, error)
}

// Visitor takes row changes: before is nil for Insert, after is nil for
// Delete. Changes of a rowid table are joined by rowid, those of a WITHOUT
// ROWID table by its primary key. An error ends the walk and is returned.
type Visitor func(op Op, before, after Row) error
