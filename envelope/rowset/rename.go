package rowset

import (
	"strings"

	"celldexport/diffpage/schema"
)

// renames finds, per stored name that appeared in the unit, the name that
// vanished in it and is the same table: same root page, same kind of storage
// and the same definition but for the name.
//
// The pages after a unit do not say how they came about, and a rename leaves
// what a drop and a create of the same rows would. The root page is what tells
// most of them apart. So a table that VACUUM or auto-vacuum moves in the unit
// that renames it is exported as a drop and a create: by text alone, which many
// tables may share, a pair would be a guess. And a drop whose root page another
// table of the same text got in the unit is exported as a rename. Either way
// the consumer has the right rows, because the old name ends and the new one
// opens a generation with a snapshot; what the records say of where the new
// table came from is then not what the writer said.
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
		if old.WithoutRowid == t.WithoutRowid && sameDefinition(old, t) {
			pairs[t.Name] = old.Name
		}
	}
	return pairs
}

// sameDefinition reports whether the SQL of two tables is the same but for
// their name, also where it refers to the table itself.
func sameDefinition(old, renamed *schema.Table) bool {
	was, okWas := definition(old.SQL)
	is, okIs := definition(renamed.SQL)
	return okWas && okIs && (was == is || onlyRenamed(was, is, old.Name, renamed.Name))
}

// onlyRenamed reports whether ALTER TABLE ... RENAME makes one definition of
// the other: it writes the new name, in quotes, where the old one follows
// REFERENCES or qualifies a column, and leaves all else as it is. A column may
// well be called as its table is, so the name is the table's nowhere else.
func onlyRenamed(was, is, from, to string) bool {
	referring := false // the word before is REFERENCES
	for was != "" && is != "" {
		w, i := token(was), token(is)
		rest := was[len(w):]
		if w != i {
			if !referring && !qualifies(rest) || !equalFold(unquoted(w), from) || unquoted(i) != to {
				return false
			}
		}
		if !blank(w) {
			referring = equalFold(w, "references")
		}
		was, is = rest, is[len(i):]
	}
	return was == is
}

// qualifies reports whether what stands before rest names the table of a
// column.
func qualifies(rest string) bool {
	for rest != "" && blank(rest) {
		rest = rest[len(token(rest)):]
	}
	return strings.HasPrefix(rest, ".")
}

// blank reports whether a text begins with space or a comment.
func blank(s string) bool {
	return strings.IndexByte(" \t\n\f\r", s[0]) >= 0 || strings.HasPrefix(s, "--") || strings.HasPrefix(s, "/*")
}

// token is the first token of a SQL text that is not empty: a word or number,
// something quoted, space, a comment, or one byte of anything else.
func token(s string) string {
	switch c := s[0]; {
	case c == '"' || c == '\'' || c == '`' || c == '[':
		if n := quotedLen(s); n > 0 {
			return s[:n]
		}
		return s
	case strings.HasPrefix(s, "--"):
		line, _, _ := strings.Cut(s, "\n")
		return line
	case strings.HasPrefix(s, "/*"):
		if n := strings.Index(s[2:], "*/"); n >= 0 {
			return s[:n+4]
		}
		return s
	case !wordByte(c):
		return s[:1]
	}
	n := 1
	for n < len(s) && wordByte(s[n]) {
		n++
	}
	return s[:n]
}

// wordByte reports whether a byte belongs to names, keywords and numbers.
func wordByte(c byte) bool {
	return c >= 0x80 || c == '_' || c == '$' || '0' <= c && c <= '9' || 'a' <= lower(c) && lower(c) <= 'z'
}

// quotedLen is the length of the quoted name or text at the start of s, 0 when
// it does not end. A doubled quote is part of it.
func quotedLen(s string) int {
	end := s[0]
	if end == '[' {
		return strings.IndexByte(s, ']') + 1
	}
	for i := 1; i < len(s); i++ {
		if s[i] != end {
			continue
		}
		if i+1 == len(s) || s[i+1] != end {
			return i + 1
		}
		i++
	}
	return 0
}

// unquoted is the name that a token stands for.
func unquoted(token string) string {
	switch end := token[0]; end {
	case '[':
		return strings.TrimSuffix(token[1:], "]")
	case '"', '\'', '`':
		q := string(end)
		return strings.ReplaceAll(strings.TrimSuffix(token[1:], q), q+q, q)
	}
	return token
}

// definition is what follows the table's name in its stored SQL. SQLite stores
// the text as "CREATE TABLE " and then what the user wrote from the name on;
// only the name itself may be quoted in four ways.
func definition(sql string) (string, bool) {
	rest, ok := strings.CutPrefix(sql, "CREATE TABLE ")
	if !ok || rest == "" {
		return "", false
	}
	if strings.IndexByte("\"'`[", rest[0]) >= 0 {
		n := quotedLen(rest)
		return rest[n:], n > 0
	}
	if n := strings.IndexAny(rest, " \t\n\f\r(/-"); n > 0 {
		return rest[n:], true
	}
	return "", false
}
