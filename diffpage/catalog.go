package diffpage

import (
	"fmt"

	"celldexport/diffpage/btree"
	"celldexport/diffpage/schema"
)

// catalog reads the rows of sqlite_schema (SQLite file format 2.6). Nothing
// keeps a writer from putting any value into any field of it.
func catalog(v *view) ([]schema.Entry, error) {
	if v.commit == 0 {
		return nil, nil
	}
	w, err := newWalker(v, schemaTable, tree{root: 1})
	if err != nil {
		return nil, err
	}
	var entries []schema.Entry
	var fields []btree.Field
	var c btree.Cell
	var buf, pageBuf []byte
	for {
		pgno, ok, err := w.next(&c)
		if err != nil || !ok {
			return entries, err
		}
		record, err := v.payload(&c, &buf, &pageBuf)
		if err != nil {
			return nil, blame(schemaTable, pgno, err)
		}
		if fields, err = btree.Fields(record, fields[:0]); err != nil {
			return nil, blame(schemaTable, pgno, err)
		}
		e, err := entryOf(v.enc, fields)
		if err != nil {
			return nil, blame(schemaTable, pgno, err)
		}
		entries = append(entries, e)
	}
}

func entryOf(enc schema.Encoding, f []btree.Field) (schema.Entry, error) {
	if len(f) < 5 {
		return schema.Entry{}, fmt.Errorf("a row of the schema has %d of 5 fields: %w", len(f), ErrCorrupt)
	}
	typ, _ := enc.AppendUTF8(nil, text(f[0]))
	e := schema.Entry{Type: string(typ), Name: clone(text(f[1])), Table: clone(text(f[2])), SQL: clone(text(f[4]))}
	if e.Type != "table" && e.Type != "view" {
		return e, nil
	}
	if e.Name == nil {
		return e, fmt.Errorf("a row of the schema is a %s without a name: %w", e.Type, ErrCorrupt)
	}
	root := value(f[3], schema.None)
	switch {
	case root.Class == Null:
	case root.Class != Integer || root.Int < 0 || root.Int > 1<<32-2:
		return e, fmt.Errorf("a row of the schema gives %s %q a root page that is none: %w", e.Type, e.Name, ErrCorrupt)
	case e.Type == "table":
		e.Root = uint32(root.Int)
	}
	return e, nil
}

// text is the body of a text, nil for any other class.
func text(f btree.Field) []byte {
	if f.Serial < 13 || f.Serial%2 == 0 {
		return nil
	}
	return f.Body
}

// clone copies a body, whose page is on loan, and keeps nil apart from empty.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

// readable says why rows of a table cannot be decoded.
func readable(t *schema.Table) error {
	switch {
	case t.Unreadable != "":
		return fmt.Errorf("read rows of table %q: %s: %w", t.Name, t.Unreadable, ErrUnreadable)
	case t.Kind == schema.Internal:
		return fmt.Errorf("read rows of table %q: it is SQLite's own: %w", t.Name, ErrUnreadable)
	}
	return nil
}

// kindOf says whether the tree of a table has index pages. Its root page does,
// and the schema must agree.
func kindOf(v *view, t *schema.Table) (index bool, err error) {
	var p btree.Page
	var buf []byte
	if err := v.parse(t.Root, &p, &buf); err != nil {
		return false, blame(t.Name, t.Root, err)
	}
	known := t.Unreadable == "" && t.Kind != schema.Internal
	if known && p.Type.Index() != t.WithoutRowid {
		return false, corrupt(t.Name, t.Root, "its root has page type %d, which does not fit the table's declaration", p.Type)
	}
	return p.Type.Index(), nil
}
