package house

import (
	"go/ast"
	"go/token"
	"strings"
)

// values checks constants and variables. A variable of a package is shared by
// everything in the process, so it may only be what nobody changes: an error
// to compare with, an assertion, a compiled expression, a table that is only
// read.
func (c *checker) values(d *ast.GenDecl, s *ast.ValueSpec) {
	for i, name := range s.Names {
		if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
			c.add(name.Pos(), "", "docs", name.Name+" has no comment")
		}
		switch {
		case d.Tok != token.VAR || name.Name == "_":
		case i < len(s.Values) && isTable(s.Values[i]) && !name.IsExported():
			c.fixed[name.Name] = true
		case i >= len(s.Values) || !isFixed(s.Values[i]):
			c.add(name.Pos(), "", "state", name.Name+" is a variable of the package")
		}
	}
}

// isFixed reports whether a package variable's value is one that nothing can
// change after it was made.
func isFixed(value ast.Expr) bool {
	switch v := value.(type) {
	case *ast.CallExpr:
		switch callName(v) {
		case "errors.New", "fmt.Errorf", "regexp.MustCompile", "crc32.MakeTable", "crc64.MakeTable":
			return true
		}
	case *ast.SelectorExpr:
		return strings.HasPrefix(v.Sel.Name, "Err")
	}
	return false
}

func isTable(value ast.Expr) bool {
	_, ok := value.(*ast.CompositeLit)
	return ok
}

// tables reports writes to the package's tables.
func (c *checker) tables(files []File) {
	if len(c.fixed) == 0 {
		return
	}
	for _, f := range files {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, target := range n.Lhs {
					c.written(target, n.Tok == token.DEFINE)
				}
			case *ast.IncDecStmt:
				c.written(n.X, false)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					c.written(n.X, false)
				}
			case *ast.CallExpr:
				if name, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && (name.Name == "delete" || name.Name == "clear" || name.Name == "copy") {
					c.written(n.Args[0], false)
				}
			}
			return true
		})
	}
}

// written reports target when it is a table or a part of one. A definition
// makes a new variable of the name.
func (c *checker) written(target ast.Expr, definition bool) {
	for at := target; ; {
		switch t := at.(type) {
		case *ast.IndexExpr:
			at = t.X
		case *ast.SelectorExpr:
			at = t.X
		case *ast.ParenExpr:
			at = t.X
		case *ast.Ident:
			if c.fixed[t.Name] && !definition {
				c.add(target.Pos(), "", "state", t.Name+" is a table of the package and is written to")
			}
			return
		default:
			return
		}
	}
}
