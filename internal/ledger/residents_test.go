package ledger

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"celldexport/internal/objstore"
)

func TestResidents(t *testing.T) {
	store := objstore.NewFault(objstore.NewMemory())
	if r, err := LoadResidents(t.Context(), store, "node-a"); r != nil || err != nil {
		t.Errorf("an absent list is %+v, %v", r, err)
	}
	for _, first := range []map[string]uint64{{}, {"Cart:1": 1<<64 - 1, "Order:2": 3}} {
		node := map[bool]string{true: "none", false: "node-a"}[len(first) == 0]
		for n, epochs := range []map[string]uint64{first, {"Cart:3": 4}} {
			got, err := SaveResidents(t.Context(), store, node, epochs)
			if err != nil || !maps.Equal(got.Epochs, first) {
				t.Errorf("%s: save %d gives %+v, %v; the first list is %v", node, n, got, err, first)
			}
		}
		if got, err := LoadResidents(t.Context(), store, node); err != nil || got.Node != node || !maps.Equal(got.Epochs, first) {
			t.Errorf("%s: loaded %+v, %v", node, got, err)
		}
	}
	if key := ResidentsKey("node-a"); key != "exportd/residents/node%2Da.json" {
		t.Errorf("key is %s", key)
	}
}

// A list whose write failed is stored or an error, never something between.
func TestResidentsOutcomes(t *testing.T) {
	broken := errors.New("connection reset")
	for _, test := range []struct {
		name string
		rule objstore.Rule
		want error
	}{
		{"answer lost", objstore.Rule{Op: objstore.OpPut, After: broken}, nil},
		{"request lost", objstore.Rule{Op: objstore.OpPut, Before: broken}, broken},
		{"all lost", objstore.Rule{Before: broken}, broken},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := objstore.NewFault(objstore.NewMemory())
			remove := store.Add(test.rule)
			got, err := SaveResidents(t.Context(), store, "n", map[string]uint64{"Cart:1": 2})
			if !errors.Is(err, test.want) || (got == nil) == (err == nil) {
				t.Errorf("saved %+v, %v; want error %v", got, err, test.want)
			}
			remove()
			stored, err := LoadResidents(t.Context(), store, "n")
			if err != nil || (stored == nil) != (test.want != nil) {
				t.Errorf("stored is %+v, %v", stored, err)
			}
		})
	}
}

func TestLoadResidentsRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		body string
		want error
	}{
		"not JSON":       {"x", ErrCorrupt},
		"another node's": {`{"format":1,"node":"m","epochs":{}}`, ErrCorrupt},
		"no epochs":      {`{"format":1,"node":"n"}`, ErrCorrupt},
		"no number":      {`{"format":1,"node":"n","epochs":{"Cart:1":"2"}}`, ErrCorrupt},
		"unknown field":  {`{"format":1,"node":"n","epochs":{},"more":1}`, ErrCorrupt},
		"newer":          {`{"format":2,"node":"n","epochs":{}}`, ErrNewer},
	} {
		store := objstore.NewMemory()
		if _, err := objstore.PutBytes(t.Context(), store, ResidentsKey("n"), []byte(test.body), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if r, err := LoadResidents(t.Context(), store, "n"); r != nil || !errors.Is(err, test.want) || !strings.Contains(err.Error(), ResidentsKey("n")) {
			t.Errorf("%s: loaded %+v with %v", name, r, err)
		}
		if r, err := SaveResidents(t.Context(), store, "n", map[string]uint64{}); r != nil || !errors.Is(err, test.want) {
			t.Errorf("%s: written over: %+v, %v", name, r, err)
		}
	}
}
