package schema

import "strings"

// lower folds a name or a type as SQLite does: the letters of ASCII alone.
// Unicode's rules would make one name of two (the dotless i, the long s and
// the Kelvin sign fold to ASCII letters there). The text comes back as it is
// when there is nothing to fold.
func lower(s string) string {
	i := 0
	for i < len(s) && (s[i] < 'A' || s[i] > 'Z') {
		i++
	}
	if i == len(s) {
		return s
	}
	b := []byte(s)
	for ; i < len(b); i++ {
		if b[i] >= 'A' && b[i] <= 'Z' {
			b[i] |= 0x20
		}
	}
	return string(b)
}

// equalFold is lower(a) == lower(b).
func equalFold(a, b string) bool {
	return len(a) == len(b) && lower(a) == lower(b)
}

// hasPrefixFold reports whether a name begins with the prefix, which is in
// lower case.
func hasPrefixFold(name, prefix string) bool {
	return len(name) >= len(prefix) && strings.HasPrefix(lower(name[:len(prefix)]), prefix)
}
