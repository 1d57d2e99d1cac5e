package config

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/internal/celld"
)

// TestCFG01 is what people set by mistake, with the export off and on: a
// malformed value is refused in both modes with its variable and value, an
// empty one counts as unset, relations are judged only when on, and what is
// taken means what it says.
func TestCFG01(t *testing.T) {
	refused := map[string][]string{
		"CELLD_EXPORT_RETENTION": {"0d", "-1d", "14", "14D"},
		"CELLD_EXPORT_FLUSH_MS":  {"0", "1e3", "10s", " 1000"},
		"CELLD_EXPORT_SINK":      {"bucket,", "bucket,bucket", "Bucket"},
		"CELLD_EXPORT_CLASSES":   {"Cart,,Order,", "__Queue", ".cron", "__Workflow.x"},
		"CELLD_EXPORT_TABLES":    {"Cart", `Cart."x y"`},
		"CELLD_EXPORT_RECONCILE": {"24", "0s", "1w"},
	}
	for _, on := range []bool{false, true} {
		environ := []string{"CELLD_EXPORT=0"}
		if on {
			environ = onEnviron()
		}
		load := func(more ...string) (*Settings, []Warning, error) {
			return Load("", append(slices.Clone(environ), more...))
		}
		for variable, values := range refused {
			for _, value := range values {
				_, _, err := load(variable + "=" + value)
				var problems Problems
				if !errors.As(err, &problems) {
					t.Errorf("on %v: %s=%q: %v, want a problem", on, variable, value, err)
					continue
				}
				if text := strings.ReplaceAll(problems.Error(), `\"`, `"`); !strings.Contains(text, variable) || !strings.Contains(text, strings.TrimSpace(value)) {
					t.Errorf("on %v: %s=%q is refused without variable or value: %s", on, variable, value, text)
				}
			}
			plain, _, err := load()
			empty, _, err2 := load(variable + "=")
			if err != nil || err2 != nil || !cmp.Equal(plain, empty) {
				t.Errorf("on %v: %s= is not as unset: %v, %v", on, variable, err, err2)
			}
		}
		s, _, err := load("CELLD_EXPORT_RETENTION=none", "CELLD_EXPORT_TABLES=Cart.kv,Cart.a.b")
		if err != nil || s.Export.Retention != 0 || !cmp.Equal(s.Export.DenyTables, []Table{{"Cart", "kv"}, {"Cart", "a.b"}}) {
			t.Errorf("on %v: %v, retention %v, tables %v", on, err, s.Export.Retention, s.Export.DenyTables)
		}
		_, warnings, err := load("CELLD_EXPORT_FOO=1")
		if err != nil || !slices.ContainsFunc(warnings, func(w Warning) bool { return !w.Staged && strings.Contains(w.Error(), "CELLD_EXPORT_FOO") }) {
			t.Errorf("on %v: an unknown variable: %v, warnings %v", on, err, warnings)
		}
		_, _, err = load("CELLD_EXPORT_MAX_RECORD_BYTES=2097152", "CELLD_EXPORT_QUEUE_BYTES=1048576", "CELLD_EXPORT_FLUSH_BYTES=1")
		if (err != nil) != on {
			t.Errorf("on %v: a record larger than the queue: %v", on, err)
		}
	}
	for _, class := range []string{"__Queue", "__Workflow", "__Workflow.x", ".cron", ".cron.shop"} {
		if !celld.NeverExported(class) {
			t.Errorf("class %s may be exported", class)
		}
	}
}
