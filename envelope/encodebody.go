package envelope

import (
	"fmt"
	"strconv"
)

func (b *Rows) appendFields(dst []byte) ([]byte, error) {
	dst = b.appendHead(dst)
	for i := range b.Changes {
		if i > 0 {
			dst = append(dst, ',')
		}
		c := &b.Changes[i]
		if c.Op != Insert && c.Op != Update && c.Op != Delete {
			return dst, fmt.Errorf("change %d of %s has the unknown op %q", i, b.Table, c.Op)
		}
		dst = c.Append(dst)
	}
	return append(dst, ']'), nil
}

// appendHead appends the fields up to the opening bracket of the rows.
func (b *Rows) appendHead(dst []byte) []byte {
	dst = appendField(dst, "table")
	dst = AppendString(dst, b.Table)
	dst = appendUintField(dst, "generation", b.Generation)
	dst = appendField(dst, "columns")
	dst = appendStrings(dst, b.Columns)
	dst = appendField(dst, "key_columns")
	dst = appendStrings(dst, b.KeyColumns)
	dst = appendField(dst, "rows")
	return append(dst, '[')
}

// Append appends the change as a record carries it: ["op",[key],[row]].
func (c *RowChange) Append(dst []byte) []byte {
	dst = append(dst, '[')
	dst = AppendString(dst, string(c.Op))
	dst = append(dst, ',')
	dst = appendValues(dst, c.Key)
	dst = append(dst, ',')
	dst = appendValues(dst, c.Row)
	return append(dst, ']')
}

func (b *SnapshotRows) appendFields(dst []byte) ([]byte, error) {
	dst = appendField(dst, "snapshot_id")
	dst = AppendString(dst, b.SnapshotID)
	return b.Rows.appendFields(dst)
}

func (b *SnapshotEnd) appendFields(dst []byte) ([]byte, error) {
	if b.Scope != ScopeStream && b.Scope != ScopeTables {
		return dst, fmt.Errorf("snapshot %q has the unknown scope %q", b.SnapshotID, b.Scope)
	}
	dst = appendField(dst, "snapshot_id")
	dst = AppendString(dst, b.SnapshotID)
	dst = appendField(dst, "scope")
	dst = AppendString(dst, string(b.Scope))
	dst = appendTables(dst, b.Tables)
	return appendUintField(dst, "records", b.Records), nil
}

func (b *Schema) appendFields(dst []byte) ([]byte, error) {
	dst = appendField(dst, "table")
	dst = AppendString(dst, b.Table)
	dst = appendUintField(dst, "generation", b.Generation)
	dst = appendField(dst, "sql")
	dst = AppendString(dst, b.SQL)
	dst = appendField(dst, "columns")
	dst = append(dst, '[')
	for i := range b.Columns {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = b.Columns[i].append(dst)
	}
	dst = append(dst, ']')
	dst = appendIfTrue(dst, "dropped", b.Dropped)
	if b.RenamedFrom != nil {
		dst = appendField(dst, "renamed_from")
		dst = AppendString(dst, *b.RenamedFrom)
	}
	return appendIfTrue(dst, "unsupported", b.Unsupported), nil
}

func (c *ColumnDef) append(dst []byte) []byte {
	dst = append(dst, `{"name":`...)
	dst = AppendString(dst, c.Name)
	dst = appendField(dst, "type")
	dst = AppendString(dst, c.Type)
	dst = appendUintField(dst, "pk", c.PrimaryKey)
	dst = appendField(dst, "not_null")
	dst = strconv.AppendBool(dst, c.NotNull)
	dst = appendField(dst, "generated")
	dst = strconv.AppendBool(dst, c.Generated)
	return append(dst, '}')
}

func (b *Link) appendFields(dst []byte) ([]byte, error) {
	switch b.Mode {
	case ModeFresh, ModeClone, ModePaged, ModeResume:
	default:
		return dst, fmt.Errorf("link has the unknown mode %q", b.Mode)
	}
	dst = appendUintField(dst, "start_txid", b.StartTXID)
	dst = appendField(dst, "prev_epoch")
	dst = appendUintOrNull(dst, b.PrevEpoch)
	dst = appendField(dst, "prev_txid")
	dst = appendUintOrNull(dst, b.PrevTXID)
	dst = appendField(dst, "mode")
	return AppendString(dst, string(b.Mode)), nil
}

func (b *Recovered) appendFields(dst []byte) ([]byte, error) {
	dst = appendField(dst, "session")
	dst = AppendString(dst, b.Session)
	dst = appendPosition(appendField(dst, "head"), b.Head)
	dst = appendIfTrue(dst, "loss", b.Loss)
	return appendUintField(dst, "cells", b.Cells), nil
}

func (b *Deleted) appendFields(dst []byte) ([]byte, error) {
	if b.TargetFacet != "" {
		dst = appendField(dst, "target_facet")
		dst = AppendString(dst, b.TargetFacet)
	}
	if b.TargetIncarnation != nil {
		dst = appendUintField(dst, "target_incarnation", *b.TargetIncarnation)
	}
	dst = appendIfTrue(dst, "subtree", b.Subtree)
	if b.ThroughIncarnation != nil {
		dst = appendUintField(dst, "through_incarnation", *b.ThroughIncarnation)
	}
	return dst, nil
}

func (b *Watermark) appendFields(dst []byte) ([]byte, error) {
	dst = appendField(dst, "from")
	if b.From == nil {
		dst = AppendNull(dst)
	} else {
		dst = appendPosition(dst, *b.From)
	}
	dst = appendPosition(appendField(dst, "through"), b.Through)
	dst = appendUintField(dst, "commits", b.Commits)
	return appendUintField(dst, "records", b.Records), nil
}

func (b *Bulk) appendFields(dst []byte) ([]byte, error) {
	return appendTables(dst, b.Tables), nil
}

func (b *Gap) appendFields(dst []byte) ([]byte, error) {
	dst = appendPosition(appendField(dst, "from"), b.From)
	dst = appendPosition(appendField(dst, "to"), b.To)
	dst = appendField(dst, "reason")
	return AppendString(dst, b.Reason), nil
}

// appendField appends the comma, name and colon of a field that is not the
// first. Names are plain ASCII.
func appendField(dst []byte, name string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

func appendUintField(dst []byte, name string, n uint64) []byte {
	return strconv.AppendUint(appendField(dst, name), n, 10)
}

// appendIfTrue appends a flag, which is left out when it is not set.
func appendIfTrue(dst []byte, name string, set bool) []byte {
	if !set {
		return dst
	}
	return append(appendField(dst, name), "true"...)
}

func appendTables(dst []byte, tables []TableGeneration) []byte {
	dst = appendField(dst, "tables")
	dst = append(dst, '[')
	for i, tg := range tables {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"table":`...)
		dst = AppendString(dst, tg.Table)
		dst = appendUintField(dst, "generation", tg.Generation)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

func appendPosition(dst []byte, p Position) []byte {
	dst = append(dst, `{"epoch":`...)
	dst = strconv.AppendUint(dst, p.Epoch, 10)
	dst = appendUintField(dst, "txid", p.TXID)
	dst = appendUintField(dst, "commit", p.Commit)
	return append(dst, '}')
}
