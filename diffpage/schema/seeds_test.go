package schema

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"celldexport/internal/ltxfile"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// realTexts are CREATE texts of tables as SQLite stores them, which is not how
// they were given, and those of the captured files, where these lie beside the
// checkout.
func realTexts(t testing.TB) []string {
	t.Helper()
	conn, err := sqlite.OpenConn(":memory:", sqlite.OpenReadWrite|sqlite.OpenCreate|sqlite.OpenMemory)
	if err == nil {
		err = sqlitex.ExecuteScript(conn, `
			create  temp  table if not exists passing(a);
			create /* why */ table if not exists main . "notes"(id integer primary key autoincrement, body text not null default '', tags);
			CREATE TABLE 'single quotes'(a, b, PRIMARY KEY(b, a)) WITHOUT ROWID;
			CREATE TABLE [brackets "and" quotes](`+"`a``b`"+` TEXT COLLATE NOCASE, "c" REAL DEFAULT (1+2), d BLOB DEFAULT x'00ff') STRICT;
			CREATE TABLE `+"\"a\"\"b\""+`(v AS (a) VIRTUAL, a INT CHECK(a > 0), s AS (a*2) STORED, UNIQUE(a)) -- the end
			;
			CREATE TABLE made AS SELECT id, body, tags AS "two words", 1.5 AS real FROM notes;
			CREATE TABLE old(a, b, c INT DEFAULT -5);
			ALTER TABLE old RENAME TO "new name"; ALTER TABLE "new name" RENAME b TO "new column"; ALTER TABLE "new name" ADD COLUMN d TEXT DEFAULT 'later'; ALTER TABLE "new name" DROP COLUMN c;
			CREATE TABLE refers(a REFERENCES notes(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED, b, CONSTRAINT two FOREIGN KEY(b) REFERENCES made);
			ALTER TABLE notes RENAME TO "é notes";
			CREATE TABLE desc_key(id INTEGER PRIMARY KEY DESC, v); CREATE TABLE alias(id INTEGER, v, PRIMARY KEY(id DESC));
			CREATE VIRTUAL TABLE docs USING fts5(title, body); CREATE VIRTUAL TABLE box USING rtree(id, x0, x1)`, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	texts := textsOf(t, conn)
	image := captured(t)
	if image == nil {
		return texts
	}
	if conn, err = sqlite.OpenConn(":memory:"); err == nil {
		err = conn.Deserialize("main", image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return append(texts, textsOf(t, conn)...)
}

// textsOf reads the texts of all tables and closes the connection.
func textsOf(t testing.TB, conn *sqlite.Conn) (texts []string) {
	t.Helper()
	err := sqlitex.ExecuteTransient(conn, "SELECT sql FROM sqlite_schema WHERE type='table'", &sqlitex.ExecOptions{ResultFunc: func(st *sqlite.Stmt) error {
		texts = append(texts, st.ColumnText(0))
		return nil
	}})
	if err = errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	return texts
}

// captured is the database of the first captured file, nil where it is absent.
func captured(t testing.TB) (image []byte) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "fixtures", "golden-ltx", ltxfile.FileName(1, 1)))
	if errors.Is(err, os.ErrNotExist) {
		t.Log("the captured files beside the checkout (../shared/fixtures/golden-ltx) are absent: only schemas written here are the seeds")
		return nil
	}
	if err == nil {
		_, err = ltxfile.Decode(bytes.NewReader(file), int64(len(file)), func(_ uint32, data []byte) error {
			image = append(image, data...)
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	image[18], image[19] = 1, 1 // no log beside it
	return image
}

// rowOf is the row of a text, under the name it defines, or under t0.
func rowOf(sql string) Entry {
	name, ok := definedName(sql)
	if !ok {
		name = "t0"
	}
	e := Entry{Type: "table", Name: []byte(name), Table: []byte(name), Root: 2, SQL: []byte(sql)}
	if isVirtual(sql) {
		e.Root = 0
	}
	return e
}

// TestRealTexts: every text that SQLite stores is one that makes a table of
// its name, and is read.
func TestRealTexts(t *testing.T) {
	virtual := 0
	for _, sql := range realTexts(t) {
		s, err := new(Cache).Load(UTF8, []Entry{rowOf(sql)})
		if err != nil {
			t.Fatal(err)
		}
		switch tab := s.Tables[0]; {
		case tab.Kind == Virtual:
			virtual++
		case tab.Unreadable != "" || len(tab.Columns) == 0 || tab.Name == "t0":
			t.Errorf("%s: %+v", sql, tab)
		case strings.Contains(sql, "autoincrement") != (tab.Name == "é notes"):
			t.Errorf("%s is called %q", sql, tab.Name)
		}
	}
	if virtual != 2 {
		t.Errorf("%d virtual tables", virtual)
	}
}
