package celld

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const (
	hashA = "0123456789abcdef0123456789abcdef"
	hashB = "fedcba9876543210fedcba9876543210"
)

func TestScopes(t *testing.T) {
	long := "Cart:" + strings.Repeat("a", 250)
	for _, c := range []struct {
		in        string
		want      Scope
		class, id string
	}{
		{"Cart:5f0c", Scope{Cell: "Cart:5f0c"}, "Cart", "5f0c"},
		{"Cart:a:b", Scope{Cell: "Cart:a:b"}, "Cart", "a:b"},
		{"plain", Scope{Cell: "plain"}, "plain", ""},
		{".cron:shop", Scope{Cell: ".cron:shop"}, ".cron", "shop"},
		{"__Workflow.shop:$x-1_", Scope{Cell: "__Workflow.shop:$x-1_"}, "__Workflow.shop", "$x-1_"},
		{long, Scope{Cell: long}, "Cart", long[5:]},
		{"Cart:a/facets/" + hashA, Scope{"Cart:a", "facets/" + hashA}, "Cart", "a"},
		{"Cart:a/facets/" + hashA + "/facets/" + hashB + "/facets/" + hashA,
			Scope{"Cart:a", "facets/" + hashA + "/facets/" + hashB + "/facets/" + hashA}, "Cart", "a"},
	} {
		got, err := ParseScope(c.in)
		if err != nil || got != c.want || got.String() != c.in || got.Class() != c.class || got.ID() != c.id || Class(c.in) != c.class {
			t.Errorf("%q: %+v, class %q, id %q, %v", c.in, got, got.Class(), got.ID(), err)
		}
		if got.IsFacet() != strings.Contains(c.in, "/") || got.Root() != (Scope{Cell: c.want.Cell}) {
			t.Errorf("%q: facet %v, root %v", c.in, got.IsFacet(), got.Root())
		}
	}
	child := Scope{Cell: "Cart:a"}.Child(hashA).Child(hashB)
	if got, err := ParseScope(child.String()); err != nil || got != child {
		t.Errorf("child: %+v, %v", got, err)
	}
}

func TestScopesThatCannotBe(t *testing.T) {
	four := strings.Repeat("/facets/"+hashA, 4)
	for _, in := range []string{
		"", ".", "..", "Cart:" + strings.Repeat("a", 251), "Cart:a b", "Cart:a%2Fb", "Cart:é", "Cart:a+b", "Cart:a\x00",
		"Cart:a/", "/Cart:a", "Cart:a/b", "Cart:a/facets", "Cart:a/facets/", "Cart:a/facets/" + hashA + "/",
		"Cart:a/facets/" + hashA[1:], "Cart:a/facets/" + strings.ToUpper(hashA), "Cart:a/facet/" + hashA,
		"Cart:a/facets/" + hashA + "/x/" + hashA, "Cart:a/facets/..", "Cart:a" + four, "../facets/" + hashA,
	} {
		if got, err := ParseScope(in); !errors.Is(err, ErrName) {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
}

func TestClasses(t *testing.T) {
	for class, never := range map[string]bool{
		"Cart": false, "__D1Database": false, "__KvNamespace": false, "__Queue": true, "__Workflow": true,
		"__Workflow.shop": true, "__Workflows": false, ".cron": true, ".cron.x": true, "cron": false, "__Queues": false,
	} {
		if NeverExported(class) != never {
			t.Errorf("NeverExported(%q) = %v", class, !never)
		}
		if DefaultClass(class) == never {
			t.Errorf("DefaultClass(%q) = %v", class, never)
		}
	}
	if DefaultClass("") || DefaultClass(".new") {
		t.Error("a class that is none of the application's is exported by default")
	}
}

func TestLocalLayout(t *testing.T) {
	s := Scope{"Cart:a", "facets/" + hashA}
	want := filepath.Join("watch", "Cart:a", "facets", hashA, "ltx", "e7", ".db.sqlite-litestream", "ltx", "0")
	if got := LTXDir("watch", s, 7); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for name, want := range map[string]bool{
		"Cart:a": true, "peerlog": false, ".inspect-Cart:a-e1": false, ".cron:shop": false, ".clean-reload.json": false,
		"lost+found": false, "": false, "..": false,
	} {
		if IsCellDir(name) != want {
			t.Errorf("IsCellDir(%q) = %v", name, !want)
		}
	}
	for name, want := range map[string]uint64{"e0": 0, "e1": 1, "e18446744073709551615": 1<<64 - 1} {
		if got, ok := ParseEpochName(name); !ok || got != want || EpochName(got) != name {
			t.Errorf("%s: %d, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "e", "1", "e01", "e+1", "e-1", "E1", "e1 ", "e18446744073709551616", "e0x1", "e1_0", "e1.seal.json"} {
		if got, ok := ParseEpochName(name); ok {
			t.Errorf("%q: read as %d", name, got)
		}
	}
}

func TestKeys(t *testing.T) {
	facet := "Cart:a/facets/" + hashA
	for got, want := range map[string]string{
		OwnKey("Cart:a"):              "cells/Cart:a/own.json",
		RetiredKey("Cart:a"):          "cells/Cart:a/ltx/retired.json",
		LTXPrefix(facet):              "cells/Cart:a/facets/" + hashA + "/ltx/",
		LTXEpochPrefix("Cart:a", 12):  "cells/Cart:a/ltx/e12/",
		LTXKey("Cart:a", 3, 9, 1, 26): "cells/Cart:a/ltx/e3/0009/0000000000000001-000000000000001a.ltx",
		DeploymentKey(""):             "deploy/current.json",
		DeploymentKey("shop"):         "deploy/shop/current.json",
		ManifestKey("deploy/shop/v1"): "deploy/shop/v1/manifest.json",
		ControlKey:                    "fleet/control.json",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for key, want := range map[string]string{"deploy/current.json": "", "deploy/shop/current.json": "shop"} {
		if got, ok := ParseDeploymentKey(key); !ok || got != want {
			t.Errorf("%s: %q, %v", key, got, ok)
		}
	}
	for _, key := range []string{"deploy/", "deploy//current.json", "deploy/queues/q/current.json", "deploy/shop/v1/manifest.json", "current.json"} {
		if got, ok := ParseDeploymentKey(key); ok {
			t.Errorf("%s: read as %q", key, got)
		}
	}
}

func TestLTXKeys(t *testing.T) {
	const file = "0000000000000002-0000000000000005.ltx"
	for key, want := range map[string]LTXName{
		"cells/Cart:a/ltx/e3/0000/" + file: {Scope{Cell: "Cart:a"}, 3, 0, 2, 5},
		"cells/Cart:a/facets/" + hashA + "/ltx/e18446744073709551615/0009/" + file: {
			Scope{"Cart:a", "facets/" + hashA}, 1<<64 - 1, 9, 2, 5},
	} {
		got, ok, err := ParseLTXKey(key)
		if !ok || err != nil || got != want || LTXKey(got.Scope.String(), got.Epoch, got.Level, got.Min, got.Max) != key {
			t.Errorf("%s: %+v, %v, %v", key, got, ok, err)
		}
	}
	for _, key := range []string{
		"cells/Cart:a/own.json", "cells/Cart:a/ltx/retired.json", "cells/Cart:a/ltx/e1.seal.json",
		"export/Cart:a/ltx/e3/0000/" + file, "cells/Cart:a/ltx/e3/0000/" + file + ".tmp", "cells/Cart:a/ltx/x/" + file, "",
	} {
		if got, ok, err := ParseLTXKey(key); ok || err != nil {
			t.Errorf("%s: %+v, %v, %v", key, got, ok, err)
		}
	}
	for _, key := range []string{
		"cells/Cart:a/ltx/e3/" + file, "cells/Cart:a/ltx/e3/0000/x/" + file, "cells/Cart:a/ltx/e03/0000/" + file,
		"cells/Cart:a/ltx/ex/0000/" + file, "cells/Cart:a/ltx/e3/0/" + file, "cells/Cart:a/ltx/e3/000a/" + file,
		"cells/Cart:a/ltx/e3/0010/" + file, "cells/Cart:a/ltx/e3/000A/" + file, "cells/Cart:a/ltx/e3/0000/x.ltx",
		"cells/Cart:a/ltx/e3/0000/0000000000000005-0000000000000002.ltx", "cells/Cart:a/x/ltx/e3/0000/" + file,
		"cells/Cart:a b/ltx/e3/0000/" + file, "cells//ltx/e3/0000/" + file,
		// A second place where a key could be split: neither reading is legal.
		"cells/Cart:a/ltx/e3/0000/" + file + "/ltx/e4/0000/" + file,
	} {
		if got, ok, err := ParseLTXKey(key); ok || !errors.Is(err, ErrName) {
			t.Errorf("%s: %+v, %v, %v", key, got, ok, err)
		}
	}
}

// TestLTXKeyRoundTrip builds keys from any parts and splits keys at the first
// place where an epoch can begin: a legal scope has no other.
func TestLTXKeyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scope := Scope{Cell: rapid.StringMatching(`[A-Za-z_.][A-Za-z0-9_.:$-]{0,20}e[0-9]?`).Draw(t, "cell")}
		for range rapid.IntRange(0, 3).Draw(t, "depth") {
			scope = scope.Child(rapid.StringMatching(`[0-9a-f]{32}`).Draw(t, "hash"))
		}
		lo := rapid.Uint64Min(1).Draw(t, "min")
		want := LTXName{
			Scope: scope, Epoch: rapid.Uint64().Draw(t, "epoch"), Level: rapid.IntRange(0, 9).Draw(t, "level"),
			Min: lo, Max: rapid.Uint64Min(lo).Draw(t, "max"),
		}
		key := LTXKey(scope.String(), want.Epoch, want.Level, want.Min, want.Max)
		got, ok, err := ParseLTXKey(key)
		if !ok || err != nil || got != want {
			t.Fatalf("%s: %+v, %v, %v", key, got, ok, err)
		}
		if first, _, _ := strings.Cut(strings.TrimPrefix(key, CellsPrefix), "/ltx/e"); first != scope.String() {
			t.Fatalf("%s: split at the first place its scope is %s", key, first)
		}
	})
}

func TestEscapeName(t *testing.T) {
	for in, want := range map[string]string{
		"Cart:a_b.c$D9": "Cart:a_b.c$D9", "a-b": "a%2Db", "facets/" + hashA: "facets%2F" + hashA, "100%": "100%25", "é": "%C3%A9", "": "",
	} {
		if got := EscapeName(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		if a != b && EscapeName(a) == EscapeName(b) {
			t.Fatalf("%q and %q are both spelled %q", a, b, EscapeName(a))
		}
	})
}

func TestDocuments(t *testing.T) {
	own, err := ParseOwn([]byte(` {"node":"n1","epoch":18446744073709551615,"later":[1]} `))
	if want := (Own{"n1", 1<<64 - 1}); err != nil || own != want {
		t.Errorf("own: %+v, %v", own, err)
	}
	if got := string(own.Append(nil)); got != `{"node":"n1","epoch":18446744073709551615}` {
		t.Errorf("own written: %s", got)
	}
	if own, err := ParseOwn([]byte(`{"node":"","epoch":4}`)); err != nil || own != (Own{"", 4}) {
		t.Errorf("released: %+v, %v", own, err)
	}
	if r, err := ParseRetired([]byte(`{"retired_below":7}`)); err != nil || r.Below != 7 {
		t.Errorf("retired: %+v, %v", r, err)
	}
	c, err := ParseControl([]byte(`{"backend":"dynamodb","fleet":"f","format":1,"region":"eu","table":"t"}`))
	if err != nil || c != (Control{"dynamodb", "t"}) || c.InBucket() {
		t.Errorf("control: %+v, %v", c, err)
	}
	if c, err := ParseControl([]byte(`{"backend":"bucket"}`)); err != nil || !c.InBucket() {
		t.Errorf("control: %+v, %v", c, err)
	}
	d, err := ParseDeployment([]byte(`{"script_name":"shop","version":"v1","prefix":"deploy/shop/v1/","rollout":{"percent":100}}`))
	if err != nil || d != (Deployment{"shop", "deploy/shop/v1"}) {
		t.Errorf("deployment: %+v, %v", d, err)
	}
	m, err := ParseManifest([]byte(`{"schema_version":2,"script_name":"shop","do_classes":["Cart","Shelf"],"modules":[{"name":"m"}]}`))
	if diff := cmp.Diff(Manifest{"shop", []string{"Cart", "Shelf"}}, m); err != nil || diff != "" {
		t.Errorf("manifest: %v, %s", err, diff)
	}
}

func TestDocumentsThatCannotBeRead(t *testing.T) {
	parsers := map[string]func([]byte) error{
		"own":        func(b []byte) error { _, err := ParseOwn(b); return err },
		"retired":    func(b []byte) error { _, err := ParseRetired(b); return err },
		"control":    func(b []byte) error { _, err := ParseControl(b); return err },
		"deployment": func(b []byte) error { _, err := ParseDeployment(b); return err },
		"manifest":   func(b []byte) error { _, err := ParseManifest(b); return err },
	}
	good := map[string]string{
		"own": `{"node":"n","epoch":1}`, "retired": `{"retired_below":1}`, "control": `{"backend":"bucket"}`,
		"deployment": `{"script_name":"s","prefix":"p"}`, "manifest": `{"script_name":"s"}`,
	}
	for name, parse := range parsers {
		if err := parse([]byte(good[name])); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, bad := range []string{"", "null", "[]", "{}", `"x"`, good[name][:len(good[name])-1], good[name] + "{}", good[name] + "x", "\x00"} {
			if err := parse([]byte(bad)); !errors.Is(err, ErrDocument) {
				t.Errorf("%s %q: %v", name, bad, err)
			}
		}
	}
	for _, c := range []struct{ name, text string }{
		{"own", `{"node":"n"}`}, {"own", `{"epoch":1}`}, {"own", `{"node":null,"epoch":1}`}, {"own", `{"node":"n","epoch":-1}`},
		{"own", `{"node":"n","epoch":1.5}`}, {"own", `{"node":"n","epoch":"1"}`}, {"own", `{"node":1,"epoch":1}`},
		{"own", `{"node":"n","epoch":18446744073709551616}`}, {"retired", `{"retired_below":"7"}`}, {"control", `{"backend":""}`},
		{"control", `{"backend":true}`}, {"deployment", `{"script_name":"s","prefix":"/"}`}, {"deployment", `{"script_name":"s","prefix":"/p"}`},
		{"deployment", `{"script_name":"","prefix":"p"}`}, {"manifest", `{"do_classes":["A"]}`}, {"manifest", `{"script_name":"s","do_classes":[""]}`},
		{"manifest", `{"script_name":"s","do_classes":[{"name":"A"}]}`},
	} {
		if err := parsers[c.name]([]byte(c.text)); !errors.Is(err, ErrDocument) {
			t.Errorf("%s %s: %v", c.name, c.text, err)
		}
	}
}
