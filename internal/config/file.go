package config

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// document takes the settings of a YAML text. Scalars are taken as they are
// written, never through a YAML number or date, so 1_000 or 0x10 cannot turn
// into something else.
func (l *loader) document(path string, text []byte) {
	tree, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		l.broken = true
		l.problem(syntaxProblem(path, err))
		return
	}
	r := &reader{loader: l, path: path, seen: map[string]bool{}}
	for i, doc := range tree.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.NullType {
			continue
		}
		if i > 0 {
			r.complain(doc.Body, "", "", "a second document", "one document in a file")
			return
		}
		r.mapping(doc.Body, "")
	}
}

// syntaxProblem leaves out the source excerpt of the parser's message: the
// line may hold a secret.
func syntaxProblem(path string, err error) Problem {
	p := Problem{Place: Place{File: path}, Reason: "not YAML: " + err.Error()}
	var detailed yaml.Error
	if errors.As(err, &detailed) {
		p.Reason = "not YAML: " + detailed.GetMessage()
		p.Place = placeOf(path, detailed.GetToken())
	}
	return p
}

func placeOf(path string, tk *token.Token) Place {
	if tk == nil || tk.Position == nil {
		return Place{File: path}
	}
	return Place{File: path, Line: tk.Position.Line, Column: tk.Position.Column}
}

// reader walks the tree of one file.
type reader struct {
	loader *loader
	path   string
	seen   map[string]bool
}

func (r *reader) complain(at ast.Node, key, value, reason, allowed string) {
	r.loader.bad[key] = true
	r.loader.problem(Problem{Place: placeOf(r.path, at.GetToken()), Key: key, Value: value, Reason: reason, Allowed: allowed})
}

// mapping takes a section; section is its path, "" for the whole file.
func (r *reader) mapping(node ast.Node, section string) {
	var entries []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	case *ast.NullNode:
		return
	default:
		r.complain(node, section, "", "not a section", "keys and values")
		return
	}
	for _, entry := range entries {
		r.entry(entry, section)
	}
}

func (r *reader) entry(entry *ast.MappingValueNode, section string) {
	name, ok := entry.Key.(*ast.StringNode)
	if !ok {
		r.complain(entry.Key, section, "", "a key that is no plain name", "the keys of the settings")
		return
	}
	key := name.Value
	if section != "" {
		key = section + "." + key
	}
	if r.seen[key] {
		r.complain(entry.Key, key, "", "set twice in the file", "each key once")
		return
	}
	r.seen[key] = true
	if s, ok := r.loader.lookup(key); ok {
		r.setting(s, entry.Value)
		return
	}
	if r.isSection(key) {
		r.mapping(entry.Value, key)
		return
	}
	r.complain(entry.Key, key, "", "unknown key"+nearest(key, r.keys()), "")
}

func (r *reader) isSection(key string) bool {
	for _, s := range r.loader.table {
		if strings.HasPrefix(s.key, key+".") {
			return true
		}
	}
	return false
}

func (r *reader) keys() []string {
	keys := make([]string, len(r.loader.table))
	for i, s := range r.loader.table {
		keys[i] = s.key
	}
	return keys
}

func (r *reader) setting(s setting, node ast.Node) {
	switch s.form {
	case list:
		r.list(s, node)
	case boolean:
		r.boolean(s, node)
	default:
		text, ok := scalarText(node)
		if !ok {
			r.complain(node, s.key, nodeText(node), "not one value", "a plain value, in quotes if YAML reads it as something else")
			return
		}
		r.set(s, value{text: text}, node, nil)
	}
}

// boolean takes YAML's own true and false only: "0", "no" or "on" could mean
// either to the one who wrote it.
func (r *reader) boolean(s setting, node ast.Node) {
	switch n := node.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		text := "false"
		if n.Value {
			text = "true"
		}
		r.set(s, value{text: text}, node, nil)
	default:
		if text, ok := scalarText(node); ok && text == "" {
			return
		}
		r.complain(node, s.key, nodeText(node), "neither on nor off", "true, false")
	}
}

func (r *reader) list(s setting, node ast.Node) {
	sequence, ok := node.(*ast.SequenceNode)
	if !ok {
		if text, ok := scalarText(node); ok && text == "" {
			return
		}
		r.complain(node, s.key, nodeText(node), "not a list", "a list such as [a, b]")
		return
	}
	v, nodes := value{}, []ast.Node{}
	for _, item := range sequence.Values {
		text, ok := scalarText(item)
		switch {
		case !ok:
			r.complain(item, s.key, nodeText(item), "an item that is not one value", "a list such as [a, b]")
		case text == "":
			r.complain(item, s.key, "", "an item is empty", "a list such as [a, b]")
		default:
			v.items, nodes = append(v.items, text), append(nodes, item)
		}
	}
	v.text = strings.Join(v.items, ", ")
	r.set(s, v, node, nodes)
}

func (r *reader) set(s setting, v value, node ast.Node, items []ast.Node) {
	if v.text == "" {
		return
	}
	r.loader.set(s, v, func(i int) Place {
		if i >= 0 && i < len(items) {
			return placeOf(r.path, items[i].GetToken())
		}
		return placeOf(r.path, node.GetToken())
	})
}

// scalarText is a scalar as it is written, "" for null; ok is false for
// anything that is no plain scalar, and for true and false, which as text
// must be quoted.
func scalarText(node ast.Node) (text string, ok bool) {
	switch n := node.(type) {
	case *ast.NullNode:
		return "", true
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return node.GetToken().Value, true
	default:
		return "", false
	}
}

// nodeText names a node in a message.
func nodeText(node ast.Node) string {
	if text, ok := scalarText(node); ok {
		return shown(text)
	}
	switch n := node.(type) {
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a section"
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		return "an anchor, alias or tag"
	default:
		return ""
	}
}
