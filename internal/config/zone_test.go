package config

import (
	"strings"
	"testing"
)

// TestZoneNames: 1 to 128 ASCII letters, digits, ., - and _, and nothing else,
// wherever a zone is named.
func TestZoneNames(t *testing.T) {
	good := []string{"a", "Z", "0", ".", "-", "_", "us-east-1a", "US_EAST.1", "a.b-c_D9", strings.Repeat("z", 128), strings.Repeat("Q", 128), "..", "-a"}
	bad := []string{strings.Repeat("z", 129), "a b", "a/b", "a:b", "a=b", "ä", "a\u00a0b", "a\x00", "zone\n1", "a+b", "a@b", "ａ"}
	for name, check := range map[string]func(string) []string{
		"zone":      func(z string) []string { return []string{"CELLD_ZONE=" + z, "CELLD_EXPORT_ZONES=other"} },
		"writer id": func(z string) []string { return []string{"CELLD_EXPORT_WRITER_ID=" + z, "CELLD_EXPORT_ZONES=other"} },
		"zones":     func(z string) []string { return []string{"CELLD_EXPORT_ZONES=first," + z} },
	} {
		for _, z := range good {
			if _, _, err := Load("", check(z)); err != nil {
				t.Errorf("%s %q is refused: %v", name, z, err)
			}
		}
		for _, z := range bad {
			if _, _, err := Load("", check(z)); err == nil || !strings.Contains(err.Error(), "not a zone name") {
				t.Errorf("%s %q: %v", name, z, err)
			}
		}
	}
}
