package bucket

import (
	"fmt"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// The columns of an object, in the order of the guide's table. All are
// required but cell_name and facet.
const (
	colKind = iota
	colScript
	colClass
	colCell
	colCellName
	colFacet
	colIncarnation
	colEpoch
	colTXID
	colCommit
	colCommittedAt
	colNode
	colOrigin
	colFragment
	colFragments
	colBody
	columnCount
)

// columnKind is how a column is stored.
type columnKind uint8

const (
	text columnKind = iota
	u64
	u32
	millis
)

// column describes one column of the format.
type column struct {
	name     string
	kind     columnKind
	optional bool
	// dictionary columns list their values once. Measured on what the exporter
	// writes, this pays where a few values alternate; values that stay the
	// same, or grow, take less room plain under zstd.
	dictionary bool
}

var columns = [columnCount]column{
	colKind:        {name: "kind", dictionary: true},
	colScript:      {name: "script"},
	colClass:       {name: "class"},
	colCell:        {name: "cell", dictionary: true},
	colCellName:    {name: "cell_name", optional: true},
	colFacet:       {name: "facet", optional: true},
	colIncarnation: {name: "incarnation", kind: u64},
	colEpoch:       {name: "epoch", kind: u64},
	colTXID:        {name: "txid", kind: u64},
	colCommit:      {name: "commit", kind: u64},
	colCommittedAt: {name: "committed_at", kind: millis},
	colNode:        {name: "node"},
	colOrigin:      {name: "origin", dictionary: true},
	colFragment:    {name: "fragment", kind: u32},
	colFragments:   {name: "fragments", kind: u32},
	colBody:        {name: "body"},
}

// The key/value metadata of an object.
const (
	// MetaSchema names the version of the columns and of the record format.
	MetaSchema = "celld-schema"
	// MetaRetention is how long the writer keeps its objects, "none" or
	// "<n>d".
	MetaRetention = "celld-retention"
	// SchemaVersion is the value of MetaSchema.
	SchemaVersion = "v0-unstable"
)

// physical is the Parquet type of a kind of column and its annotation.
func (k columnKind) physical() (parquet.Type, schema.LogicalType) {
	switch k {
	case u64:
		return parquet.Types.Int64, schema.NewIntLogicalType(64, false)
	case u32:
		return parquet.Types.Int32, schema.NewIntLogicalType(32, false)
	case millis:
		return parquet.Types.Int64, schema.NewTimestampLogicalType(true, schema.TimeUnitMillis)
	default:
		return parquet.Types.ByteArray, schema.StringLogicalType{}
	}
}

// newSchema is the Parquet schema of an object.
func newSchema() (*schema.GroupNode, error) {
	fields := make(schema.FieldList, 0, columnCount)
	for _, c := range columns {
		rep := parquet.Repetitions.Required
		if c.optional {
			rep = parquet.Repetitions.Optional
		}
		typ, logical := c.kind.physical()
		node, err := schema.NewPrimitiveNodeLogical(c.name, rep, logical, typ, -1, -1)
		if err != nil {
			return nil, fmt.Errorf("parquet column %s: %w", c.name, err)
		}
		fields = append(fields, node)
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, fields, -1)
	if err != nil {
		return nil, fmt.Errorf("parquet schema: %w", err)
	}
	return root, nil
}
