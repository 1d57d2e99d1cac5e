package rowset

import (
	"strings"

	"celldexport/diffpage/schema"
)

// renames finds, per stored name that appeared in the unit, the name that
// vanished in it and is the same table: same root page, same kind of storage
// and the same definition behind the name. A pair that is missed is exported
// as a drop and a create, and one that is none (a drop whose root page a
// create of the same text took over) is a harmless way to say the same,
// because either way the new name opens a generation with a snapshot and the
// old one ends.
func renames(before, after *schema.Schema) map[string]string {
	gone := make(map[uint32]*schema.Table)
	for _, t := range before.Tables {
		if t.Root != 0 && t.Kind == schema.Ordinary && after.ByName(t.Name) == nil {
			gone[t.Root] = t
		}
	}
	if len(gone) == 0 {
		return nil
	}
	pairs := make(map[string]string)
	for _, t := range after.Tables {
		old := gone[t.Root]
		if old == nil || t.Kind != schema.Ordinary || before.ByName(t.Name) != nil {
			continue
		}
		was, okWas := definition(old.SQL)
		is, okIs := definition(t.SQL)
		if okWas && okIs && was == is && old.WithoutRowid == t.WithoutRowid {
			pairs[t.Name] = old.Name
		}
	}
	return pairs
}

// definition is what follows the table's name in its stored SQL. SQLite stores
// the text as "CREATE TABLE " and then what the user wrote from the name on;
// only the name itself may be quoted in four ways.
func definition(sql string) (string, bool) {
	rest, ok := strings.CutPrefix(sql, "CREATE TABLE ")
	if !ok || rest == "" {
		return "", false
	}
	end := rest[0]
	switch end {
	case '"', '\'', '`':
	case '[':
		end = ']'
	default:
		i := strings.IndexAny(rest, " \t\n\f\r(/-")
		if i <= 0 {
			return "", false
		}
		return rest[i:], true
	}
	for i := 1; i < len(rest); i++ {
		if rest[i] != end {
			continue
		}
		if end != ']' && i+1 < len(rest) && rest[i+1] == end {
			i++ // a doubled quote is part of the name
			continue
		}
		return rest[i+1:], true
	}
	return "", false
}
