package rowset

import (
	"strings"
	"unicode/utf8"
)

// SQLite takes any bytes for a name, a record only UTF-8. So that two names
// never become one, a byte that is no part of valid UTF-8 is written as U+FFFD
// and its two lower-case hex digits, and U+FFFD itself twice. The rule is ours:
// the record format has none. It holds for every name of a table or column
// outside of the database: in records, in the ledger and in the settings.

const replacement = "\uFFFD"

// written is a stored name in that form.
func written(stored string) string {
	if utf8.ValidString(stored) && !strings.Contains(stored, replacement) {
		return stored
	}
	const digits = "0123456789abcdef"
	var out strings.Builder
	for i := 0; i < len(stored); {
		r, n := utf8.DecodeRuneInString(stored[i:])
		switch {
		case r != utf8.RuneError:
			out.WriteString(stored[i : i+n])
		case n > 1:
			out.WriteString(replacement + replacement)
		default:
			out.WriteString(replacement)
			out.WriteByte(digits[stored[i]>>4])
			out.WriteByte(digits[stored[i]&15])
		}
		i += n
	}
	return out.String()
}

// unwritten is the stored name behind a written one. What no name is written
// as comes back as it is.
func unwritten(name string) string {
	if !strings.Contains(name, replacement) {
		return name
	}
	var out strings.Builder
	for rest := name; rest != ""; {
		plain, after, found := strings.Cut(rest, replacement)
		out.WriteString(plain)
		switch {
		case !found:
			return out.String()
		case strings.HasPrefix(after, replacement):
			out.WriteString(replacement)
			rest = after[len(replacement):]
		case len(after) >= 2 && hexDigit(after[0]) >= 0 && hexDigit(after[1]) >= 0:
			out.WriteByte(byte(hexDigit(after[0])<<4 | hexDigit(after[1])))
			rest = after[2:]
		default:
			return name
		}
	}
	return out.String()
}

func hexDigit(c byte) int {
	return strings.IndexByte("0123456789abcdef", c)
}

// equalFold compares as SQLite compares names: letters of ASCII without regard
// to case, every other byte as it is.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
