package rowset

import (
	"fmt"

	"celldexport/diffpage"
	"celldexport/diffpage/schema"
	"celldexport/internal/ledger"
)

// columns finds the named columns of a celld table, -1 for those that this
// version of the table lacks. It fails when the table is there and cannot be
// read.
func columns(img Image, table string, names ...string) ([]int, error) {
	t := img.After().ByName(table)
	if t == nil || t.Kind != schema.Ordinary {
		return nil, nil
	}
	if t.Unreadable != "" {
		return nil, fmt.Errorf("read table %s: %s", table, t.Unreadable)
	}
	at := make([]int, len(names))
	for i, name := range names {
		at[i] = columnFold(t, name)
	}
	return at, nil
}

// text is a text value as UTF-8; false for another class and for text that is
// not valid.
func text(enc schema.Encoding, r diffpage.Row, col int) (string, bool, error) {
	if col < 0 {
		return "", false, nil
	}
	c, err := r.Cell(col)
	if err != nil || c.Class != diffpage.Text {
		return "", false, err
	}
	b, ok := enc.AppendUTF8(nil, c.Bytes)
	return string(b), ok, nil
}

// integer is an integer value; false for another class.
func integer(r diffpage.Row, col int) (int64, bool, error) {
	if col < 0 {
		return 0, false, nil
	}
	c, err := r.Cell(col)
	if err != nil || c.Class != diffpage.Integer {
		return 0, false, err
	}
	return c.Int, true, nil
}

// Metadata reads what celld keeps about the cell in the cell's own database:
// the object's name and the incarnation, for the row of the stream's scope.
// Either is nil when the table, the column or the row is missing or NULL.
func Metadata(img Image, scope string) (cellName *string, incarnation *uint64, err error) {
	const table = "_cf_METADATA"
	at, err := columns(img, table, "scope", "actor_name", "incarnation")
	if err != nil || at == nil {
		return nil, nil, err
	}
	enc := img.After().Encoding
	err = img.Scan(table, func(_ diffpage.Op, _, row diffpage.Row) error {
		own, ok, err := text(enc, row, at[0])
		if err != nil || !ok || own != scope {
			return err
		}
		if name, ok, err := text(enc, row, at[1]); err != nil {
			return err
		} else if ok {
			cellName = &name
		}
		if n, ok, err := integer(row, at[2]); err != nil {
			return err
		} else if ok {
			u := uint64(n)
			incarnation = &u
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read table %s: %w", table, err)
	}
	return cellName, incarnation, nil
}

// Registered is a table's row in a cell's own generation registry.
type Registered struct {
	Generation uint64
	// SQL is the table's text at that generation, nil when it was dropped.
	SQL *string
}

// ExportRegistry reads the generations that an exporter inside celld kept in
// the cell's database, by stored table name; nil when the cell has none.
func ExportRegistry(img Image) (map[string]Registered, error) {
	const table = "_cf_EXPORT"
	at, err := columns(img, table, "name", "generation", "schema_sql")
	if err != nil || at == nil {
		return nil, err
	}
	enc := img.After().Encoding
	registry := make(map[string]Registered)
	err = img.Scan(table, func(_ diffpage.Op, _, row diffpage.Row) error {
		name, ok, err := text(enc, row, at[0])
		if err != nil || !ok || name == "sqlite_schema" {
			return err // that row holds the schema cookie
		}
		gen, ok, err := integer(row, at[1])
		if err != nil || !ok || gen < 1 {
			return err
		}
		entry := Registered{Generation: uint64(gen)}
		sql, ok, err := text(enc, row, at[2])
		if ok {
			entry.SQL = &sql
		}
		registry[name] = entry
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", table, err)
	}
	return registry, nil
}

// Seed is what a new ledger takes over from a cell's own registry, by exported
// name: every open generation at the mark, and the numbers of dropped tables,
// so that numbers go on from there.
func Seed(registry map[string]Registered, at ledger.Mark) map[string][]ledger.Generation {
	gens := make(map[string][]ledger.Generation)
	for stored, entry := range registry {
		name, ok := ExportedName(stored)
		if !ok {
			continue
		}
		g := ledger.Generation{Generation: entry.Generation, Opened: at}
		if entry.SQL != nil {
			g.SQLHash = hash(*entry.SQL)
		} else {
			closed := at
			g.Closed = &closed
		}
		gens[name] = []ledger.Generation{g}
	}
	return gens
}
