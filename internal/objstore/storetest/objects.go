package storetest

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"celldexport/internal/objstore"
)

func roundTrip(t *testing.T, s objstore.Store) {
	bodies := map[string]string{
		"empty":      "",
		"one":        "x",
		"binary":     "\x00\xff\r\n\x00",
		"page.ltx":   strings.Repeat("0123456789abcdef", 4096),
		"big.bin":    strings.Repeat("celld export ", 200_000), // some 2.6 MB
		"gzip.magic": "\x1f\x8b\x08\x00 not really gzip",
	}
	for key, body := range bodies {
		stored := put(t, s, key, body, objstore.PutOptions{ContentType: "application/x-test"})
		got := wantBody(t, s, key, body)
		if got.Key != key || got.Size != stored.Size || got.ETag != stored.ETag {
			t.Errorf("put returned %+v, get %+v", stored, got)
		}
		for obj, err := range s.List(t.Context(), key, "") {
			if err != nil {
				t.Fatal(err)
			}
			if obj.Key == key && (obj.ETag != stored.ETag || obj.Size != stored.Size || obj.Modified.IsZero()) {
				t.Errorf("put returned %+v, list %+v", stored, obj)
			}
		}
	}
	_, _, err := s.Get(t.Context(), "absent", objstore.GetOptions{})
	wantError(t, "get of an absent key", err, objstore.ErrNotFound)
	_, _, err = objstore.ReadAll(t.Context(), s, "page.ltx", 1000)
	wantError(t, "read with a limit", err, objstore.ErrTooLarge)
}

func replace(t *testing.T, s objstore.Store) {
	first := put(t, s, "k", "first", objstore.PutOptions{})
	body, _, err := s.Get(t.Context(), "k", objstore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	second := put(t, s, "k", "second, longer", objstore.PutOptions{})
	if first.ETag == second.ETag {
		t.Error("another content has the same ETag")
	}
	if data, err := io.ReadAll(body); err == nil && string(data) != "first" {
		t.Errorf("a body opened before the replacement gave %q", data)
	}
	wantBody(t, s, "k", "second, longer")
	put(t, s, "k", "", objstore.PutOptions{})
	wantBody(t, s, "k", "")
}

func ranges(t *testing.T, s objstore.Store) {
	const whole = "0123456789"
	put(t, s, "k", whole, objstore.PutOptions{})
	put(t, s, "empty", "", objstore.PutOptions{})
	for _, test := range []struct {
		key            string
		offset, length int64
		want           string
	}{
		{"k", 0, 0, whole}, {"k", 0, 1, "0"}, {"k", 0, 4, "0123"}, {"k", 0, 10, whole}, {"k", 0, 99, whole},
		{"k", 0, math.MaxInt64, whole}, {"k", 7, math.MaxInt64, "789"}, {"k", -3, math.MaxInt64, "789"},
		{"k", 1, 0, whole[1:]}, {"k", 3, 4, "3456"}, {"k", 9, 1, "9"}, {"k", 9, 0, "9"}, {"k", 8, 99, "89"},
		{"k", 10, 0, ""}, {"k", 10, 5, ""}, {"k", 99, 0, ""}, {"k", 99, 1, ""},
		{"k", -1, 0, "9"}, {"k", -4, 0, "6789"}, {"k", -10, 0, whole}, {"k", -99, 0, whole},
		{"k", -4, 2, "67"}, {"k", -4, 4, "6789"}, {"k", -4, 99, "6789"}, {"k", -99, 3, "012"},
		{"empty", 0, 0, ""}, {"empty", 0, 5, ""}, {"empty", 3, 0, ""}, {"empty", -16, 0, ""}, {"empty", -16, 4, ""},
	} {
		body, obj, err := s.Get(t.Context(), test.key, objstore.GetOptions{Offset: test.offset, Length: test.length})
		if err != nil {
			t.Errorf("%s [%d, +%d]: %v", test.key, test.offset, test.length, err)
			continue
		}
		data, err := io.ReadAll(body)
		body.Close()
		if err != nil || string(data) != test.want {
			t.Errorf("%s [%d, +%d]: read %q (%v), want %q", test.key, test.offset, test.length, data, err, test.want)
		}
		if want := map[string]int64{"k": 10, "empty": 0}[test.key]; obj.Size != want || obj.ETag == "" || obj.Key != test.key {
			t.Errorf("%s [%d, +%d]: object %+v, want the whole size %d", test.key, test.offset, test.length, obj, want)
		}
	}
	_, _, err := s.Get(t.Context(), "absent", objstore.GetOptions{Offset: -16})
	wantError(t, "suffix of an absent key", err, objstore.ErrNotFound)
}

func readIfMatch(t *testing.T, s objstore.Store) {
	old := put(t, s, "k", "old", objstore.PutOptions{})
	body, _, err := s.Get(t.Context(), "k", objstore.GetOptions{IfMatch: old.ETag, Offset: -2})
	if err != nil {
		t.Fatalf("read of the version that is there: %v", err)
	}
	body.Close()
	put(t, s, "k", "new", objstore.PutOptions{})
	for _, opts := range []objstore.GetOptions{{IfMatch: old.ETag}, {IfMatch: old.ETag, Offset: -2}, {IfMatch: old.ETag, Offset: 99}} {
		_, _, err = s.Get(t.Context(), "k", opts)
		wantError(t, "read of the version that is gone", err, objstore.ErrPrecondition)
	}
	_, _, err = s.Get(t.Context(), "absent", objstore.GetOptions{IfMatch: old.ETag})
	wantError(t, "read of an absent key", err, objstore.ErrNotFound)
}

func deletes(t *testing.T, s objstore.Store) {
	put(t, s, "d/one", "1", objstore.PutOptions{})
	put(t, s, "d/two", "2", objstore.PutOptions{})
	for _, key := range []string{"d/one", "d/one", "d/never", "elsewhere/never"} {
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %s: %v", key, err)
		}
	}
	_, _, err := s.Get(t.Context(), "d/one", objstore.GetOptions{})
	wantError(t, "get after delete", err, objstore.ErrNotFound)
	wantBody(t, s, "d/two", "2")
	put(t, s, "d/one", "again", objstore.PutOptions{IfAbsent: true})
	wantBody(t, s, "d/one", "again")
}

func shortBody(t *testing.T, s objstore.Store) {
	put(t, s, "k", "kept", objstore.PutOptions{})
	_, err := s.Put(t.Context(), "k", bytes.NewReader([]byte("abc")), 10, objstore.PutOptions{})
	if err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a body shorter than its size: error is %v", err)
	}
	wantBody(t, s, "k", "kept")
}
