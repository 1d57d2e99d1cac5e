package schema

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// columns reads the columns, the key and the record layout of one table.
func (r *reader) columns(t *Table) error {
	dflts := make(map[int]string)
	r.found = r.found[:0]
	err := r.pragma("table_xinfo", quote(t.Name), func(st *sqlite.Stmt) error {
		c := Column{
			Name:    st.ColumnText(1),
			Type:    st.ColumnText(2),
			NotNull: st.ColumnBool(3),
			PK:      st.ColumnInt(5),
			Hidden:  st.ColumnInt(6),
			Field:   -1,
		}
		c.Affinity = affinityOf(c.Type, t.Strict)
		if !st.ColumnIsNull(4) && !c.Generated() {
			dflts[len(r.found)] = st.ColumnText(4)
		}
		r.found = append(r.found, c)
		return nil
	})
	if err != nil {
		return fmt.Errorf("its columns cannot be listed: %w", err)
	}
	if len(r.found) == 0 {
		return errors.New("it has no columns")
	}
	t.Columns = slices.Clone(r.found)
	for i := range t.Columns {
		if t.Columns[i].PK > 0 {
			t.Key = append(t.Key, i)
		}
	}
	slices.SortStableFunc(t.Key, func(a, b int) int { return t.Columns[a].PK - t.Columns[b].PK })
	if err := r.layout(t); err != nil {
		return err
	}
	for i, expr := range dflts {
		c := &t.Columns[i]
		if c.Default, err = r.evaluate(c.Affinity, expr); err != nil {
			return fmt.Errorf("the default of column %q cannot be evaluated: %w", c.Name, err)
		}
	}
	return nil
}

// layout finds out which column is the rowid and which field of a stored
// record belongs to which column: for a rowid table the declared order
// without virtual columns, for a WITHOUT ROWID table the order of its index,
// which is the table (SQLite file format 2.4).
func (r *reader) layout(t *Table) error {
	index, err := r.keyIndex(t)
	if err != nil {
		return fmt.Errorf("its key cannot be read: %w", err)
	}
	switch {
	case t.WithoutRowid:
		if t.KeyFields == 0 {
			return errors.New("it has neither rowid nor key")
		}
		t.Stored = index
	default:
		for i := range t.Columns {
			if t.Columns[i].Hidden != 2 {
				t.Stored = append(t.Stored, i)
			}
		}
		// A key that is the rowid needs no index, and only such a key has
		// none; INTEGER PRIMARY KEY DESC has one.
		if len(t.Key) == 1 && len(index) == 0 && equalFold(t.Columns[t.Key[0]].Type, "INTEGER") {
			t.Alias = t.Key[0]
		}
	}
	for field, cid := range slices.Backward(t.Stored) {
		t.Columns[cid].Field = field
	}
	return nil
}

// keyIndex lists the columns of the index that SQLite keeps for the declared
// key, in its order and with those it adds to the key; nil when it keeps none.
func (r *reader) keyIndex(t *Table) (index []int, err error) {
	if len(t.Key) == 0 {
		return nil, nil
	}
	name, found := "", false
	if err := r.pragma("index_list", quote(t.Name), func(st *sqlite.Stmt) error {
		if st.ColumnText(3) == "pk" {
			name, found = st.ColumnText(1), true
		}
		return nil
	}); err != nil || !found {
		return nil, err
	}
	err = r.pragma("index_xinfo", quote(name), func(st *sqlite.Stmt) error {
		cid := st.ColumnInt(1)
		if t.WithoutRowid && (cid < 0 || cid >= len(t.Columns)) {
			return fmt.Errorf("its key names column %d of %d", cid, len(t.Columns))
		}
		index = append(index, cid)
		if t.WithoutRowid && st.ColumnBool(5) {
			t.KeyFields++
		}
		return nil
	})
	if err == nil && len(index) == 0 {
		err = fmt.Errorf("its index %q has no columns", name)
	}
	return index, err
}

// evaluate has SQLite add a column with the default to a table that has a
// row, and looks at that row: by definition what a record too short for the
// column reads as. A default that SQLite refuses there (it is not constant)
// can stand behind no short record, and NULL is as good as any.
func (r *reader) evaluate(a Affinity, expr string) (d Default, err error) {
	if r.defaults == nil {
		if err := r.openDefaults(); err != nil {
			return d, err
		}
	}
	conn := r.defaults
	if err := sqlitex.ExecuteTransient(conn, "SAVEPOINT clean", nil); err != nil {
		return d, err
	}
	defer func() {
		err = errors.Join(err, sqlitex.ExecuteTransient(conn, "ROLLBACK TO clean", nil))
	}()
	// A bare word is a string only outside of parentheses.
	for _, form := range []string{"(\n%s\n)", "%s"} {
		sql := "ALTER TABLE d ADD COLUMN c " + a.declared() + " DEFAULT " + fmt.Sprintf(form, expr)
		if sqlitex.ExecuteTransient(conn, sql, nil) != nil {
			continue
		}
		err := sqlitex.ExecuteTransient(conn, "SELECT c, CAST(c AS BLOB) FROM d", &sqlitex.ExecOptions{
			ResultFunc: func(st *sqlite.Stmt) error { d = stored(st); return nil },
		})
		return d, err
	}
	return Default{}, nil
}

func (r *reader) openDefaults() error {
	conn, err := openMemory(r.enc)
	if err != nil {
		return err
	}
	for _, sql := range []string{"CREATE TABLE d(x)", "INSERT INTO d VALUES(1)"} {
		if err := sqlitex.ExecuteTransient(conn, sql, nil); err != nil {
			return errors.Join(err, conn.Close())
		}
	}
	r.defaults = conn
	return nil
}

// stored is column 0 in the form of a record; column 1 holds the bytes of a
// text in the database's encoding.
func stored(st *sqlite.Stmt) Default {
	switch st.ColumnType(0) {
	case sqlite.TypeInteger:
		return Default{6, binary.BigEndian.AppendUint64(nil, uint64(st.ColumnInt64(0)))}
	case sqlite.TypeFloat:
		return Default{7, binary.BigEndian.AppendUint64(nil, math.Float64bits(st.ColumnFloat(0)))}
	case sqlite.TypeText, sqlite.TypeBlob:
		body := make([]byte, st.ColumnLen(1))
		st.ColumnBytes(1, body)
		serial := uint64(12 + 2*len(body))
		if st.ColumnType(0) == sqlite.TypeText {
			serial++
		}
		return Default{serial, body}
	}
	return Default{}
}
