package ledger

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/internal/objstore"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden is a ledger that has everything.
func golden() *Document {
	return &Document{
		Format: 1, Token: "0123456789abcdef0123456789abcdef", Facets: 7,
		Streams: []Stream{
			{Identity: Identity{Script: "shop", Class: "Cart", Cell: "Cart:a/b", Facet: "facets/<&é>", Incarnation: 3}},
			{
				Identity:  Identity{Script: "shop", Class: "Cart", Cell: "Cart:a/b", Facet: "facets/<&é>", Incarnation: 18446744073709551615},
				Forgotten: 2, States: []string{"s2", "s3"},
				Epochs: []Epoch{
					{Epoch: 9007199254740993, StartTXID: 1, Mode: ModeFresh, Writer: nodeA, Closed: ref(12)},
					closed(pin(9007199254740995, nodeB), 0),
					pin(18446744073709551615, nodeA),
				},
				Tables: map[string][]Generation{
					"z":  {{Generation: 4, Closed: &Mark{Epoch: 2, TXID: 8}}},
					"a":  {gen(1, Mark{3, 1}, Mark{3, 2}), gen(2, Mark{3, 2}, Mark{})},
					"B":  {{Generation: 1, Opened: Mark{Epoch: 3, TXID: 2}, SQLHash: "h", RenamedFrom: "old \"B\""}},
					"kv": {gen(1, Mark{3, 1}, Mark{})},
					"":   {gen(1, Mark{3, 1}, Mark{})},
				},
			},
		},
	}
}

func TestGolden(t *testing.T) {
	d := golden()
	got, err := d.encode()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "ledger.json")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("the ledger's bytes changed (-want +got):\n%s", diff)
	}
	for range 20 { // maps have no order of their own
		if again, err := golden().encode(); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("equal ledgers have other bytes (%v)", err)
		}
	}
	back, err := decode(Key(d.Streams[0].Cell, d.Streams[0].Facet), want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, back); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	d := golden()
	c := d.clone()
	s := &c.Streams[1]
	s.Life("new")
	s.States[0] = "changed"
	s.Epochs[0].Mode = "changed"
	s.Tables["a"][0].SQLHash = "changed"
	s.Tables["new"] = nil
	c.Streams[0].Script = "changed"
	if diff := cmp.Diff(golden(), d); diff != "" {
		t.Errorf("changing a copy changed the document (-want +got):\n%s", diff)
	}
}

func TestKeys(t *testing.T) {
	seen := map[string]string{}
	for _, test := range []struct{ cell, facet, want string }{
		{"Cart:1", "", "exportd/ledger/Cart:1/root.json"},
		{"Cart:1", "root", "exportd/ledger/Cart:1/f.root.json"},
		{"Cart:a-b", "", "exportd/ledger/Cart:a%2Db/root.json"},
		{"Cart:a/b", "", "exportd/ledger/Cart:a%2Fb/root.json"},
		{"Cart:a%2Fb", "", "exportd/ledger/Cart:a%252Fb/root.json"},
		{"Cart:x/", "facets/y", "exportd/ledger/Cart:x%2F/f.facets%2Fy.json"},
		{"Cart:é", "", "exportd/ledger/Cart:%C3%A9/root.json"},
		{"Cart:e\u0301", "", "exportd/ledger/Cart:e%CC%81/root.json"},
		{"Cart:..", "", "exportd/ledger/Cart:../root.json"},
	} {
		got := Key(test.cell, test.facet)
		if got != test.want {
			t.Errorf("key of %q, %q is %q, want %q", test.cell, test.facet, got, test.want)
		}
		if err := objstore.CheckKey(got); err != nil {
			t.Error(err)
		}
		if other, twice := seen[got]; twice {
			t.Errorf("%q and %q share a key", other, test.cell)
		}
		seen[got] = test.cell
	}
}

func TestLoadRefuses(t *testing.T) {
	const start = `{"format":1,"token":"t","streams":[{"script":"shop","class":"Cart","cell":"Cart:1","incarnation":1`
	const writer = `"writer":{"node":"a","state":"s"}`
	epoch := func(n string) string {
		return `{"epoch":` + n + `,"start_txid":1,"mode":"fresh","prev_epoch":null,"prev_txid":null,` + writer + `}`
	}
	for name, test := range map[string]struct {
		body string
		want error
		text string
	}{
		"empty":               {"", ErrCorrupt, "not JSON"},
		"cut off":             {start, ErrCorrupt, "not JSON"},
		"not JSON":            {"<html>", ErrCorrupt, "not JSON"},
		"another type":        {`[1]`, ErrCorrupt, ""},
		"null":                {`null`, ErrCorrupt, "format"},
		"no format":           {`{"token":"t","streams":[]}`, ErrCorrupt, "format"},
		"format 0":            {`{"format":0,"token":"t","streams":[]}`, ErrCorrupt, "format"},
		"newer":               {`{"format":2,"anything":true}`, ErrNewer, "format 2"},
		"no token":            {`{"format":1,"streams":[]}`, ErrCorrupt, "token"},
		"unknown field":       {start + `,"surprise":1}]}`, ErrCorrupt, "surprise"},
		"something behind":    {start + `}]}{}`, ErrCorrupt, "not JSON"},
		"number as text":      {start + `,"states_forgotten":"1"}]}`, ErrCorrupt, ""},
		"negative":            {start + `,"states_forgotten":-1}]}`, ErrCorrupt, ""},
		"incarnations":        {start + `},{"script":"shop","class":"Cart","cell":"Cart:1","incarnation":1}]}`, ErrCorrupt, "follows"},
		"another script":      {start + `},{"script":"other","class":"Cart","cell":"Cart:1","incarnation":2}]}`, ErrCorrupt, "follows"},
		"another cell's":      {strings.ReplaceAll(start, "Cart:1", "Cart:2") + `}]}`, ErrCorrupt, "belongs to exportd/ledger/Cart:2/root.json"},
		"a facet's":           {start + `,"facet":"f"}]}`, ErrCorrupt, "belongs to"},
		"epochs out of order": {start + `,"epochs":[` + epoch("2") + `,` + epoch("2") + `]}]}`, ErrCorrupt, "e2 follows e2"},
		"unknown mode":        {start + `,"epochs":[` + strings.ReplaceAll(epoch("2"), "fresh", "odd") + `]}]}`, ErrCorrupt, "odd"},
		"nobody's epoch":      {start + `,"epochs":[` + strings.ReplaceAll(epoch("2"), `"node":"a"`, `"node":""`) + `]}]}`, ErrCorrupt, "writer"},
		"two open":            {start + `,"tables":{"t":[{"generation":1},{"generation":2}]}}]}`, ErrCorrupt, `table "t"`},
		"no generation":       {start + `,"tables":{"t":[]}}]}`, ErrCorrupt, `table "t"`},
	} {
		t.Run(name, func(t *testing.T) {
			store := objstore.NewMemory()
			if _, err := objstore.PutBytes(t.Context(), store, key, []byte(test.body), objstore.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			d, _, err := Load(t.Context(), store, key)
			if d != nil || !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) || !strings.Contains(err.Error(), key) {
				t.Errorf("loaded %+v with %v; want %v naming the key and %q", d, err, test.want, test.text)
			}
			called := false
			_, err = Update(t.Context(), store, key, noise(1), func(*Document) error { called = true; return nil })
			if !errors.Is(err, test.want) || called {
				t.Errorf("update gave %v, change called: %t", err, called)
			}
			data, _, err := objstore.ReadAll(t.Context(), store, key, 1<<20)
			if err != nil || string(data) != test.body {
				t.Errorf("the object was changed to %q (%v)", data, err)
			}
		})
	}
}

func TestLoadRefusesOversized(t *testing.T) {
	store := objstore.NewMemory()
	if _, err := objstore.PutBytes(t.Context(), store, key, make([]byte, maxBytes+1), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(t.Context(), store, key); !errors.Is(err, ErrCorrupt) || !errors.Is(err, objstore.ErrTooLarge) {
		t.Errorf("error is %v", err)
	}
}

func TestLoadAbsent(t *testing.T) {
	d, etag, err := Load(t.Context(), objstore.NewMemory(), key)
	if d != nil || etag != "" || err != nil {
		t.Errorf("an absent ledger is %+v, %q, %v", d, etag, err)
	}
}

// FuzzDecode holds that what is accepted is written back as the same document.
func FuzzDecode(f *testing.F) {
	whole, err := golden().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"format":1,"token":"t","streams":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := decode(Key("Cart:a/b", "facets/<&é>"), data)
		if err != nil {
			return
		}
		again, err := d.encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(Key("Cart:a/b", "facets/<&é>"), again)
		if err != nil {
			t.Fatalf("what was written is refused: %v", err)
		}
		third, err := back.encode()
		if err != nil || !bytes.Equal(again, third) {
			t.Fatalf("the second writing differs (%v):\n%s\n%s", err, again, third)
		}
		c := d.clone()
		c.Streams = append(c.Streams, Stream{})
	})
}
