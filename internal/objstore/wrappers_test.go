package objstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"celldexport/internal/objstore"
)

// faultOver is a fault store over an empty one, and two helpers for it.
func faultOver(t *testing.T) (fault *objstore.Fault, put func(key string) error, exists func(key string) bool) {
	fault = objstore.NewFault(objstore.NewMemory())
	put = func(key string) error {
		_, err := objstore.PutBytes(t.Context(), fault, key, []byte("body of "+key), objstore.PutOptions{})
		return err
	}
	exists = func(key string) bool {
		_, _, err := objstore.ReadAll(t.Context(), fault, key, 100)
		return err == nil
	}
	return fault, put, exists
}

func TestFaultBefore(t *testing.T) {
	fault, put, exists := faultOver(t)
	remove := fault.Add(objstore.Rule{Op: objstore.OpPut, Key: func(k string) bool { return strings.HasPrefix(k, "x/") }, Skip: 1, Times: 1, Before: errReset})
	for i, want := range []error{nil, nil, errReset, nil} {
		key := []string{"x/0", "y/1", "x/2", "x/3"}[i]
		if err := put(key); !errors.Is(err, want) || exists(key) != (want == nil) {
			t.Errorf("put %s: %v, stored: %t; want %v", key, err, exists(key), want)
		}
	}
	remove()
	remove() // twice is once
	if n := fault.Calls(objstore.OpPut); n != 4 {
		t.Errorf("%d puts were counted", n)
	}
}

func TestFaultAfter(t *testing.T) {
	fault, put, exists := faultOver(t)
	for _, key := range []string{"gone", "kept"} {
		if err := put(key); err != nil {
			t.Fatal(err)
		}
	}
	remove := fault.Add(objstore.Rule{After: errReset})
	if err := put("new"); !errors.Is(err, errReset) {
		t.Errorf("put: %v", err)
	}
	if err := fault.Delete(t.Context(), "gone"); !errors.Is(err, errReset) {
		t.Errorf("delete: %v", err)
	}
	var listed []string
	var listErr error
	for obj, err := range fault.List(t.Context(), "", "") {
		listed, listErr = append(listed, obj.Key), err
	}
	if !slices.Equal(listed, []string{"kept", "new", ""}) || !errors.Is(listErr, errReset) {
		t.Errorf("listed %q and %v", listed, listErr)
	}
	if _, _, err := fault.Get(t.Context(), "missing", objstore.GetOptions{}); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("the store's own error is hidden by the fault: %v", err)
	}
	remove()
	if !exists("new") || exists("gone") {
		t.Error("a call whose answer was lost did not happen")
	}
}

func TestFaultBodiesAndLists(t *testing.T) {
	fault, put, _ := faultOver(t)
	for _, key := range []string{"a", "b", "c"} {
		if err := put(key); err != nil {
			t.Fatal(err)
		}
	}
	fault.Add(objstore.Rule{Op: objstore.OpList, Times: 1, Hide: func(o objstore.Object) bool { return o.Key == "b" }})
	for _, want := range [][]string{{"a", "c"}, {"a", "b", "c"}} {
		var listed []string
		for obj := range fault.List(t.Context(), "", "") {
			listed = append(listed, obj.Key)
		}
		if !slices.Equal(listed, want) {
			t.Errorf("listed %q, want %q", listed, want)
		}
	}
	fault.Add(objstore.Rule{Op: objstore.OpGet, CutAt: 4, CutError: errReset})
	body, _, err := fault.Get(t.Context(), "c", objstore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(body); string(data) != "body" || !errors.Is(err, errReset) {
		t.Errorf("read %q and %v", data, err)
	}
}

func TestFaultWait(t *testing.T) {
	fault, put, exists := faultOver(t)
	if err := put("k"); err != nil {
		t.Fatal(err)
	}
	var seen []string
	fault.Add(objstore.Rule{Wait: func(_ context.Context, op, key string) error {
		seen = append(seen, op+" "+key)
		return nil
	}})
	fault.Add(objstore.Rule{Op: objstore.OpDelete, Wait: func(context.Context, string, string) error { return errReset }})
	if err := fault.Delete(t.Context(), "k"); !errors.Is(err, errReset) || !exists("k") {
		t.Errorf("delete: %v", err)
	}
	if want := []string{"delete k", "get k"}; !slices.Equal(seen, want) {
		t.Errorf("hooks saw %q, want %q", seen, want)
	}
	fault.Clear()
	if err := fault.Delete(t.Context(), "k"); err != nil {
		t.Errorf("delete without rules: %v", err)
	}
}

func TestCounting(t *testing.T) {
	ctx := t.Context()
	var seen []string
	fault := objstore.NewFault(objstore.NewMemory())
	s := objstore.Counting(fault, func(op, outcome string, bytes int64) {
		seen = append(seen, fmt.Sprint(op, " ", outcome, " ", bytes))
	})
	expect := func(want ...string) {
		t.Helper()
		if !slices.Equal(seen, want) {
			t.Errorf("observed %q, want %q", seen, want)
		}
		seen = nil
	}
	put := func(key string, opts objstore.PutOptions) {
		_, _ = objstore.PutBytes(ctx, s, key, []byte("12345"), opts)
	}
	put("k", objstore.PutOptions{})
	put("k", objstore.PutOptions{IfAbsent: true})
	put("", objstore.PutOptions{})
	expect("put ok 5", "put precondition 0", "put error 0")

	body, _, err := s.Get(ctx, "k", objstore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = body.Read(make([]byte, 3))
	expect()
	body.Close()
	body.Close()
	expect("get ok 3")
	_, _, _ = objstore.ReadAll(ctx, s, "k", 10)
	_, _, _ = objstore.ReadAll(ctx, s, "none", 10)
	expect("get ok 5", "get not_found 0")

	fault.Add(objstore.Rule{Op: objstore.OpGet, CutAt: 2, CutError: errReset})
	_, _, _ = objstore.ReadAll(ctx, s, "k", 10)
	expect("get error 2")
	fault.Clear()

	for range s.List(ctx, "", "") {
		break
	}
	fault.Add(objstore.Rule{Op: objstore.OpList, Before: objstore.ErrDenied})
	for range s.List(ctx, "", "") {
	}
	expect("list ok 0", "list denied 0")

	_ = s.Delete(ctx, "k")
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_ = s.Delete(canceled, "k")
	expect("delete ok 0", "delete canceled 0")
}

func TestMemoryTimes(t *testing.T) {
	m := objstore.NewMemory()
	now := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	m.SetClock(func() time.Time { return now })
	obj, err := objstore.PutBytes(t.Context(), m, "k", nil, objstore.PutOptions{})
	if err != nil || !obj.Modified.Equal(now) {
		t.Errorf("put at %v: %+v, %v", now, obj, err)
	}
	past := now.Add(-time.Hour)
	if err := m.SetModified("k", past); err != nil {
		t.Fatal(err)
	}
	if _, obj, err := objstore.ReadAll(t.Context(), m, "k", 0); err != nil || !obj.Modified.Equal(past) {
		t.Errorf("after setting it to %v: %+v, %v", past, obj, err)
	}
	if err := m.SetModified("none", past); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("setting the time of nothing: %v", err)
	}
}

// TestPrefixIsNormal holds that an empty prefix is the store itself and that
// slashes at the ends do not matter.
func TestPrefixIsNormal(t *testing.T) {
	m := objstore.NewMemory()
	if objstore.WithPrefix(m, "") != objstore.Store(m) || objstore.WithPrefix(m, "/") != objstore.Store(m) {
		t.Error("an empty prefix wraps the store")
	}
	for _, prefix := range []string{"a/b", "/a/b", "a/b/", "//a/b//"} {
		s := objstore.WithPrefix(m, prefix)
		if _, err := objstore.PutBytes(t.Context(), s, "k", []byte(prefix), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if data, _, err := objstore.ReadAll(t.Context(), m, "a/b/k", 100); err != nil || string(data) != prefix {
			t.Errorf("prefix %q: a/b/k holds %q (%v)", prefix, data, err)
		}
	}
}

// ignorant forgets the conditions of writes.
type ignorant struct{ objstore.Store }

func (s ignorant) Put(ctx context.Context, key string, body io.ReaderAt, size int64, _ objstore.PutOptions) (objstore.Object, error) {
	return s.Store.Put(ctx, key, body, size, objstore.PutOptions{})
}

func TestProbeFindsIgnorantStores(t *testing.T) {
	m := objstore.NewMemory()
	if err := objstore.ProbeConditional(t.Context(), ignorant{m}, "probe"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error is %v", err)
	}
	for range m.List(t.Context(), "", "") {
		t.Error("the probe left its object")
	}
}
