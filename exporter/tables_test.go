package exporter_test

import (
	"strings"
	"testing"

	"celldexport/internal/celldsim"
	"celldexport/internal/config"
)

// deleteAll drops every table of the application: their generations close,
// and a table that is created afterwards goes on with the next number.
func TestDeleteAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	w.must(celldsim.DeleteAll(t.Context(), c))
	w.write(c)
	_, err := c.Capture()
	w.must(err)
	w.must(c.Upload(t.Context()))
	a.once()
	w.equal(c)
	w.write(c, createItems, `INSERT INTO items VALUES('z',26)`)
	a.once()
	got := w.equal(c)
	s := story(got, c.Scope(), 1)
	if !strings.Contains(s, "drop items/1") || !strings.Contains(s, "schema items/2") || !strings.HasSuffix(s, "rows items/2 I") {
		t.Errorf("story: %s", s)
	}
}

// D1 databases are exported like any cell, under the fleet's deployment.
func TestD1Database(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c, err := a.node.Activate(t.Context(), "__D1Database:"+strings.Repeat("5a", 32), "shop-db")
	w.must(err)
	w.write(c, `CREATE TABLE d1_migrations(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, applied_at TEXT)`, createItems, insertTwo)
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	got := w.equal(c)
	if id, ok := got.Stream(c.Scope()); !ok || id.Script != "shop" || id.Class != "__D1Database" {
		t.Errorf("stream %+v", id)
	}
}

// What a cell says of its own incarnation and generations counts when its
// stream is bound, and at no other time.
func TestCellsOwnRegistry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, `CREATE TABLE gone(x)`, `DROP TABLE gone`, insertTwo,
		`ALTER TABLE _cf_METADATA ADD COLUMN incarnation INTEGER`, `UPDATE _cf_METADATA SET incarnation = 77`,
		`CREATE TABLE _cf_EXPORT(name TEXT PRIMARY KEY, generation INTEGER, schema_sql TEXT, rootpage INTEGER)`,
		`INSERT INTO _cf_EXPORT SELECT 'items', 5, sql, rootpage FROM sqlite_schema WHERE name = 'items'`,
		`INSERT INTO _cf_EXPORT VALUES('gone', 3, NULL, 0)`)
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	a.once()
	w.write(c, `UPDATE _cf_METADATA SET incarnation = 78`, `UPDATE _cf_EXPORT SET generation = 9`, `CREATE TABLE gone(x)`, `DELETE FROM items WHERE sku = 'a'`)
	a.once()
	got := w.equal(c)
	if id, _ := got.Stream(c.Scope()); id.Incarnation != 77 {
		t.Errorf("incarnation %d, want the cell's own, 77", id.Incarnation)
	}
	s := story(got, c.Scope(), 2)
	if !strings.Contains(s, "snapshot items/5 3") || !strings.Contains(s, "schema gone/4") || !strings.HasSuffix(s, "rows items/5 D") {
		t.Errorf("story: %s", s)
	}
}

// A deny rule that comes ends the table's generation with the next unit; one
// that goes opens the next with all rows.
func TestDenyRuleChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo, `CREATE TABLE other(id INTEGER PRIMARY KEY)`)
	a.once()
	a.settings.Export.DenyTables = []config.Table{tableOf(class, "items")}
	w.write(c, `INSERT INTO items VALUES('hidden',1)`, `INSERT INTO other VALUES(1)`)
	a.once()
	if s := story(w.consumer(), c.Scope(), 1); !strings.Contains(s, "drop items/1") || strings.HasSuffix(s, "rows items/1 I") {
		t.Errorf("denied: %s", s)
	}
	a.settings.Export.DenyTables = nil
	w.write(c, `INSERT INTO other VALUES(2)`)
	a.once()
	got := w.equal(c)
	if s := story(got, c.Scope(), 1); !strings.Contains(s, "schema items/2") || !strings.Contains(s, "snapshot items/2 3") {
		t.Errorf("lifted: %s", s)
	}
}
