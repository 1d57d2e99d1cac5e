package config

import (
	"fmt"
	"strings"
)

// Place says where a value was written.
type Place struct {
	// File, Line and Column locate a value of the settings file, or, without
	// a column, a line of a file that it names. Line and Column count from 1.
	File         string
	Line, Column int
	// Source names an environment variable or a flag.
	Source string
}

// String is "file:line:column" or "file:line", the variable's or flag's name, or "" for a
// value that nobody wrote.
func (p Place) String() string {
	switch {
	case p.Source != "":
		return p.Source
	case p.File != "" && p.Line > 0 && p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	case p.File != "" && p.Line > 0:
		return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	default:
		return p.File
	}
}

// Problem is one thing wrong with the settings.
type Problem struct {
	Place Place
	// Key is the path of the setting in the file, such as export.flush_ms.
	Key string
	// Value is what was written, with credentials taken out.
	Value string
	// Reason says what is wrong with it.
	Reason string
	// Allowed says what would be right, "" when Reason does.
	Allowed string
}

// Error is the problem in one line.
func (p Problem) Error() string {
	var b strings.Builder
	if at := p.Place.String(); at != "" {
		b.WriteString(at + ": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	if p.Value != "" {
		b.WriteString(p.Value + ": ")
	}
	b.WriteString(p.Reason)
	if p.Allowed != "" {
		b.WriteString("; allowed: " + p.Allowed)
	}
	return b.String()
}

// Problems is everything wrong with the settings, in the order of the file
// and then of the settings. It is the error that Load returns.
type Problems []Problem

// Error is one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the problems one by one to errors.As.
func (p Problems) Unwrap() []error {
	all := make([]error, len(p))
	for i, one := range p {
		all[i] = one
	}
	return all
}

// Warning is something that does not stop the exporter but is likely a
// mistake.
type Warning struct {
	Problem
	// Staged marks a rule between settings that will be an error once the
	// export is turned on.
	Staged bool
}

// shownLimit bounds how much of a bad value is repeated, in bytes.
const shownLimit = 120

// shown is a value as messages may repeat it: quoted, cut to a line, and
// without what may be a password or a key (the part of a URL before "@", and
// its query).
func shown(value string) string {
	value = hideCredentials(value)
	if len(value) > shownLimit {
		value = value[:shownLimit] + "..."
	}
	return fmt.Sprintf("%q", value)
}

// hideCredentials replaces userinfo and query of whatever may be a URL.
func hideCredentials(value string) string {
	if at := strings.LastIndexByte(value, '@'); at >= 0 {
		start := 0
		if scheme := strings.Index(value, "://"); scheme >= 0 && scheme < at {
			start = scheme + len("://")
		}
		value = value[:start] + "(hidden)" + value[at:]
	}
	if query := strings.IndexByte(value, '?'); query >= 0 && strings.Contains(value[:query], "://") {
		value = value[:query] + "?(hidden)"
	}
	return value
}
