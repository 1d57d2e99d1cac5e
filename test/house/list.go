package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// List asks the go command for the packages of the module at root and what
// they depend on.
func List(root string) ([]Package, error) {
	fields := "-json=ImportPath,Dir,Standard,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports"
	cmd := exec.Command("go", "list", "-deps", "-e", fields, "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w: %s", err, stderr.String())
	}
	var packages []Package
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		packages = append(packages, p)
	}
}

// Parse reads the files of a package.
func Parse(set *token.FileSet, root string, p Package) ([]File, error) {
	var files []File
	for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
		full := filepath.Join(p.Dir, name)
		shown, err := filepath.Rel(root, full)
		if err != nil {
			shown = full
		}
		tree, err := parseFile(set, full, shown)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Name: shown, Test: !slices.Contains(p.GoFiles, name), AST: tree})
	}
	return files, nil
}

// parseFile parses a file under the name that findings show.
func parseFile(set *token.FileSet, full, shown string) (*ast.File, error) {
	text, err := os.ReadFile(full)
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	tree, err := parser.ParseFile(set, shown, text, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("parse source: %w", err)
	}
	return tree, nil
}
