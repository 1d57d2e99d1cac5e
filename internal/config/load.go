package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Flag is a setting given on the command line. It wins over the variable and
// the file, and is written as in a variable.
type Flag struct {
	// Name is the flag as it is typed, such as --bucket.
	Name string
	// Key is the path of the setting, such as bucket.
	Key string
	// Value is what was given; "" counts as not given.
	Value string
}

// Load reads the settings: the defaults, then the file (when its path is not
// ""), then the variables of environ (as os.Environ gives them), then the
// flags. Whatever is wrong comes in one error of type Problems; a file that
// cannot be read is a Problem too. Warnings are returned either way.
func Load(file string, environ []string, flags ...Flag) (*Settings, []Warning, error) {
	l := &loader{settings: Default(), table: settings(), places: map[string]Place{}, bad: map[string]bool{}}
	if file != "" {
		l.file(file)
	}
	l.environment(environ)
	l.flags(flags)
	l.relations()
	if len(l.problems) > 0 {
		l.sort()
		return nil, l.warnings, l.problems
	}
	return l.settings, l.warnings, nil
}

// loader gathers the settings and what is wrong with them.
type loader struct {
	settings *Settings
	table    []setting
	// places tells where the value in force of each key was written.
	places map[string]Place
	// bad holds the keys whose value is wrong somewhere.
	bad map[string]bool
	// broken is set when the file could not be read at all.
	broken   bool
	problems Problems
	warnings []Warning
}

func (l *loader) problem(p Problem) { l.problems = append(l.problems, p) }

func (l *loader) file(path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		var reason *os.PathError
		if errors.As(err, &reason) {
			err = reason.Err
		}
		l.broken = true
		l.problem(Problem{Place: Place{File: path}, Reason: fmt.Sprintf("read the settings file: %v", err)})
		return
	}
	l.document(path, text)
}

// lookup finds a setting by its key.
func (l *loader) lookup(key string) (setting, bool) {
	i := slices.IndexFunc(l.table, func(s setting) bool { return s.key == key })
	if i < 0 {
		return setting{}, false
	}
	return l.table[i], true
}

// set checks one value and takes it over. at gives the place of the i-th item
// of a list, or of the value itself when i is negative.
func (l *loader) set(s setting, v value, at func(i int) Place) {
	errs := s.parse(l.settings, v)
	if len(errs) == 0 {
		l.places[s.key] = at(-1)
		return
	}
	l.bad[s.key] = true
	for _, err := range errs {
		p := problemOf(err)
		p.Place, p.Key, p.Value = at(-1), s.key, shown(v.text)
		var item *itemError
		if errors.As(err, &item) {
			p.Place, p.Value = at(item.index), shown(v.items[item.index])
		}
		l.problem(p)
	}
}

// problemOf is the reason and the allowed values of an error.
func problemOf(err error) Problem {
	var bad *invalid
	if errors.As(err, &bad) {
		return Problem{Reason: bad.reason, Allowed: bad.allowed}
	}
	return Problem{Reason: err.Error()}
}

// setPlain takes a value from a variable or a flag.
func (l *loader) setPlain(s setting, source, text string) {
	if text == "" {
		return
	}
	place := Place{Source: source}
	v := value{text: text, plain: true}
	if s.form == list {
		items, whole := splitList(text)
		if !whole {
			l.bad[s.key] = true
			l.problem(Problem{Place: place, Key: s.key, Value: shown(text),
				Reason: "an item is empty", Allowed: "items separated by single commas"})
		}
		v.items = items
	}
	l.set(s, v, func(int) Place { return place })
}

// splitList splits at commas, drops spaces around items and leaves out empty
// ones; whole is false when there was one.
func splitList(text string) (items []string, whole bool) {
	whole = true
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			whole = false
			continue
		}
		items = append(items, item)
	}
	return items, whole
}

func (l *loader) environment(environ []string) {
	values := make(map[string]string, len(environ))
	for _, one := range environ {
		name, text, _ := strings.Cut(one, "=")
		values[name] = text
	}
	known := []string{}
	for _, s := range l.table {
		known = append(known, s.variable)
		l.setPlain(s, s.variable, values[s.variable])
	}
	// Two more belong to the audit commands, which share the environment.
	known = append(known, "CELLD_EXPORT_CONSUMER", "CELLD_EXPORT_CONSUMER_TOPIC")
	for name := range values {
		if !strings.HasPrefix(name, "CELLD_EXPORT_") || slices.Contains(known, name) {
			continue
		}
		l.warnings = append(l.warnings, Warning{Problem: Problem{
			Place: Place{Source: name}, Reason: "unknown variable, ignored" + nearest(name, known)}})
	}
	slices.SortFunc(l.warnings, func(a, b Warning) int { return cmp.Compare(a.Place.Source, b.Place.Source) })
}

func (l *loader) flags(flags []Flag) {
	for _, flag := range flags {
		s, ok := l.lookup(flag.Key)
		if !ok {
			l.problem(Problem{Place: Place{Source: flag.Name}, Key: flag.Key, Reason: "no such setting"})
			continue
		}
		l.setPlain(s, flag.Name, flag.Value)
	}
}

// sort puts the file's problems first, in the file's order; the others stay
// in the order of the table.
func (l *loader) sort() {
	slices.SortStableFunc(l.problems, func(a, b Problem) int {
		if (a.Place.File == "") != (b.Place.File == "") {
			if a.Place.File == "" {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.Place.Line, b.Place.Line), cmp.Compare(a.Place.Column, b.Place.Column))
	})
}
