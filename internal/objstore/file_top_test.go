package objstore

import (
	"slices"
	"strings"
	"testing"
)

// A listing that begins at the prefix's folder shows what one from the root
// does, for every prefix of every key.
func TestFileListBeginsAtThePrefix(t *testing.T) {
	f, err := NewFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("p~", 200)
	keys := []string{
		"own", "own/a", "own.json", "own.json/x.ltx", "own.json/y/z", "~/tilde~f", "a~/b", "a~d/b", "a/b/c/d", "a/b/c", "a/b.parquet/c",
		long + "/x", "a/" + long + "/y/" + long, "a/" + long,
	}
	for _, k := range keys {
		if _, err := PutBytes(t.Context(), f, k, []byte(k), PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(prefix, path, start string) []string {
		var got []string
		w := walk{file: f, ctx: t.Context(), prefix: prefix, yield: func(o Object, _ error) bool { got = append(got, o.Key); return true }}
		if err := w.folder(path, start); err != nil {
			t.Errorf("prefix %q: %v", prefix, err)
		}
		return got
	}
	for _, k := range append(keys, "../x", "a//b", "none/at/all") {
		for n := range len(k) + 1 {
			prefix := k[:n]
			path, start := top(prefix)
			if got, want := list(prefix, path, start), list(prefix, "", ""); !slices.Equal(got, want) {
				t.Errorf("prefix %q from %q: %q, want %q", prefix, path, got, want)
			}
		}
	}
}
