// Package storetest is the suite that every objstore.Store passes. Only tests
// import it.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"celldexport/internal/objstore"
)

// Factory returns an empty store for one test. What needs cleaning up
// registers with t.
type Factory func(t *testing.T) objstore.Store

// Run holds the stores of a factory to the contract of objstore.Store: as they
// are, and below a prefix.
func Run(t *testing.T, open Factory) { run(t, open, false) }

// RunFlat is Run without keys that are both an object and a prefix of other
// keys: some servers keep objects as files and refuse such keys. No store of
// ours may.
func RunFlat(t *testing.T, open Factory) { run(t, open, true) }

func run(t *testing.T, open Factory, flat bool) {
	t.Run("plain", func(t *testing.T) { suite(t, open, flat) })
	t.Run("prefixed", func(t *testing.T) {
		suite(t, func(t *testing.T) objstore.Store {
			base := open(t)
			for _, key := range []string{"a/b", "pre/fi", "pre/fix-", "pre/fix0", "pre/fiw/x", "z"} { // neighbours of the prefix
				put(t, base, key, "not below the prefix", objstore.PutOptions{})
			}
			return objstore.WithPrefix(base, "/pre/fix/")
		}, flat)
	})
}

func suite(t *testing.T, open Factory, flat bool) {
	tests := []testCase{
		{"RoundTrip", roundTrip},
		{"Replace", replace},
		{"Ranges", ranges},
		{"ReadIfMatch", readIfMatch},
		{"Keys", func(t *testing.T, s objstore.Store) { keys(t, s, awkward(flat)) }},
		{"RefusedKeys", refusedKeys},
		{"ListPages", listPages},
		{"ListStops", listStops},
		{"Delete", deletes},
		{"IfAbsent", ifAbsent},
		{"IfMatch", ifMatch},
		{"RaceToCreate", raceToCreate},
		{"RaceToIncrement", raceToIncrement},
		{"ReadersSeeWholeObjects", wholeObjects},
		{"ShortBody", shortBody},
		{"Probe", probe},
		{"Canceled", canceled},
	}
	if !flat {
		tests = append(tests, testCase{"FileAndFolder", fileAndFolder}, testCase{"ListOrder", listOrder}, testCase{"CreateBelow", createBelow})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// testCase is one test of the suite.
type testCase struct {
	name string
	run  func(*testing.T, objstore.Store)
}

func put(t *testing.T, s objstore.Store, key, body string, opts objstore.PutOptions) objstore.Object {
	t.Helper()
	obj, err := objstore.PutBytes(t.Context(), s, key, []byte(body), opts)
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	if obj.Key != key || obj.Size != int64(len(body)) || obj.ETag == "" {
		t.Fatalf("put %q of %d bytes returned %+v", key, len(body), obj)
	}
	return obj
}

func wantBody(t *testing.T, s objstore.Store, key, want string) objstore.Object {
	t.Helper()
	data, obj, err := objstore.ReadAll(t.Context(), s, key, 1<<30)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if string(data) != want {
		t.Fatalf("%s holds %.60q (%d bytes), want %.60q (%d bytes)", key, data, len(data), want, len(want))
	}
	return obj
}

func wantError(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: error is %v, want one that wraps %q", what, err, target)
	}
}

func list(t *testing.T, s objstore.Store, prefix, after string) []string {
	t.Helper()
	keys, err := collect(t.Context(), s, prefix, after)
	if err != nil {
		t.Fatalf("list %q after %q: %v", prefix, after, err)
	}
	return keys
}

func collect(ctx context.Context, s objstore.Store, prefix, after string) ([]string, error) {
	keys := []string{}
	for obj, err := range s.List(ctx, prefix, after) {
		if err != nil {
			return keys, err
		}
		keys = append(keys, obj.Key)
	}
	return keys, nil
}

func probe(t *testing.T, s objstore.Store) {
	for range 2 {
		if err := objstore.ProbeConditional(t.Context(), s, "probe/x"); err != nil {
			t.Fatal(err)
		}
	}
	if left := list(t, s, "", ""); len(left) != 0 {
		t.Errorf("the probe left %q", left)
	}
}

func canceled(t *testing.T, s objstore.Store) {
	put(t, s, "k", "v", objstore.PutOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := s.Get(ctx, "k", objstore.GetOptions{})
	wantError(t, "get", err, context.Canceled)
	_, err = objstore.PutBytes(ctx, s, "k", []byte("w"), objstore.PutOptions{})
	wantError(t, "put", err, context.Canceled)
	wantError(t, "delete", s.Delete(ctx, "k"), context.Canceled)
	_, err = collect(ctx, s, "", "")
	wantError(t, "list", err, context.Canceled)
	wantBody(t, s, "k", "v")
}

func numbered(n int) string { return fmt.Sprintf("n/%05d", n) }
