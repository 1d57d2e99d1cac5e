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
// too (it holds INT).
func affinityOf(typ string, strict bool) Affinity {
	t := strings.ToUpper(typ)
	switch {
	case strict && t == "ANY":
		return None
	case strings.Contains(t, "INT"):
		return IntegerAffinity
	case strings.Contains(t, "CHAR"), strings.Contains(t, "CLOB"), strings.Contains(t, "TEXT"):
		return TextAffinity
	case strings.Contains(t, "BLOB"), t == "":
		return None
	case strings.Contains(t, "REAL"), strings.Contains(t, "FLOA"), strings.Contains(t, "DOUB"):
		return RealAffinity
	}
	return Numeric
}
