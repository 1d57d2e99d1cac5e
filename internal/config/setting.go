package config

import (
	"fmt"
	"time"
)

// form is how a setting is written.
type form uint8

const (
	// scalar is one value, in the file and in a variable.
	scalar form = iota
	// boolean is true or false in the file, 0 or 1 in a variable.
	boolean
	// list is a sequence in the file, comma-separated in a variable.
	list
)

// setting is one row of the table of settings: its two names, its form, and
// how a value is checked and stored.
type setting struct {
	// key is its path in the file.
	key string
	// variable is its environment variable, "" when there is none.
	variable string
	form     form
	// parse checks one scalar, or every item of a list, and stores it.
	parse func(s *Settings, v value) []error
	// show gives the value as /state shows it.
	show func(s *Settings) any
}

// value is what was written for a setting, not empty.
type value struct {
	// text is a scalar, or a list as it was written.
	text string
	// items are a list's items.
	items []string
	// plain is set outside the file, where sizes are plain numbers.
	plain bool
}

// itemError is an error of one item of a list.
type itemError struct {
	index int
	err   error
}

func (e *itemError) Error() string { return fmt.Sprintf("item %d: %v", e.index+1, e.err) }
func (e *itemError) Unwrap() error { return e.err }

// textSetting is a line of text.
func textSetting(key, variable string, at func(*Settings) *string, check func(string) error) setting {
	return setting{
		key: key, variable: variable, form: scalar,
		parse: func(s *Settings, v value) []error { return store(at(s), v.text, check(v.text)) },
		show:  func(s *Settings) any { return hideCredentials(*at(s)) },
	}
}

// sizeSetting is a number of bytes; units are for the file only.
func sizeSetting(key, variable string, at func(*Settings) *int64) setting {
	return setting{
		key: key, variable: variable, form: scalar,
		parse: func(s *Settings, v value) []error {
			n, err := parseSize(v.text)
			if v.plain {
				n, err = parseCount(v.text, maxBytes, allowedBytes)
			}
			return store(at(s), n, err)
		},
		show: func(s *Settings) any { return *at(s) },
	}
}

// maxBytes is the largest size: what an int64 holds.
const maxBytes = 1<<63 - 1

// millisSetting is a number of milliseconds.
func millisSetting(key, variable string, at func(*Settings) *time.Duration) setting {
	return setting{
		key: key, variable: variable, form: scalar,
		parse: func(s *Settings, v value) []error {
			d, err := parseMillis(v.text)
			return store(at(s), d, err)
		},
		show: func(s *Settings) any { return at(s).Milliseconds() },
	}
}

// listSetting is a list of lines of text: check takes an item, whole takes
// the list once every item is right.
func listSetting(key, variable string, at func(*Settings) *[]string, check func(string) error, whole func([]string) error) setting {
	return setting{
		key: key, variable: variable, form: list,
		parse: func(s *Settings, v value) []error {
			if errs := eachItem(v.items, check); len(errs) > 0 {
				return errs
			}
			return store(at(s), v.items, whole(v.items))
		},
		show: func(s *Settings) any { return append([]string{}, *at(s)...) },
	}
}

func eachItem(items []string, check func(string) error) []error {
	var errs []error
	for i, item := range items {
		if err := check(item); err != nil {
			errs = append(errs, &itemError{index: i, err: err})
		}
	}
	return errs
}

// store keeps the value unless there is an error.
func store[T any](to *T, v T, err error) []error {
	if err != nil {
		return []error{err}
	}
	*to = v
	return nil
}
