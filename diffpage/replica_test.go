package diffpage

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"celldexport/diffpage/schema"
)

// replica is a database that gets to know another one through row events
// alone: the replay oracle.
type replica struct {
	src     *source
	sql     map[string]string // of the tables it has
	applied int
}

func newReplica(t testing.TB, encoding string) *replica {
	t.Helper()
	conn, err := sqlite.OpenConn(":memory:", sqlite.OpenReadWrite|sqlite.OpenCreate|sqlite.OpenMemory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &replica{src: &source{t: t, conn: conn}, sql: make(map[string]string)}
	r.src.exec("PRAGMA encoding='" + encoding + "'")
	return r
}

// apply follows a unit and compares the tables it touched. A table of another
// text is begun anew, from a scan, as a consumer begins a new generation.
func (r *replica) apply(t testing.TB, c *Change, want map[string]tableDump) {
	t.Helper()
	r.src.t = t
	r.src.exec("BEGIN")
	for name := range maps.Clone(r.sql) {
		if is := c.After().ByName(name); is == nil || is.SQL != r.sql[name] {
			r.src.exec("DROP TABLE " + quoteName(name))
			delete(r.sql, name)
		}
	}
	for _, tab := range c.After().Tables {
		if tab.Kind != schema.Ordinary || strings.HasPrefix(tab.Name, "sqlite_") {
			continue
		}
		_, known := r.sql[tab.Name]
		walk := c.Rows
		if !known {
			r.src.exec(tab.SQL)
			r.sql[tab.Name] = tab.SQL
			walk = c.Scan
		} else if !c.Touched(tab.Name) {
			continue
		}
		r.follow(t, tab, walk)
		got := r.src.dumpTable(tab)
		checkEvents(t, tab.Name+" of the replica", want[tab.Name], got, nil)
	}
	r.src.exec("COMMIT")
}

// follow applies the events of one table: first what is gone or replaced goes
// out, so that no row stands in the way of another's key.
func (r *replica) follow(t testing.TB, tab *schema.Table, walk func(string, Visitor) error) {
	t.Helper()
	for _, out := range []bool{true, false} {
		err := walk(tab.Name, func(op Op, before, after Row) error {
			switch {
			case out && before != nil:
				return r.remove(tab, before)
			case !out && after != nil:
				r.applied++
				return r.insert(tab, after)
			}
			return nil
		})
		if err != nil {
			t.Errorf("replay of %s: %v", tab.Name, err)
		}
	}
}

func (r *replica) remove(tab *schema.Table, row Row) error {
	where, args := []string{"rowid=?"}, []any{row.Rowid()}
	if tab.WithoutRowid {
		where, args = nil, nil
		for _, i := range tab.Key {
			mark, arg, err := bound(row, i)
			if err != nil {
				return err
			}
			where, args = append(where, quoteName(tab.Columns[i].Name)+" IS "+mark), append(args, arg)
		}
	}
	err := sqlitex.Execute(r.src.conn, "DELETE FROM "+quoteName(tab.Name)+" WHERE "+strings.Join(where, " AND "), &sqlitex.ExecOptions{Args: args})
	if err == nil && r.src.conn.Changes() != 1 {
		err = fmt.Errorf("%d rows of the key %v", r.src.conn.Changes(), args)
	}
	return err
}

func (r *replica) insert(tab *schema.Table, row Row) error {
	var cols, marks []string
	var args []any
	if !tab.WithoutRowid && tab.Alias < 0 {
		cols, marks, args = append(cols, "rowid"), append(marks, "?"), append(args, row.Rowid())
	}
	for i, c := range tab.Columns {
		if c.Generated() {
			continue
		}
		mark, arg, err := bound(row, i)
		if err != nil {
			return err
		}
		cols, marks, args = append(cols, quoteName(c.Name)), append(marks, mark), append(args, arg)
	}
	q := "INSERT INTO " + quoteName(tab.Name) + "(" + strings.Join(cols, ",") + ") VALUES(" + strings.Join(marks, ",") + ")"
	return sqlitex.Execute(r.src.conn, q, &sqlitex.ExecOptions{Args: args})
}

// bound is a value as a parameter; text goes in as the stored bytes.
func bound(row Row, i int) (mark string, arg any, err error) {
	c, err := row.Cell(i)
	switch c.Class {
	case Integer:
		return "?", c.Int, err
	case Real:
		return "?", c.Real, err
	case Text:
		return "CAST(? AS TEXT)", c.Bytes, err
	case Blob:
		return "?", append([]byte{}, c.Bytes...), err
	}
	return "?", nil, err
}
