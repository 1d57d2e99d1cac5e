package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// The budgets: what a reader can hold in mind at once.
const (
	maxFileLines = 500
	maxFuncLines = 60
	maxFields    = 16
	maxMethods   = 20
)

// File is one parsed source file.
type File struct {
	Name string
	Test bool
	AST  *ast.File
}

// CheckSource reports what breaks a rule in the files of one package.
func CheckSource(set *token.FileSet, path string, files []File) []Finding {
	c := &checker{set: set, methods: map[string]int{}, fixed: map[string]bool{}}
	documented := false
	for _, f := range files {
		if ast.IsGenerated(f.AST) {
			continue // its rules are the generator's
		}
		c.comments(f)
		if f.Test {
			continue
		}
		c.main = f.AST.Name.Name == "main"
		documented = documented || f.AST.Doc != nil
		c.length(f)
		for _, decl := range f.AST.Decls {
			c.declaration(decl)
		}
	}
	c.tables(files)
	for name, n := range c.methods {
		if n > maxMethods {
			c.add(token.NoPos, path, "methods", fmt.Sprintf("%s has %d methods, at most %d", name, n, maxMethods))
		}
	}
	if !documented && hasSource(files) {
		c.add(token.NoPos, path, "docs", "the package has no comment")
	}
	return c.findings
}

func hasSource(files []File) bool {
	for _, f := range files {
		if !f.Test {
			return true
		}
	}
	return false
}

type checker struct {
	set     *token.FileSet
	main    bool
	methods map[string]int
	// fixed holds the package's variables that are tables.
	fixed    map[string]bool
	findings []Finding
}

func (c *checker) add(at token.Pos, where, rule, text string) {
	if at.IsValid() {
		p := c.set.Position(at)
		where = fmt.Sprintf("%s:%d", p.Filename, p.Line)
	}
	c.findings = append(c.findings, Finding{where, rule, text})
}

func (c *checker) lines(n ast.Node) int {
	return c.set.Position(n.End()).Line - c.set.Position(n.Pos()).Line + 1
}

func (c *checker) length(f File) {
	if n := c.set.File(f.AST.Pos()).LineCount(); n > maxFileLines {
		c.add(f.AST.Pos(), "", "length", fmt.Sprintf("the file has %d lines, at most %d", n, maxFileLines))
	}
}

// unfinished matches the marks of unfinished work. It is spelled in pieces
// so that it does not find itself.
func unfinished() *regexp.Regexp {
	return regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
}

// foreign matches what a reader of this repository cannot follow: places of
// one machine and numbers of some tracker.
func foreign() *regexp.Regexp {
	return regexp.MustCompile(`/wo` + `rk/|/tmp/te` + `am|\bissue #?\d|\(#\d+\)|\bspe` + `c/`)
}

func (c *checker) comments(f File) {
	for _, group := range f.AST.Comments {
		for _, comment := range group.List {
			if mark := unfinished().FindString(comment.Text); mark != "" {
				c.add(comment.Pos(), "", "unfinished", mark)
			}
			if mark := foreign().FindString(comment.Text); mark != "" {
				c.add(comment.Pos(), "", "comment", "refers to "+strings.TrimSpace(mark))
			}
		}
	}
}

func (c *checker) declaration(decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		c.function(d)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				c.typeSpec(d, s)
			case *ast.ValueSpec:
				c.values(d, s)
			}
		}
	}
}

func (c *checker) function(d *ast.FuncDecl) {
	name := d.Name.Name
	exported := d.Name.IsExported()
	if receiver := receiverName(d); receiver != "" {
		c.methods[receiver]++
		exported = exported && ast.IsExported(receiver)
		name = receiver + "." + name
	} else if name == "init" {
		c.add(d.Pos(), "", "init", "nothing happens at start-up by itself")
	}
	if n := c.lines(d); n > maxFuncLines {
		c.add(d.Pos(), "", "length", fmt.Sprintf("%s has %d lines, at most %d", name, n, maxFuncLines))
	}
	if exported && d.Doc == nil && d.Name.Name != "Error" && d.Name.Name != "Unwrap" {
		c.add(d.Pos(), "", "docs", name+" has no comment")
	}
	if d.Body != nil && !c.main {
		c.exits(d.Body)
	}
	c.structs(d)
}

// exits reports libraries that end the program.
func (c *checker) exits(body *ast.BlockStmt) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch name := callName(call); name {
		case "os.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln":
			c.add(call.Pos(), "", "exit", name+" outside a main package")
		}
		return true
	})
}

func callName(call *ast.CallExpr) string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if from, ok := selector.X.(*ast.Ident); ok {
		return from.Name + "." + selector.Sel.Name
	}
	return ""
}

func receiverName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	of := d.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

func (c *checker) typeSpec(d *ast.GenDecl, s *ast.TypeSpec) {
	if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
		c.add(s.Pos(), "", "docs", s.Name.Name+" has no comment")
	}
	if i, ok := s.Type.(*ast.InterfaceType); ok && i.Methods.NumFields() > maxMethods {
		c.add(s.Pos(), "", "methods", fmt.Sprintf("%s has %d methods, at most %d", s.Name.Name, i.Methods.NumFields(), maxMethods))
	}
	c.structs(s)
}

// structs counts the fields of every struct within n. An embedded field
// counts as one.
func (c *checker) structs(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.StructType); ok && s.Fields.NumFields() > maxFields {
			c.add(s.Pos(), "", "fields", fmt.Sprintf("a struct of %d fields, at most %d", s.Fields.NumFields(), maxFields))
		}
		return true
	})
}
