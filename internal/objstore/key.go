package objstore

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrKey is returned for a key that cannot name an object here; the call never
// reached the store and will not succeed when repeated.
var ErrKey = errors.New("key not usable")

// MaxKey is the longest key in bytes, the prefix of the store included
// (Amazon S3 User Guide, "Object key naming guidelines").
const MaxKey = 1024

// CheckKey returns an error that wraps ErrKey unless key can name an object in
// every store: 1 to MaxKey bytes of valid UTF-8 without NUL, made of parts
// between slashes of which none is empty, "." or "..". S3 would take more, but
// such keys are folded by proxies and cannot be files.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("empty key: %w", ErrKey)
	case len(key) > MaxKey:
		return fmt.Errorf("key of %d bytes (%.40q...), at most %d are possible: %w", len(key), key, MaxKey, ErrKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("key %q is not valid UTF-8: %w", key, ErrKey)
	case strings.ContainsRune(key, 0):
		return fmt.Errorf("key %q holds a NUL byte: %w", key, ErrKey)
	}
	for part := range strings.SplitSeq(key, "/") {
		switch part {
		case "":
			return fmt.Errorf("key %q has an empty part: %w", key, ErrKey)
		case ".", "..":
			return fmt.Errorf("key %q has a part %q: %w", key, part, ErrKey)
		}
	}
	return nil
}

// checkConditions refuses options that no object can meet.
func checkConditions(key string, opts PutOptions) error {
	if opts.IfAbsent && opts.IfMatch != "" {
		return fmt.Errorf("put %s: both IfMatch and IfAbsent asked for: %w", key, ErrKey)
	}
	return nil
}
