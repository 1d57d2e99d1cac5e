package ledger

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"celldexport/internal/objstore"
)

func claim(t *testing.T, store objstore.Store, doc NodeDoc, etag string) error {
	t.Helper()
	return ClaimNode(t.Context(), store, "node-a", doc, etag)
}

func loadNode(t *testing.T, store objstore.Store) (NodeDoc, string) {
	t.Helper()
	d, etag, err := LoadNode(t.Context(), store, "node-a")
	if err != nil || d == nil {
		t.Fatalf("node object is %+v, %v", d, err)
	}
	return *d, etag
}

func TestNode(t *testing.T) {
	store := objstore.NewMemory()
	if d, etag, err := LoadNode(t.Context(), store, "node-a"); d != nil || etag != "" || err != nil {
		t.Errorf("an absent node object is %+v, %q, %v", d, etag, err)
	}
	first := NodeDoc{State: "s1", Boot: 1, Token: "t1", Before: "export/changes/node-a/x"}
	if err := claim(t, store, first, ""); err != nil {
		t.Fatal(err)
	}
	got, etag := loadNode(t, store)
	first.Format = Format
	if got != first {
		t.Errorf("claimed %+v, read %+v", first, got)
	}
	if err := claim(t, store, NodeDoc{State: "s1", Boot: 2, Token: "t2"}, etag); err != nil {
		t.Fatal(err)
	}
	for name, stale := range map[string]string{"an ETag that is gone": etag, "no ETag": ""} {
		if err := claim(t, store, NodeDoc{State: "s2", Boot: 2, Token: "t3"}, stale); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), NodeKey("node-a")) {
			t.Errorf("a claim with %s: %v", name, err)
		}
	}
	if got, _ := loadNode(t, store); got.Token != "t2" {
		t.Errorf("node object is %+v", got)
	}
	// One that was written before there was anything to say of others.
	older := `{"format":1,"state":"s1","boot":7,"token":"t7"}` + "\n"
	if _, err := objstore.PutBytes(t.Context(), store, NodeKey("node-a"), []byte(older), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, _ := loadNode(t, store); got != (NodeDoc{Format: 1, State: "s1", Boot: 7, Token: "t7"}) {
		t.Errorf("an older node object is %+v", got)
	}
	if key := NodeKey("node-a"); key != "exportd/nodes/node%2Da.json" {
		t.Errorf("key is %s", key)
	}
	if err := claim(t, store, NodeDoc{State: "s1", Boot: 3}, ""); err == nil || errors.Is(err, ErrTaken) {
		t.Errorf("a claim without a token: %v", err)
	}
}

func TestClaimNodeOutcomes(t *testing.T) {
	broken := errors.New("connection reset")
	mine := NodeDoc{State: "mine", Boot: 2, Token: "m"}
	for _, test := range []struct {
		name string
		rule objstore.Rule
		race bool
		want error
		then string
	}{
		{"answer lost", objstore.Rule{Times: 1, After: broken}, false, nil, "mine"},
		{"answers lost", objstore.Rule{After: broken}, false, nil, "mine"},
		{"request lost", objstore.Rule{Times: 1, Before: broken}, false, nil, "mine"},
		{"requests lost", objstore.Rule{Before: broken}, false, broken, "old"},
		{"refused", objstore.Rule{Before: objstore.ErrDenied}, false, objstore.ErrDenied, "old"},
		{"race lost", objstore.Rule{}, true, ErrTaken, "other"},
		{"request lost, then the race", objstore.Rule{Times: 1, Before: broken}, true, ErrTaken, "other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := objstore.NewMemory()
			if err := claim(t, base, NodeDoc{State: "old", Boot: 1, Token: "o"}, ""); err != nil {
				t.Fatal(err)
			}
			_, etag := loadNode(t, base)
			store := objstore.NewFault(base)
			if test.race {
				store.Add(objstore.Rule{Op: objstore.OpPut, Times: 1, Wait: func(ctx context.Context, _, _ string) error {
					return ClaimNode(ctx, base, "node-a", NodeDoc{State: "other", Boot: 2, Token: "x"}, etag)
				}})
			}
			test.rule.Op = objstore.OpPut
			store.Add(test.rule)
			if err := claim(t, store, mine, etag); !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
			if got, _ := loadNode(t, base); got.State != test.then {
				t.Errorf("the node object is %+v, want state %s", got, test.then)
			}
		})
	}
}

func TestClaimNodeRace(t *testing.T) {
	store := objstore.NewMemory()
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			token := string(rune('a' + i))
			switch err := claim(t, store, NodeDoc{State: token, Boot: 1, Token: token}, ""); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, ErrTaken):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d claims won", won.Load())
	}
}

func TestLoadNodeRefuses(t *testing.T) {
	for name, body := range map[string]string{
		"not JSON":      "x",
		"no state":      `{"format":1,"boot":1,"token":"t"}`,
		"no boot":       `{"format":1,"state":"s","token":"t"}`,
		"no token":      `{"format":1,"state":"s","boot":1}`,
		"unknown field": `{"format":1,"state":"s","boot":1,"token":"t","more":1}`,
		"a ledger":      `{"format":1,"token":"t","streams":[]}`,
	} {
		store := objstore.NewMemory()
		if _, err := objstore.PutBytes(t.Context(), store, NodeKey("n"), []byte(body), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if d, _, err := LoadNode(t.Context(), store, "n"); d != nil || !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), NodeKey("n")) {
			t.Errorf("%s: loaded %+v with %v", name, d, err)
		}
	}
}
