// Package kafkaprops reads a file of librdkafka client properties and judges
// it: what the Kafka sink must have its own way is refused, in whatever
// spelling librdkafka would take, and so is what it does not know or would
// read as something else than is written. It knows the names and spellings of
// librdkafka's configuration but not the library, so that settings can be
// checked by programs that do not contain it.
package kafkaprops

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// Property is one line of a properties file.
type Property struct {
	// Name is as written. Canonical names compare with [Canonical].
	Name, Value string
	// Line counts from 1.
	Line int
}

// Error is one thing wrong with a properties file. Its text never holds the
// value of a property that may be a secret.
type Error struct {
	File string
	// Line counts from 1; 0 is the file as a whole.
	Line int
	// Name is the property, "" when the line names none.
	Name string
	// Reason says what is wrong, Allowed what is right instead ("" when the
	// reason says it).
	Reason, Allowed string
}

// Error is the problem in one line: file:line: name: reason.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Name != "" {
		b.WriteString(": " + e.Name)
	}
	b.WriteString(": " + e.Reason)
	if e.Allowed != "" {
		b.WriteString("; allowed: " + e.Allowed)
	}
	return b.String()
}

// Errors is everything wrong with a properties file, in the order of its
// lines.
type Errors []*Error

// Error is one line for each problem.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// maxFile bounds a properties file, so that a path to something else does not
// fill the memory. Certificates may be inline.
const maxFile = 1 << 20

// Load reads and judges the file at path; "" is a file without properties.
// Whatever is wrong comes in one error of type [Errors].
func Load(path string, rules Rules) ([]Property, error) {
	var text []byte
	if path != "" {
		info, err := os.Stat(path)
		if err == nil && info.Size() > maxFile {
			return nil, Errors{{File: path, Reason: fmt.Sprintf("%d bytes are no properties file", info.Size())}}
		}
		if text, err = os.ReadFile(path); err != nil {
			var reason *os.PathError
			if errors.As(err, &reason) {
				err = reason.Err
			}
			return nil, Errors{{File: path, Reason: fmt.Sprintf("read the properties file: %v", err)}}
		}
	}
	list, problems := Parse(text)
	problems = append(problems, rules.Check(list)...)
	if len(problems) == 0 {
		return list, nil
	}
	slices.SortStableFunc(problems, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	for _, p := range problems {
		p.File = path
	}
	return nil, problems
}

// Parse reads name=value lines: spaces around both are dropped, a value may
// hold = and #, a line that begins with # or ! is a comment, lines may end in
// CR LF. Nothing is unescaped. A property may stand twice; the later one
// counts, as in librdkafka.
func Parse(text []byte) ([]Property, Errors) {
	var list []Property
	var problems Errors
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	for n := 1; len(text) > 0; n++ {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' || line[0] == '!' {
			continue
		}
		name, value, found := bytes.Cut(line, []byte("="))
		p := Property{Name: string(bytes.TrimSpace(name)), Value: string(bytes.TrimSpace(value)), Line: n}
		if reason := malformed(p, found); reason != "" {
			// What stands in the line may be a part of a secret: not shown.
			problems = append(problems, &Error{Line: n, Reason: reason, Allowed: "name=value"})
			continue
		}
		list = append(list, p)
	}
	return list, problems
}

func malformed(p Property, equals bool) string {
	switch {
	case !equals:
		return "the line has no ="
	case p.Name == "":
		return "nothing stands before the ="
	case strings.ContainsAny(p.Name, " \t"):
		return "the name holds a space"
	case !utf8.ValidString(p.Value) || !utf8.ValidString(p.Name):
		return "the line is not UTF-8"
	case strings.ContainsAny(p.Name+p.Value, "\x00\r"):
		return "the line holds a control character"
	}
	return ""
}

// Secret reports whether a property's value must not be shown.
func Secret(name string) bool {
	for _, part := range []string{"password", "secret", "key", "jaas", "token", "assertion", "sasl.oauthbearer.config", "pem"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}
