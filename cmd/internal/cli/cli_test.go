package cli

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/spf13/cobra"

	"celldexport/internal/config"
)

func TestReport(t *testing.T) {
	_, _, badSettings := config.Load("", []string{"CELLD_EXPORT=maybe"})
	cases := []struct {
		name string
		err  error
		code int
		text string
	}{
		{"nothing", nil, 0, ""},
		{"failure", errors.New("disk full"), 1, "x: disk full\n"},
		{"usage", Usage("no such %s", "verb"), 2, "x: no such verb\n"},
		{"wrapped usage", fmt.Errorf("run: %w", Usage("bad")), 2, "x: run: bad\n"},
		{"own code", &ExitError{Code: 4, Err: errors.New("3 cells")}, 4, "x: 3 cells\n"},
		{"said already", &ExitError{Code: 3}, 3, ""},
		{"settings", badSettings, 2, "x: CELLD_EXPORT: export.enabled: \"maybe\": neither on nor off; allowed: 0, 1\n"},
	}
	for _, c := range cases {
		var stderr bytes.Buffer
		if code := Report(&stderr, "x", c.err); code != c.code || stderr.String() != c.text {
			t.Errorf("%s: %d %q, want %d %q", c.name, code, &stderr, c.code, c.text)
		}
	}
}

func TestCommandErrors(t *testing.T) {
	cases := []struct {
		args []string
		code int
		text string
	}{
		{[]string{"verb"}, 0, ""},
		{[]string{"verb", "a"}, 0, ""},
		{nil, 2, ""},
		{[]string{"verbs"}, 2, "x: unknown command \"verbs\", did you mean verb?; see x --help\n"},
		{[]string{"zzz"}, 2, "x: unknown command \"zzz\"; see x --help\n"},
		{[]string{"verb", "--nope"}, 2, "x: unknown flag: --nope; see x verb --help\n"},
		{[]string{"verb", "--name"}, 2, "x: --name needs a value; see x verb --help\n"},
		{[]string{"verb", "a", "b"}, 2, "x: unexpected argument \"b\"; see x verb --help\n"},
	}
	for _, c := range cases {
		var stdout, stderr bytes.Buffer
		root := &cobra.Command{Use: "x", SuggestionsMinimumDistance: 2}
		Prepare(root, &stdout, &stderr)
		verb := &cobra.Command{Use: "verb", Args: AtMost(1), RunE: func(*cobra.Command, []string) error { return nil }}
		verb.Flags().String("name", "", "")
		root.AddCommand(verb)
		root.SetArgs(c.args)
		if c.args == nil {
			root.SetArgs([]string{})
		}
		if code := Report(&stderr, "x", root.Execute()); code != c.code || stderr.String() != c.text {
			t.Errorf("%q: %d %q, want %d %q", c.args, code, &stderr, c.code, c.text)
		}
	}
}

func TestLookupTakesTheLast(t *testing.T) {
	environ := []string{"A=1", "B", "A=2=3", "AB=4"}
	for name, want := range map[string]string{"A": "2=3", "B": "", "C": "", "AB": "4"} {
		if got := Lookup(environ, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestVersion(t *testing.T) {
	stamped := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}
	for want, info := range map[string]*debug.BuildInfo{
		"v1.2.3":                     {Main: debug.Module{Version: "v1.2.3"}},
		"devel":                      {Main: debug.Module{Version: "(devel)"}},
		"devel-0123456789ab+changes": {Settings: stamped},
		"devel-0123456789ab":         {Settings: stamped[:1]},
	} {
		if got := versionOf(info); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
