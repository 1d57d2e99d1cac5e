// Package house keeps the rules of this code base, as tests: which package
// may import which, how long files and functions may grow, what must be
// documented. The rules are checked on the source itself, without tools that
// would have to be installed.
package house

import (
	"fmt"
	"slices"
	"strings"
)

// Package is what the rules need to know of a package.
type Package struct {
	ImportPath string
	Dir        string
	// Standard is set for packages of the standard library.
	Standard bool
	// Files, TestFiles and ExternalTestFiles are names within Dir.
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
}

// Finding is one broken rule.
type Finding struct {
	// Where is a package, or file:line.
	Where string
	// Rule names the rule in a word or two.
	Rule string
	Text string
}

// String is the finding in one line.
func (f Finding) String() string { return f.Where + ": " + f.Rule + ": " + f.Text }

// Module is the path that this module's packages begin with.
const Module = "celldexport"

// floor gives the floor of a room, a top-level folder. Imports point down.
func floor(room string) (int, bool) {
	floors := map[string]int{
		"test": 6,
		"cmd":  5, "exporter": 4, "audit": 4,
		"sinks":   3,
		"ltxtail": 2, "envelope": 2,
		"diffpage": 1,
		"internal": 0,
	}
	f, ok := floors[room]
	return f, ok
}

// room is the top-level folder of a package of this module; ok is false for
// packages of other modules.
func room(path string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(path, Module+"/")
	name, _, _ = strings.Cut(rest, "/")
	return name, ok
}

// CheckFloors reports imports that point up or sideways, rooms that the house
// does not have, and what single packages must not know.
func CheckFloors(packages []Package) []Finding {
	var findings []Finding
	for _, p := range packages {
		from, ok := room(p.ImportPath)
		if !ok {
			continue
		}
		if _, known := floor(from); !known {
			findings = append(findings, Finding{p.ImportPath, "room", fmt.Sprintf("the house has no room %s", from)})
			continue
		}
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			findings = append(findings, checkImport(p.ImportPath, from, imported)...)
		}
		findings = append(findings, checkKnowledge(p)...)
	}
	return findings
}

func checkImport(path, from, imported string) []Finding {
	to, ok := room(imported)
	if !ok || to == from {
		return nil
	}
	upper, _ := floor(from)
	lower, known := floor(to)
	if !known || lower >= upper {
		return []Finding{{path, "floors", fmt.Sprintf("imports %s, which is not below it", imported)}}
	}
	return nil
}

// checkKnowledge keeps ideas apart that the floors alone would let meet.
func checkKnowledge(p Package) []Finding {
	var findings []Finding
	name, _ := room(p.ImportPath)
	for _, imported := range p.Imports {
		to, ours := room(imported)
		domain := strings.Contains(strings.Split(imported, "/")[0], ".")
		switch {
		case p.ImportPath == Module+"/envelope" && (ours || domain):
			findings = append(findings, Finding{p.ImportPath, "knowledge", "imports " + imported + ", but the record format needs only the standard library"})
		case name == "diffpage" && to == "internal" && aboutCelld(imported):
			findings = append(findings, Finding{p.ImportPath, "knowledge", "imports " + imported + ", but the diff knows nothing of celld"})
		case imported == "testing" && name != "test" && !strings.HasSuffix(p.ImportPath, "test"):
			findings = append(findings, Finding{p.ImportPath, "knowledge", "imports testing outside tests"})
		}
	}
	return findings
}

func aboutCelld(path string) bool {
	return slices.Contains([]string{"celld", "celldsim", "chain", "ledger", "config"}, strings.TrimPrefix(path, Module+"/internal/"))
}

// CheckNames reports packages whose name says nothing.
func CheckNames(packages []Package) []Finding {
	var findings []Finding
	for _, p := range packages {
		if _, ours := room(p.ImportPath); !ours {
			continue
		}
		for part := range strings.SplitSeq(p.ImportPath, "/") {
			if slices.Contains([]string{"util", "utils", "common", "types", "helpers", "misc", "pkg"}, part) {
				findings = append(findings, Finding{p.ImportPath, "name", "a package called " + part})
			}
		}
	}
	return findings
}
