package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// invalid is what is wrong with one value: the reason, and what is allowed.
type invalid struct {
	reason, allowed string
}

func (e *invalid) Error() string { return e.reason + "; allowed: " + e.allowed }

func refuse(allowed, format string, args ...any) error {
	return &invalid{reason: fmt.Sprintf(format, args...), allowed: allowed}
}

const (
	allowedCount  = "a whole number, 1 or more, in plain digits"
	allowedMillis = "a whole number of milliseconds, 1 or more, in plain digits"
	allowedBytes  = "a whole number of bytes, 1 or more, in plain digits"
	allowedSize   = "a number of bytes such as 8388608, or with a unit such as 8MiB (KiB, MiB, GiB, TiB)"
)

// parseCount reads a whole number from 1 to most, in plain digits.
func parseCount(text string, most int64, allowed string) (int64, error) {
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, refuse(allowed, "not a whole number in plain digits")
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || n > most:
		return 0, refuse(fmt.Sprintf("%s, at most %d", allowed, most), "too large")
	case err != nil:
		return 0, refuse(allowed, "not a whole number in plain digits")
	case n == 0:
		return 0, refuse(allowed, "zero is not allowed and does not mean off")
	}
	return n, nil
}

// parseSize reads bytes, with or without a binary unit.
func parseSize(text string) (int64, error) {
	units := []struct {
		suffix string
		bytes  int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}
	for _, unit := range units {
		if digits, ok := strings.CutSuffix(text, unit.suffix); ok {
			n, err := parseCount(digits, math.MaxInt64/unit.bytes, allowedSize)
			return n * unit.bytes, err
		}
	}
	return parseCount(text, math.MaxInt64, allowedSize)
}

// parseMillis reads a whole number of milliseconds.
func parseMillis(text string) (time.Duration, error) {
	n, err := parseCount(text, math.MaxInt64/int64(time.Millisecond), allowedMillis)
	return time.Duration(n) * time.Millisecond, err
}

// parseRetention reads "none" or "<n>d".
func parseRetention(text string) (Retention, error) {
	const allowed = "none, or a number of days of 1 or more such as 14d"
	if text == "none" {
		return 0, nil
	}
	digits, ok := strings.CutSuffix(text, "d")
	if !ok {
		return 0, refuse(allowed, "not a retention")
	}
	// A hundred thousand years: enough, and safe to add to any time.
	days, err := parseCount(digits, 36_525_000, allowed)
	return Retention(days), err
}

// parseInterval reads "<n>s", "<n>m", "<n>h" or "<n>d".
func parseInterval(text string) (time.Duration, error) {
	const allowed = "a whole number of 1 or more and one unit of s, m, h or d, such as 24h"
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	last := len(text) - 1
	unit, ok := units[text[last]]
	if !ok {
		return 0, refuse(allowed, "not an interval")
	}
	n, err := parseCount(text[:last], int64(math.MaxInt64/unit), allowed)
	return time.Duration(n) * unit, err
}

// parseTable reads Class.table, split at the first dot.
func parseTable(text string) (Table, error) {
	const allowed = "Class.table, split at the first dot, such as Cart.items"
	class, name, ok := strings.Cut(text, ".")
	switch {
	case !ok:
		return Table{}, refuse(allowed, "names no table")
	case class == "":
		return Table{}, refuse(allowed, "names no class")
	case name == "":
		return Table{}, refuse(allowed, "names no table")
	}
	if err := checkClassName(class); err != nil {
		return Table{}, err
	}
	// Names are compared as stored, so a quoted one would deny nothing and
	// export what was meant to stay.
	if len(name) > 1 && strings.ContainsRune("\"'`[", rune(name[0])) {
		return Table{}, refuse(allowed, "the table's name is quoted; write it as it is stored, without quotes")
	}
	return Table{Class: class, Name: name}, nil
}
