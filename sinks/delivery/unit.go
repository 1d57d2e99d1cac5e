// Package delivery is the durable queue between the diff and the sinks: the
// spool (one atomic write per unit, group-committed), each sink's cursor over
// it, what a sink has acknowledged, and the watermarks that certify it.
package delivery

import "celldexport/envelope"

// Form is what an entry of the spool is.
type Form uint8

// The forms of a spool entry.
const (
	// FormUnit carries an LTX unit's page images and records.
	FormUnit Form = iota + 1
	// FormRecords carries records that are no unit: link, gap, deleted, a
	// re-base in an epoch that has records.
	FormRecords
	// FormWatermark carries one watermark for one sink.
	FormWatermark
	// FormClose carries nothing: the residency is closed, what was delivered
	// of it is to be certified without waiting.
	FormClose
)

// Unit identifies a spool entry. All its records are at Position.
type Unit struct {
	Form   Form
	Stream envelope.Stream
	// CellName and CommittedAt are repeated on watermarks of the stream.
	CellName    *string
	CommittedAt int64
	Node        string
	// Scope is the bucket scope: the cell, or cell/facets/... of a facet.
	Scope    string
	Position envelope.Position
	// MinTXID and MaxTXID are what the unit covers. PageSize and Commit are
	// the database's page size in bytes and size in pages after it; Checksum
	// is the file checksum of the LTX file that it was read from.
	MinTXID, MaxTXID uint64
	PageSize, Commit uint32
	Checksum         uint64
	// Sink names the only sink the entry is for, "" for all.
	Sink string
	// Uncertified streams get no watermark in this epoch: their chain was
	// lost with the state directory.
	Uncertified bool
}
