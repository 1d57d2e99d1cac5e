// Package envelope is the record format of the change export: streams,
// positions, values, the ten kinds of record, their JSON, their fragments and
// the counting that watermarks certify.
//
// A record is one flat JSON object: the fields of the [Envelope], then "kind",
// then the fields of the kind's [Body]. The format is shared with other
// implementations, so field order and the spelling of numbers are exact:
// [Encode] of what [Decode] read gives the one canonical spelling.
//
// Three ways lead to JSON. [Encode] takes a [Record] of Go values. The Append
// functions write one value each and allocate nothing; together with a
// [Splitter] they turn rows into records without a Go value per column. An
// [Encoded] holds a finished record, as it is stored and sent.
//
// What a reader makes of a set of records is package apply.
package envelope

// Stream names the state of one cell or facet. Every record belongs to one.
type Stream struct {
	// Script, Class and Cell name the root cell; Cell is "Class:id". Script
	// is empty on records of dead-node recovery and on streams older than
	// script names.
	Script, Class, Cell string
	// Facet is the facet path below the root, "" for the root itself.
	Facet string
	// Incarnation tells lives of the same name apart; later lives have
	// larger numbers.
	Incarnation uint64
}

// Position orders the records of one stream totally: epoch, then txid, then
// commit. Several records may share a position.
type Position struct {
	Epoch, TXID, Commit uint64
}

// Origin says who made a record.
type Origin string

// The origins of a record. At equal positions repair wins over snapshot and
// snapshot over live.
const (
	Live     Origin = "live"
	Snapshot Origin = "snapshot"
	Repair   Origin = "repair"
)

// Kind is the kind of a record.
type Kind string

// The kinds of record.
const (
	KindRows        Kind = "rows"
	KindSnapshot    Kind = "snapshot"
	KindSnapshotEnd Kind = "snapshot_end"
	KindSchema      Kind = "schema"
	KindLink        Kind = "link"
	KindRecovered   Kind = "recovered"
	KindDeleted     Kind = "deleted"
	KindWatermark   Kind = "watermark"
	KindBulk        Kind = "bulk"
	KindGap         Kind = "gap"
)

// Envelope is what every record carries beside its body.
type Envelope struct {
	Stream Stream
	// CellName is the Durable Object's name, nil when it has none.
	CellName *string
	Position Position
	// CommittedAt is in milliseconds since the Unix epoch.
	CommittedAt int64
	Node        string
	Origin      Origin
	// Fragment is i of the k Fragments a record is split into, from 1.
	Fragment, Fragments uint32
}

// Encoded is a record with its body already written as JSON. It is what the
// spool keeps and what every sink sends, so a resend is the same bytes.
type Encoded struct {
	Envelope
	Kind Kind
	// Body is a JSON object: "kind" first, then the fields of the kind.
	Body []byte
}
