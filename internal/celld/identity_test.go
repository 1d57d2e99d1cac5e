package celld

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The ids were computed by another program from the rule's description.
const (
	shopAlice  = "865bc354ae8bfaaea39703bb8af5a1b62d6bbdc9a214270bc05ea88d51123324"
	shopRandom = "000102030405060708090a0b0c0d0e0ff0a1c3191bc3c63a724228bf0c179c95"
	d1Main     = "2df06f6043aeb72afdfbcaee89152bbe275e35bc2ad3746318fa16c38451688b"
)

func TestIDs(t *testing.T) {
	for _, c := range []struct{ script, class, name, want string }{
		{"shop", "Cart", "alice", shopAlice},
		{"shöp", "Cart", "alice", "446dceef6012709c605c3b5f72969a479da432e95bc8087abad332406fe744a2"},
		{"shop", ClassD1, "main", d1Main},
		{"", ClassKV, "ns1/0", "7834564983af1fb39b95a74ebbfa9209f3be1c9f3747dbbc03cc93a65c5a1c92"},
		{"other", ClassQueue, "jobs", "a84d7f9d145670a627af0fd2e349251eab0143e2df532276fd4ad9877c45ff7f"},
	} {
		if got := IDOf(c.script, c.class, c.name); got != c.want {
			t.Errorf("%q %q %q: got %s", c.script, c.class, c.name, got)
		}
	}
}

func TestBelongs(t *testing.T) {
	if !Belongs("shop", "Cart", shopRandom) {
		t.Error("an id without a name is refused")
	}
	for _, c := range []struct{ script, class, id string }{
		{"shop", "Shelf", shopAlice}, {"depot", "Cart", shopAlice}, {"shop", "Cart", strings.ToUpper(shopAlice)},
		{"shop", "Cart", shopAlice[:63]}, {"shop", "Cart", shopAlice + "0"}, {"shop", "Cart", ""},
		{"shop", "Cart", shopAlice[:63] + "g"}, {"shop", "Cart", shopAlice[:63] + "5"}, {"shop", "Cart", "1" + shopAlice[1:]},
	} {
		if Belongs(c.script, c.class, c.id) {
			t.Errorf("%s of %s has the id %s", c.class, c.script, c.id)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		script, class, name := rapid.String().Draw(t, "script"), rapid.String().Draw(t, "class"), rapid.String().Draw(t, "name")
		if !Belongs(script, class, IDOf(script, class, name)) {
			t.Fatal("an id does not belong where it was made")
		}
	})
}

func TestScriptFor(t *testing.T) {
	shop, depot := Manifest{"shop", []string{"Cart", "Shelf"}}, Manifest{"depot", []string{"Cart"}}
	for name, c := range map[string]struct {
		class, id string
		manifests []Manifest
		want      string
	}{
		"listed once":            {"Shelf", "any", []Manifest{shop, depot}, "shop"},
		"listed twice by one":    {"Shelf", "any", []Manifest{shop, shop}, "shop"},
		"listed by two":          {"Cart", shopAlice, []Manifest{depot, shop}, "shop"},
		"listed by two, random":  {"Cart", shopRandom, []Manifest{shop, depot}, "shop"},
		"no longer listed":       {"Cart", shopAlice, []Manifest{{"depot", nil}, {"shop", nil}}, "shop"},
		"shared, one script":     {ClassD1, d1Main, []Manifest{shop}, "shop"},
		"shared, many scripts":   {ClassD1, d1Main, []Manifest{shop, depot}, ""},
		"listed by two, neither": {"Cart", strings.Repeat("0", 64), []Manifest{shop, depot}, ""},
		"listed by none":         {"Gone", shopAlice, []Manifest{shop, depot}, ""},
		"nothing deployed":       {"Cart", shopAlice, nil, ""},
	} {
		got, err := ScriptFor(c.class, c.id, c.manifests)
		if got != c.want || errors.Is(err, ErrScriptUnclear) != (c.want == "") {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
