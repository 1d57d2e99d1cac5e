package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzFile loads any text as a settings file. What is refused is refused with
// the file's name; what is accepted comes out as a file that loads to the
// same settings.
func FuzzFile(f *testing.F) {
	broken, err := os.ReadFile("testdata/broken.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(broken))
	for _, c := range everySetting() {
		f.Add(inFile(c.key, c.yaml))
	}
	f.Add("a: &a [*a]\n")
	f.Add("export: {enabled: true, sinks: [bucket]}\n--- \n")
	f.Add("script: |\n  x\n  y\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, _, err := Load(path, nil)
		if err != nil {
			for _, p := range err.(Problems) {
				if p.Reason == "" || p.Place.Source != "" && p.Place.File != "" {
					t.Fatalf("a problem without reason or place: %#v", p)
				}
			}
			return
		}
		shown, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again := &loader{settings: Default(), table: settings(), places: map[string]Place{}, bad: map[string]bool{}}
		again.document("shown.yaml", shown)
		if len(again.problems) > 0 {
			t.Fatalf("%s\nloads, but shown as %s it does not: %v", text, shown, again.problems)
		}
		if diff := cmp.Diff(s, again.settings); diff != "" && !strings.Contains(text, "@") {
			t.Fatalf("(-loaded +shown and loaded):\n%s", diff)
		}
	})
}
