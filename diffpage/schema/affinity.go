package schema

import "strings"

// Affinity is the type affinity of a column (SQLite datatype3 3.1).
type Affinity uint8

// The affinities of SQLite. None is the one documented as BLOB.
const (
	None Affinity = iota
	TextAffinity
	Numeric
	IntegerAffinity
	RealAffinity
)

// declared is a type name that has the affinity, for a column of our own.
func (a Affinity) declared() string {
	switch a {
	case TextAffinity:
		return "TEXT"
	case Numeric:
		return "NUMERIC"
	case IntegerAffinity:
		return "INTEGER"
	case RealAffinity:
		return "REAL"
	}
	return "BLOB"
}

// affinityOf applies the rules in their documented order: the first substring
// found decides, which makes "CHARINT" an integer and "FLOATING POINT" one
// too (it holds INT). The words are found in any case.
func affinityOf(typ string, strict bool) Affinity {
	t := lower(typ)
	switch {
	case strict && t == "any":
		return None
	case strings.Contains(t, "int"):
		return IntegerAffinity
	case strings.Contains(t, "char"), strings.Contains(t, "clob"), strings.Contains(t, "text"):
		return TextAffinity
	case strings.Contains(t, "blob"), t == "":
		return None
	case strings.Contains(t, "real"), strings.Contains(t, "floa"), strings.Contains(t, "doub"):
		return RealAffinity
	}
	return Numeric
}
