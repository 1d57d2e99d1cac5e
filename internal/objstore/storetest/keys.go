package storetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/internal/objstore"
)

// awkward holds keys that stores are known to fold together, to reorder, or to
// lose; when flat, none that lies below another.
func awkward(flat bool) []string {
	keys := []string{
		"export/changes/node-a/2026/11/30/05/1-ab.parquet",
		"cells/Cart:a/own.json", "cells/Cart:a/ltx/e1/0000/0000000000000001-0000000000000001.ltx",
		"cells/Cart:a", "cells/Cart:a.json", "cells/Cart:a.json/own", "cells/Cart:a-/x", "cells/Cart:a0/x",
		"exportd/ledger/Cart:a%2Fb/root.json", "exportd/ledger/Cart:a%252Fb/root.json", "exportd/ledger/Cart:a/root.json",
		"esc/a b+c", "esc/a%20b", "esc/a+b", "esc/a&b=c;d", "esc/(a)[b]{c}", "esc/a'b\"c", "esc/$a@b,c", "esc/#a?b", "esc/a\\b", "esc/<a>",
		"uni/\u00e9", "uni/e\u0301", "uni/\u4e2d\u6587", "uni/\U0001F600", "uni/\uffee",
		"case/A", "case/a", "case/B.json", "case/b.json",
		"dots/.hidden", "dots/...", "dots/a..b", "dots/.json", "dots/.json/x",
		"mark/~", "mark/~~", "mark/~f", "mark/~d/x", "mark/~+/x", "mark/a~f", "mark/a~d/x", "mark/a~~f/x", "mark/~tmp/x", "mark/x.ltx~f", "mark/x.ltx~d/y.json",
		"~tmp/x", "~lock", "~lock/x.json",
	}
	long := strings.Repeat("l", 239)
	for _, tail := range []string{"", "0", "01", "-", "/x", "/x.json", ".json", ".json/y", strings.Repeat("m", 500), strings.Repeat("m", 500) + "/x"} {
		keys = append(keys, "long/"+long+tail)
	}
	for _, n := range []int{118, 119, 120, 121, 240, 300} {
		keys = append(keys, "tilde/"+strings.Repeat("~", n), "tilde/x"+strings.Repeat("~", n))
	}
	if !flat {
		return keys
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		below := func(k string) bool { return strings.HasPrefix(k, key+"/") }
		part := func(p string) bool { return len(p) > 255 }
		return slices.ContainsFunc(keys, below) || slices.ContainsFunc(strings.Split(key, "/"), part)
	})
}

func keys(t *testing.T, s objstore.Store, all []string) {
	for _, key := range all {
		put(t, s, key, "body of "+key, objstore.PutOptions{})
	}
	for _, key := range all {
		wantBody(t, s, key, "body of "+key)
	}
	want := slices.Sorted(slices.Values(all))
	if diff := cmp.Diff(want, list(t, s, "", "")); diff != "" {
		t.Errorf("listing (-want +got):\n%s", diff)
	}
	for i, key := range want {
		if got := list(t, s, "", key); !slices.Equal(got, want[i+1:]) {
			t.Errorf("listing after %.80q: %s", key, cmp.Diff(want[i+1:], got))
		}
		below := slices.DeleteFunc(slices.Clone(want), func(k string) bool { return !strings.HasPrefix(k, key) })
		if got := list(t, s, key, ""); !slices.Equal(got, below) {
			t.Errorf("listing of prefix %.80q: %s", key, cmp.Diff(below, got))
		}
	}
	for i, key := range all {
		if i%2 == 0 {
			if err := s.Delete(t.Context(), key); err != nil {
				t.Errorf("delete %q: %v", key, err)
			}
		}
	}
	left := slices.DeleteFunc(want, func(k string) bool { return slices.Index(all, k)%2 == 0 })
	if diff := cmp.Diff(left, list(t, s, "", "")); diff != "" {
		t.Errorf("listing after deletes (-want +got):\n%s", diff)
	}
}

func refusedKeys(t *testing.T, s objstore.Store) {
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/..", "a/./b", "a\x00b", "a\xffb",
		strings.Repeat("k", objstore.MaxKey+1),
	} {
		_, err := objstore.PutBytes(t.Context(), s, key, []byte("x"), objstore.PutOptions{})
		wantError(t, "put "+key, err, objstore.ErrKey)
		_, _, err = s.Get(t.Context(), key, objstore.GetOptions{})
		wantError(t, "get "+key, err, objstore.ErrKey)
		wantError(t, "delete "+key, s.Delete(t.Context(), key), objstore.ErrKey)
	}
	if got := list(t, s, "", ""); len(got) != 0 {
		t.Errorf("refused keys left %q", got)
	}
}

func fileAndFolder(t *testing.T, s objstore.Store) {
	all := []string{"a", "a-b", "a/b", "a/b/c", "a/b/c.json", "a/b/c.json/d", "a0"}
	backwards := slices.Clone(all)
	slices.Reverse(backwards)
	for _, order := range [][]string{all, backwards} {
		for _, key := range order {
			put(t, s, key, key, objstore.PutOptions{})
		}
		if diff := cmp.Diff(all, list(t, s, "", "")); diff != "" {
			t.Errorf("listing (-want +got):\n%s", diff)
		}
		for i, key := range order {
			wantBody(t, s, key, key)
			if err := s.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if got := len(list(t, s, "", "")); got != len(all)-i-1 {
				t.Errorf("%d objects left after deleting %q", got, order[:i+1])
			}
		}
	}
}

func listOrder(t *testing.T, s objstore.Store) {
	for _, key := range []string{"b/2", "b/10", "b/1", "b-/x", "b.x", "b0", "b", "B", "a/z", "c"} {
		put(t, s, key, "", objstore.PutOptions{})
	}
	for _, test := range []struct {
		prefix, after string
		want          []string
	}{
		{"", "", []string{"B", "a/z", "b", "b-/x", "b.x", "b/1", "b/10", "b/2", "b0", "c"}},
		{"b", "", []string{"b", "b-/x", "b.x", "b/1", "b/10", "b/2", "b0"}},
		{"b/", "", []string{"b/1", "b/10", "b/2"}},
		{"b/1", "", []string{"b/1", "b/10"}},
		{"b/", "b/1", []string{"b/10", "b/2"}},
		{"b/", "b/10", []string{"b/2"}},
		{"b/", "b/15", []string{"b/2"}},
		{"b/", "b/2", []string{}},
		{"b/", "b/3", []string{}},
		{"b/", "a", []string{"b/1", "b/10", "b/2"}},
		{"b/", "c", []string{}},
		{"", "b", []string{"b-/x", "b.x", "b/1", "b/10", "b/2", "b0", "c"}},
		{"", "b/", []string{"b/1", "b/10", "b/2", "b0", "c"}},
		{"", "b/1/z", []string{"b/10", "b/2", "b0", "c"}},
		{"", "c", []string{}},
		{"nothing", "", []string{}},
		{"nothing/here/", "", []string{}},
	} {
		if got := list(t, s, test.prefix, test.after); !slices.Equal(got, test.want) {
			t.Errorf("list %q after %q: %q, want %q", test.prefix, test.after, got, test.want)
		}
	}
}

// listPages needs more objects than S3 returns in one answer.
func listPages(t *testing.T, s objstore.Store) {
	if testing.Short() {
		t.Skip("1,100 objects are many for a short run")
	}
	const n = 1100
	for i := range n {
		put(t, s, numbered(i), "", objstore.PutOptions{})
	}
	got := list(t, s, "n/", "")
	if len(got) != n || got[0] != numbered(0) || got[n-1] != numbered(n-1) || !slices.IsSorted(got) {
		t.Errorf("listing of %d objects has %d", n, len(got))
	}
	if got := list(t, s, "n/", numbered(49)); len(got) != n-50 {
		t.Errorf("listing after the 50th of %d objects has %d", n, len(got))
	}
}

func listStops(t *testing.T, s objstore.Store) {
	for i := range 5 {
		put(t, s, numbered(i), "", objstore.PutOptions{})
	}
	sequence := s.List(t.Context(), "", "")
	for range 2 { // a sequence can be ranged over again
		seen := 0
		for _, err := range sequence {
			if err != nil {
				t.Fatal(err)
			}
			if seen++; seen == 2 {
				break
			}
		}
		if seen != 2 {
			t.Errorf("saw %d objects before the break", seen)
		}
	}
}
