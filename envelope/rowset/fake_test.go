package rowset

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"celldexport/diffpage"
	"celldexport/diffpage/schema"
	"celldexport/envelope"
)

// state is a whole database as SQLite itself shows it: the schema through
// PRAGMAs and every row through SELECT. It stands in for the page reader, so
// that what this package does can be told apart from what that does.
type state struct {
	schema *schema.Schema
	rows   map[string][]*fakeRow
}

type fakeRow struct {
	rowid int64
	cells []diffpage.Cell
	fail  error
}

func (r *fakeRow) Rowid() int64 { return r.rowid }

func (r *fakeRow) Cell(i int) (diffpage.Cell, error) { return r.cells[i], r.fail }

// database is a scratch database in memory.
type database struct {
	t  testing.TB
	db *sql.DB
}

func newDatabase(t testing.TB, statements ...string) *database {
	t.Helper()
	return openDatabase(t, ":memory:").exec(statements...)
}

func openDatabase(t testing.TB, path string) *database {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &database{t, db}
}

func (d *database) exec(statements ...string) *database {
	d.t.Helper()
	for _, s := range statements {
		if _, err := d.db.Exec(s); err != nil {
			d.t.Fatalf("%s: %v", s, err)
		}
	}
	return d
}

// query calls row for every row of a statement.
func (d *database) query(query string, row func(scan func(...any))) {
	d.t.Helper()
	rows, err := d.db.Query(query)
	if err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		row(func(to ...any) {
			if err := rows.Scan(to...); err != nil {
				d.t.Fatalf("%s: %v", query, err)
			}
		})
	}
	if err := rows.Err(); err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// capture reads the state.
func (d *database) capture() *state {
	d.t.Helper()
	var enc string
	d.query("PRAGMA encoding", func(scan func(...any)) { scan(&enc) })
	encoding := map[string]schema.Encoding{"UTF-8": schema.UTF8, "UTF-16le": schema.UTF16LE, "UTF-16be": schema.UTF16BE}[enc]
	var tables []*schema.Table
	d.query(`SELECT name, coalesce(sql, ''), rootpage, type FROM sqlite_schema WHERE type IN ('table', 'view')`, func(scan func(...any)) {
		t := &schema.Table{Alias: -1}
		var kind string
		scan(&t.Name, &t.SQL, &t.Root, &kind)
		switch {
		case kind == "view":
			t.Kind = schema.View
		case strings.HasPrefix(t.SQL, "CREATE VIRTUAL"):
			t.Kind = schema.Virtual
		}
		tables = append(tables, t)
	})
	s := &state{rows: make(map[string][]*fakeRow)}
	for _, t := range tables {
		if t.Kind == schema.Ordinary {
			d.describe(t, tables)
			s.rows[t.Name] = d.read(t)
		}
	}
	s.schema = schema.New(encoding, tables...)
	return s
}

// describe reads columns and key.
func (d *database) describe(t *schema.Table, all []*schema.Table) {
	for _, v := range all {
		if v.Kind == schema.Virtual && strings.HasPrefix(t.Name, v.Name+"_") {
			t.Kind = schema.Shadow
		}
	}
	d.query("SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = '"+strings.ReplaceAll(t.Name, "'", "''")+"'",
		func(scan func(...any)) { scan(&t.WithoutRowid) })
	key := map[int]int{}
	d.query("PRAGMA table_xinfo("+quote(t.Name)+")", func(scan func(...any)) {
		var c schema.Column
		var cid int
		var dflt any
		scan(&cid, &c.Name, &c.Type, &c.NotNull, &dflt, &c.PK, &c.Hidden)
		if c.PK > 0 {
			key[c.PK-1] = cid
		}
		t.Columns = append(t.Columns, c)
	})
	for i := range len(key) {
		t.Key = append(t.Key, key[i])
	}
	pk := false
	d.query("PRAGMA index_list("+quote(t.Name)+")", func(scan func(...any)) {
		var seq, unique, partial int
		var name, origin string
		scan(&seq, &name, &unique, &origin, &partial)
		pk = pk || origin == "pk"
	})
	if len(t.Key) == 1 && !pk && !t.WithoutRowid {
		t.Alias = t.Key[0]
	}
}

// read selects every row, by ascending rowid where there is one.
func (d *database) read(t *schema.Table) []*fakeRow {
	var list []string
	order := ""
	if rowid := rowidName(t); !t.WithoutRowid && rowid != "" {
		list = append(list, quote(rowid))
		order = " ORDER BY 1"
	} else if t.Alias >= 0 {
		list = append(list, quote(t.Columns[t.Alias].Name))
		order = " ORDER BY 1"
	} else {
		list = append(list, "0")
	}
	for _, c := range t.Columns {
		n := quote(c.Name)
		list = append(list, "typeof("+n+")", "CASE typeof("+n+") WHEN 'text' THEN CAST("+n+" AS BLOB) ELSE "+n+" END")
	}
	var rows []*fakeRow
	d.query("SELECT "+strings.Join(list, ", ")+" FROM "+quote(t.Name)+order, func(scan func(...any)) {
		r := &fakeRow{cells: make([]diffpage.Cell, len(t.Columns))}
		kinds, values := make([]string, len(t.Columns)), make([]any, len(t.Columns))
		to := []any{&r.rowid}
		for i := range t.Columns {
			to = append(to, &kinds[i], &values[i])
		}
		scan(to...)
		for i := range t.Columns {
			r.cells[i] = fakeCell(kinds[i], values[i])
			if t.Columns[i].Hidden == 2 {
				r.cells[i] = diffpage.Cell{} // not stored
			}
		}
		rows = append(rows, r)
	})
	return rows
}

func fakeCell(kind string, v any) diffpage.Cell {
	switch kind {
	case "integer":
		return diffpage.Cell{Class: diffpage.Integer, Int: v.(int64)}
	case "real":
		return diffpage.Cell{Class: diffpage.Real, Real: v.(float64)}
	case "text", "blob":
		class := diffpage.Blob
		if kind == "text" {
			class = diffpage.Text
		}
		b, _ := v.([]byte)
		return diffpage.Cell{Class: class, Bytes: b}
	}
	return diffpage.Cell{}
}

// fake is a unit between two states.
type fake struct {
	before, after *state
	// untouched makes Touched say no for a name.
	untouched map[string]bool
}

var errNoTable = errors.New("no such table")

func empty() *state {
	return &state{schema: schema.New(0), rows: map[string][]*fakeRow{}}
}

func (f *fake) Before() *schema.Schema { return f.before.schema }
func (f *fake) After() *schema.Schema  { return f.after.schema }

func (f *fake) Touched(name string) bool { return !f.untouched[name] }

func (f *fake) Scan(name string, v diffpage.Visitor) error {
	if f.after.schema.ByName(name) == nil {
		return fmt.Errorf("scan %s: %w", name, errNoTable)
	}
	for _, r := range f.after.rows[name] {
		if err := v(diffpage.Insert, nil, r); err != nil {
			return err
		}
	}
	return nil
}

// Rows joins as the page reader does: by rowid in its order, and by exact key
// in no particular order where there is no rowid.
func (f *fake) Rows(name string, v diffpage.Visitor) error {
	t := f.after.schema.ByName(name)
	if t == nil {
		return fmt.Errorf("rows of %s: %w", name, errNoTable)
	}
	before, after := fakeIndex(t, f.before.rows[name]), fakeIndex(t, f.after.rows[name])
	ids := make([]string, 0, len(before)+len(after))
	for id := range before {
		ids = append(ids, id)
	}
	for id := range after {
		if before[id] == nil {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { // rowid order, else backwards
		return cmp.Or(cmp.Compare(fakeRowid(before[a], after[a]), fakeRowid(before[b], after[b])), strings.Compare(b, a))
	})
	for _, id := range ids {
		b, a := before[id], after[id]
		var err error
		switch {
		case b == nil:
			err = v(diffpage.Insert, nil, a)
		case a == nil:
			err = v(diffpage.Delete, b, nil)
		case fmt.Sprint(b.cells) != fmt.Sprint(a.cells):
			err = v(diffpage.Update, b, a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func fakeRowid(rows ...*fakeRow) int64 {
	for _, r := range rows {
		if r != nil {
			return r.rowid
		}
	}
	return 0
}

func fakeIndex(t *schema.Table, rows []*fakeRow) map[string]*fakeRow {
	index := make(map[string]*fakeRow, len(rows))
	for _, r := range rows {
		id := fmt.Sprint(r.rowid)
		if t.WithoutRowid {
			id = ""
			for _, k := range t.Key {
				id += fmt.Sprint(r.cells[k])
			}
		}
		index[id] = r
	}
	return index
}

// testEnvelope is the envelope of the unit that ends at a txid.
func testEnvelope(txid uint64) envelope.Envelope {
	return envelope.Envelope{
		Stream:      envelope.Stream{Script: "depot", Class: "Shelf", Cell: "Shelf:a17", Incarnation: 4},
		Position:    envelope.Position{Epoch: 4, TXID: txid, Commit: txid},
		CommittedAt: 1795000000000 + int64(txid), Node: "n1", Origin: envelope.Live,
	}
}
