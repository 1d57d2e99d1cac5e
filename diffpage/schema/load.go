package schema

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// pending is a table whose columns are not read yet, and its row.
type pending struct {
	*Table
	entry *Entry
	key   [sha256.Size]byte // entry.digest
}

// read fills in the columns of tables that describe made. What it says of one
// depends on its own name and text alone. A table that cannot be understood
// becomes Unreadable; an error means that SQLite failed us.
func read(enc Encoding, tables []pending) (err error) {
	if len(tables) == 0 {
		return nil
	}
	r, err := newReader(enc)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.fill(tables); err != nil {
		return err
	}
	return r.read(tables)
}

// reader is a pair of private in-memory databases. The first one gets
// sqlite_schema rows as they are stored, under root pages that lead nowhere,
// and is asked for nothing but pragmas, as statements: no expression of the
// schema is ever run, and nothing that a schema names can stand in the place
// of what we ask for, as a table does in that of a pragma function of its name.
// The second one evaluates column defaults.
type reader struct {
	enc      Encoding
	conn     *sqlite.Conn
	defaults *sqlite.Conn
	found    []Column // of the table at hand, used again
}

func newReader(enc Encoding) (*reader, error) {
	conn, err := openMemory(enc)
	if err != nil {
		return nil, err
	}
	return &reader{enc: enc, conn: conn}, nil
}

// openMemory opens a database of the given encoding, so that stored bytes go
// in and come out as they are.
func openMemory(enc Encoding) (*sqlite.Conn, error) {
	conn, err := sqlite.OpenConn(":memory:", sqlite.OpenReadWrite|sqlite.OpenCreate|sqlite.OpenMemory|sqlite.OpenNoMutex)
	if err != nil {
		return nil, fmt.Errorf("open an in-memory database: %w", err)
	}
	for _, sql := range []string{
		"PRAGMA page_size=512",
		"PRAGMA encoding='" + enc.String() + "'",
		"PRAGMA trusted_schema=OFF",
	} {
		if err := sqlitex.ExecuteTransient(conn, sql, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("prepare an in-memory database: %w", err), conn.Close())
		}
	}
	return conn, nil
}

func (r *reader) close() error {
	err := r.conn.Close()
	if r.defaults != nil {
		err = errors.Join(err, r.defaults.Close())
	}
	return err
}

// fill stores the rows of the tables and makes SQLite read them. Indexes,
// views, triggers and virtual tables are left out: nothing of them is asked
// for (the index of a declared key is made by the table's own text), and what
// they name may exist in the writer only.
func (r *reader) fill(tables []pending) (err error) {
	// The blob's pages exist only to be below the page count, which SQLite
	// checks root pages against.
	for _, sql := range []string{
		"CREATE TABLE pages(b)",
		fmt.Sprintf("INSERT INTO pages VALUES(zeroblob(%d))", 512*(len(tables)+4)),
		"PRAGMA writable_schema=ON",
		"DELETE FROM sqlite_schema",
	} {
		if err := sqlitex.ExecuteTransient(r.conn, sql, nil); err != nil {
			return fmt.Errorf("make room for a schema: %w", err)
		}
	}
	stmt, err := r.conn.Prepare(`INSERT INTO sqlite_schema(rowid,type,name,tbl_name,rootpage,sql)
		VALUES(?1,'table',CAST(?2 AS TEXT),CAST(?2 AS TEXT),?1+2,CAST(?3 AS TEXT))`)
	if err != nil {
		return fmt.Errorf("store a schema: %w", err)
	}
	for i, t := range tables {
		stmt.BindInt64(1, int64(i)+1)
		stmt.BindBytes(2, t.entry.Name)
		stmt.BindBytes(3, t.entry.SQL)
		if _, err := stmt.Step(); err != nil {
			return fmt.Errorf("store a schema: %w", err)
		}
		if err := stmt.Reset(); err != nil {
			return fmt.Errorf("store a schema: %w", err)
		}
	}
	if err := stmt.Finalize(); err != nil {
		return fmt.Errorf("store a schema: %w", err)
	}
	if err := sqlitex.ExecuteTransient(r.conn, "PRAGMA schema_version=1000", nil); err != nil {
		return fmt.Errorf("have a schema read: %w", err)
	}
	return nil
}

// read fills in the tables. What goes wrong with one stays with that one.
func (r *reader) read(tables []pending) error {
	type options struct{ withoutRowid, strict bool }
	known := make(map[string]options, len(tables))
	if err := r.pragma("table_list", "", func(st *sqlite.Stmt) error {
		if st.ColumnText(2) == "table" {
			known[st.ColumnText(1)] = options{st.ColumnBool(4), st.ColumnBool(5)}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("list the tables of a schema: %w", err)
	}
	for _, t := range tables {
		var err error
		if o, ok := known[t.Name]; ok {
			t.WithoutRowid, t.Strict = o.withoutRowid, o.strict
			err = r.columns(t.Table)
		} else {
			err = r.complaint(t.SQL)
		}
		if err != nil {
			t.forget(err.Error())
		}
	}
	return nil
}

// forget makes a table Unreadable, for the reason given.
func (t *Table) forget(why string) {
	t.Unreadable = why
	t.Columns, t.Key, t.Stored, t.KeyFields, t.Alias = nil, nil, nil, 0, -1
}

// pragma runs a pragma statement about one table or index, or about all when there is no argument. The argument is a name as quote returns it.
func (r *reader) pragma(pragma, argument string, row func(*sqlite.Stmt) error) error {
	sql := "PRAGMA main." + pragma
	if argument != "" {
		sql += "(" + argument + ")"
	}
	return sqlitex.ExecuteTransient(r.conn, sql, &sqlitex.ExecOptions{ResultFunc: row})
}

// quote makes an identifier of any name.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// complaint is what SQLite says about a CREATE text it did not take.
func (r *reader) complaint(sql string) error {
	stmt, _, err := r.conn.PrepareTransient(sql)
	if err != nil {
		return fmt.Errorf("its CREATE statement is not understood: %w", err)
	}
	if err := stmt.Finalize(); err != nil {
		return fmt.Errorf("its CREATE statement is not understood: %w", err)
	}
	return errors.New("its CREATE statement makes no table of its name")
}
