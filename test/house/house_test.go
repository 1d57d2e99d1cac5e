package house

import (
	"fmt"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestHouse holds this module to the rules.
func TestHouse(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	packages, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	findings := append(CheckFloors(packages), CheckNames(packages)...)
	set, ours := token.NewFileSet(), 0
	for _, p := range packages {
		if _, ok := room(p.ImportPath); !ok {
			continue
		}
		ours++
		files, err := Parse(set, root, p)
		if err != nil {
			t.Error(err)
			continue
		}
		findings = append(findings, CheckSource(set, p.ImportPath, files)...)
	}
	if ours < 10 {
		t.Errorf("only %d packages of this module were found in %s", ours, root)
	}
	for _, f := range findings {
		t.Error(f)
	}
}

func TestFloorsAreHeld(t *testing.T) {
	cases := []struct {
		from, to string
		rule     string
	}{
		{"cmd/exportd", "exporter", ""},
		{"cmd/exportd", "internal/config", ""},
		{"sinks/bucket", "sinks/delivery", ""},
		{"internal/chain", "internal/objstore", ""},
		{"exporter", "github.com/x/exporter", ""},
		{"test/e2e", "cmd/exportd", ""},
		{"exporter", "audit", "floors"},
		{"ltxtail/proof", "envelope", "floors"},
		{"envelope/rowset", "ltxtail", "floors"},
		{"internal/ledger", "envelope", "floors"},
		{"diffpage/shadow", "sinks", "floors"},
		{"sinks", "exporter", "floors"},
		{"audit", "cmd/celld-export", "floors"},
		{"exporter", "test/house", "floors"},
		{"exporter", "attic", "floors"},
		{"attic", "internal/objstore", "room"},
		{"diffpage", "internal/celld", "knowledge"},
		{"diffpage/shadow", "internal/ltxfile", ""},
		{"envelope", "internal/objstore", "knowledge"},
		{"envelope", "github.com/x/y", "knowledge"},
		{"envelope", "encoding/json", ""},
		{"envelope/rowset", "github.com/x/y", ""},
		{"sinks", "testing", "knowledge"},
		{"internal/objstore/storetest", "testing", ""},
	}
	for _, c := range cases {
		imported := c.to
		if !strings.Contains(c.to, ".") && c.to != "testing" && c.to != "encoding/json" {
			imported = Module + "/" + c.to
		}
		findings := CheckFloors([]Package{{ImportPath: Module + "/" + c.from, Imports: []string{imported}}})
		got := ""
		for _, f := range findings {
			got += f.Rule
		}
		if got != c.rule {
			t.Errorf("%s imports %s: found %q, want %q", c.from, c.to, got, c.rule)
		}
	}
	inTest := Package{ImportPath: Module + "/ltxtail", XTestImports: []string{Module + "/exporter"}}
	if len(CheckFloors([]Package{inTest})) != 1 {
		t.Error("an import of a test that points up was not found")
	}
}

func TestNamesThatSayNothing(t *testing.T) {
	for path, want := range map[string]int{
		Module + "/internal/util": 1, Module + "/common/x": 1, Module + "/sinks/types": 1,
		Module + "/sinks": 0, "github.com/x/util": 0,
	} {
		if got := len(CheckNames([]Package{{ImportPath: path}})); got != want {
			t.Errorf("%s: %d findings, want %d", path, got, want)
		}
	}
}

// many is a line n times, with %d counting.
func many(n int, line string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(line, "%d", fmt.Sprint(i)) + "\n")
	}
	return b.String()
}

func TestSourceRules(t *testing.T) {
	const head = "// Package p is documented.\npackage p\n"
	cases := []struct {
		name, text, rule string
		test             bool
	}{
		{name: "clean", text: head + "// F is documented.\nfunc F() {}\nfunc g() {}\n// E is.\ntype E struct{ A, B int }\n"},
		{name: "no package comment", text: "package p\n", rule: "docs"},
		{name: "function undocumented", text: head + "func F() {}\n", rule: "docs"},
		{name: "type undocumented", text: head + "type T int\n", rule: "docs"},
		{name: "method undocumented", text: head + "// T is.\ntype T int\nfunc (t *T) M() {}\n", rule: "docs"},
		{name: "method of a hidden type", text: head + "type t[K any] int\nfunc (t *t[K]) M() {}\n"},
		{name: "constant undocumented", text: head + "const C = 1\n", rule: "docs"},
		{name: "constants documented together", text: head + "// Both are.\nconst (\n\tC = 1\n\tD = 2\n)\n"},
		{name: "file at the limit", text: head + many(maxFileLines-3, "//")},
		{name: "file too long", text: head + many(maxFileLines, "//"), rule: "length"},
		{name: "function at the limit", text: head + "func f() {\n" + many(maxFuncLines-2, "\t_ = 1") + "}\n"},
		{name: "function too long", text: head + "func f() {\n" + many(maxFuncLines-1, "\t_ = 1") + "}\n", rule: "length"},
		{name: "struct at the limit", text: head + "type s struct {\n" + many(maxFields, "\tf%d int") + "}\n"},
		{name: "struct too wide", text: head + "type s struct {\n" + many(maxFields, "\tf%d int") + "\tint\n}\n", rule: "fields"},
		{name: "struct too wide inside", text: head + "func f() {\n\tvar s struct {\n" + many(maxFields+1, "\tf%d int") + "}\n\t_ = s\n}\n", rule: "fields"},
		{name: "methods at the limit", text: head + "type t int\n" + many(maxMethods, "func (t) m%d() {}")},
		{name: "too many methods", text: head + "type t int\n" + many(maxMethods+1, "func (t) m%d() {}"), rule: "methods"},
		{name: "interface too wide", text: head + "type i interface {\n" + many(maxMethods+1, "\tm%d()") + "}\n", rule: "methods"},
		{name: "init", text: head + "func init() {}\n", rule: "init"},
		{name: "generated", text: "// Code generated by x. DO NOT EDIT.\n\npackage p\n\nfunc init() {}\n\nfunc F() {}\n", rule: "docs"},
		{name: "method called init", text: head + "type t int\nfunc (t) init() {}\n"},
		{name: "sentinel", text: head + "import \"errors\"\n\nvar errX = errors.New(\"x\")\n"},
		{name: "assertion", text: head + "var _ error = (*e)(nil)\n"},
		{name: "counter", text: head + "var n int\n", rule: "state"},
		{name: "table", text: head + "var m = map[string]int{}\nfunc f() int { return m[\"a\"] }\n"},
		{name: "table written", text: head + "var m = map[string]int{}\nfunc f() { m[\"a\"] = 1 }\n", rule: "state"},
		{name: "table cleared", text: head + "var m = map[string]int{}\nfunc f() { clear(m) }\n", rule: "state"},
		{name: "table counted", text: head + "var m = [2]int{}\nfunc f() { m[0]++ }\n", rule: "state"},
		{name: "table lent", text: head + "var m = [2]int{}\nfunc f() *int { return &m[0] }\n", rule: "state"},
		{name: "table hidden by a local", text: head + "var m = [2]int{}\nfunc f() { m := 1; _ = m }\n"},
		{name: "exported table", text: head + "// M is.\nvar M = [2]int{}\n", rule: "state"},
		{name: "another's sentinel", text: head + "import \"io/fs\"\n\nvar errX = fs.ErrExist\n"},
		{name: "unfinished", text: head + "// TO" + "DO: more\n", rule: "unfinished"},
		{name: "unfinished test", text: "package p\n// FIX" + "ME\n", rule: "unfinished", test: true},
		{name: "word that contains a mark", text: head + "// XX" + "XY and methodo\n"},
		{name: "number of a tracker", text: head + "// see issue 12\n", rule: "comment"},
		{name: "path of a machine", text: head + "// see /wo" + "rk/main\n", rule: "comment"},
		{name: "exit", text: head + "import \"os\"\nfunc f() { os.Exit(1) }\n", rule: "exit"},
		{name: "exit in main", text: "// Command p is.\npackage main\nimport \"os\"\nfunc main() { os.Exit(1) }\n"},
		{name: "budgets are not for tests", text: "package p\nfunc F() {\n" + many(maxFuncLines, "\t_ = 1") + "}\n", test: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			set := token.NewFileSet()
			tree, err := parser.ParseFile(set, "p.go", c.text, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range CheckSource(set, Module+"/p", []File{{Name: "p.go", Test: c.test, AST: tree}}) {
				got += f.Rule
			}
			if got != c.rule {
				t.Errorf("found %q, want %q", got, c.rule)
			}
		})
	}
}
