package schema

import (
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// load describes the tables and views of entries, in their order, with the
// columns of those that have a tree.
func load(enc Encoding, entries []Entry) (tables []*Table, err error) {
	byRow := make(map[int64]*Table)
	for i := range entries {
		t := describe(enc, &entries[i])
		if t == nil {
			continue
		}
		tables = append(tables, t)
		if t.Kind == Ordinary && t.Unreadable == "" {
			byRow[int64(i)+1] = t
		}
	}
	markShadows(tables)
	if len(byRow) == 0 {
		return tables, nil
	}
	r, err := newReader(enc)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.fill(entries, byRow); err != nil {
		return nil, err
	}
	return tables, r.read(byRow)
}

// reader is a pair of private in-memory databases. The first one gets the
// sqlite_schema rows as they are stored, under root pages that lead nowhere,
// and is asked for nothing but pragmas: no expression of the schema is ever
// run. The second one evaluates column defaults.
type reader struct {
	enc      Encoding
	conn     *sqlite.Conn
	defaults *sqlite.Conn
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

// fill stores the rows of readable tables and of automatic indexes under
// their own row numbers and makes SQLite read them. Explicit indexes, views,
// triggers and virtual tables are left out: nothing of them is asked for, and
// what they name may exist in the writer only.
func (r *reader) fill(entries []Entry, byRow map[int64]*Table) (err error) {
	// The blob's pages exist only to be below the page count, which SQLite
	// checks root pages against.
	for _, sql := range []string{
		"CREATE TABLE pages(b)",
		fmt.Sprintf("INSERT INTO pages VALUES(zeroblob(%d))", 512*(len(entries)+4)),
		"PRAGMA writable_schema=ON",
		"DELETE FROM sqlite_schema",
	} {
		if err := sqlitex.ExecuteTransient(r.conn, sql, nil); err != nil {
			return fmt.Errorf("make room for a schema: %w", err)
		}
	}
	stmt, err := r.conn.Prepare(`INSERT INTO sqlite_schema(rowid,type,name,tbl_name,rootpage,sql)
		VALUES(?1,?2,CAST(?3 AS TEXT),CAST(?4 AS TEXT),?1+2,CAST(?5 AS TEXT))`)
	if err != nil {
		return fmt.Errorf("store a schema: %w", err)
	}
	for i := range entries {
		e, row := &entries[i], int64(i)+1
		if byRow[row] == nil && (e.Type != "index" || !e.relevant()) {
			continue
		}
		stmt.BindInt64(1, row)
		stmt.BindText(2, e.Type)
		stmt.BindBytes(3, e.Name)
		stmt.BindBytes(4, e.Table)
		if e.SQL == nil {
			stmt.BindNull(5)
		} else {
			stmt.BindBytes(5, e.SQL)
		}
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
func (r *reader) read(byRow map[int64]*Table) error {
	known := make(map[int64]bool)
	err := sqlitex.Execute(r.conn, `SELECT s.rowid, l.wr, l.strict FROM sqlite_schema s
		JOIN pragma_table_list l ON l.schema='main' AND l.name=s.name AND l.type='table'
		WHERE s.type='table'`, &sqlitex.ExecOptions{ResultFunc: func(st *sqlite.Stmt) error {
		row := st.ColumnInt64(0)
		if t := byRow[row]; t != nil {
			known[row] = true
			t.WithoutRowid, t.Strict = st.ColumnBool(1), st.ColumnBool(2)
		}
		return nil
	}})
	if err != nil {
		return fmt.Errorf("list the tables of a schema: %w", err)
	}
	for row, t := range byRow {
		var err error
		if known[row] {
			err = r.columns(row, t)
		} else {
			err = r.complaint(t.SQL)
		}
		if err != nil {
			t.Unreadable = err.Error()
			t.Columns, t.Key, t.Stored, t.KeyFields, t.Alias = nil, nil, nil, 0, -1
		}
	}
	return nil
}

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
