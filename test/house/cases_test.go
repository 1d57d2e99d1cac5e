package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCasesNameTestsThatExist holds docs/CASES.md against the tests: each one
// named there is a test of one of the packages beside it.
func TestCasesNameTestsThatExist(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "CASES.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test[A-Za-z0-9_]+)(\\*?)`")
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[2], "`Test") {
			continue
		}
		rows++
		var tests []string
		for _, dir := range strings.FieldsFunc(cells[3], func(r rune) bool { return strings.ContainsRune(";, ", r) }) {
			tests = append(tests, testsOf(t, filepath.Join(root, filepath.FromSlash(dir)))...)
		}
		for _, m := range named.FindAllStringSubmatch(cells[2], -1) {
			found := slices.ContainsFunc(tests, func(name string) bool {
				return name == m[1] || m[2] == "*" && strings.HasPrefix(name, m[1])
			})
			if !found {
				t.Errorf("%s: no test %s in%s", strings.TrimSpace(cells[1]), m[1]+m[2], cells[3])
			}
		}
	}
	if rows < 35 {
		t.Errorf("%d rows name tests: the table is not read as it is written", rows)
	}
}

// testsOf are the names of the test functions of a directory.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("%s holds no tests (%v)", dir, err)
	}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range function.FindAllSubmatch(b, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}
